#!/usr/bin/env bash
# The whole GPU check in one go. The machine with the GPU needs no Go: build the binaries elsewhere first.
#
#   scripts/gpu-check.sh build           builds everything into bin/gpu, and bin/gpu.tar.gz, which is enough there (needs Go and gcc)
#   scripts/gpu-check.sh run [SECTION]…  runs it where the GPU is; results go to $OUT (default: bin/gpu/out)
#
# Sections: tests calls latency corpus demo topo sanitize bench tune stress (default: all but corpus and the last three. stress takes
# STRESS, 480s, and about a minute more; STRESS_FLAGS, BENCH_FLAGS and TUNE_FLAGS go to demo stress, bench and tune; calls makes CALLS,
# 1000000). The last lines are a short table. Several GPUs joined by links have a suite of their own: scripts/gpu-links.sh.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/gpu-common.sh
known="tests calls latency corpus demo topo sanitize bench tune stress"
calls=${CALLS:-1000000}

run() {
	ready "$1" "$known" || return 2
	export OUT=${OUT:-$PWD/$bin/out}
	mkdir -p "$OUT"
	OUT=$(cd "$OUT" && pwd)
	nvidia-smi --query-gpu=name,driver_version,uuid --format=csv | tee "$OUT/gpu.txt"
	local want=${1:-}
	[ -n "$want" ] || want="tests calls latency demo topo sanitize"
	case " $want " in *" tests "*)
		for p in $packages; do step "test-$(basename "$p")" test_in "$p" -test.v -test.skip TestRandomCalls; done ;;
	esac
	case " $want " in *" calls "*)
		TEST_CALLS=$calls step calls test_in allreduce -test.v -test.run TestRandomCalls
		grep -h 'calls,' "$OUT/calls.txt" ;;
	esac
	case " $want " in *" latency "*)
		step latency $bin/demo bench --backend cuda --algo auto,oneshot-pull,oneshot-push,twoshot-pull,twoshot-push,oneshot-wide,twoshot-wide --ranks 2,4,8 --share -b 8K -e 512K --floor=false
		step host-cost test_in allreduce -test.run '^$' -test.bench Launch
		cat "$OUT/latency.txt"
		grep -h Benchmark "$OUT/host-cost.txt" ;;
	esac
	case " $want " in *" corpus "*) # what the card gives, for allreduce/testdata/corpus
		CORPUS_OUT="$OUT/corpus" step corpus test_in allreduce -test.v -test.run 'TestCorpus$'
		grep -h 'cases,' "$OUT/corpus.txt" ;;
	esac
	case " $want " in *" demo "*)
		step demo $bin/demo
		step devices $bin/demo devices
		step addpeer $bin/addpeer
		tail -n 30 "$OUT/demo.txt"
		tail -n 3 "$OUT/addpeer.txt" ;;
	esac
	case " $want " in *" bench "*) # shellcheck disable=SC2086
		step bench $bin/demo bench --algo all --plot "$OUT/latency.svg" ${BENCH_FLAGS:-}
		cat "$OUT/bench.txt" ;;
	esac
	case " $want " in *" tune "*) # shellcheck disable=SC2086
		step tune $bin/demo tune --out "$OUT/tuned.json" ${TUNE_FLAGS:-}
		cat "$OUT/tune.txt" ;;
	esac
	case " $want " in *" topo "*)
		export XDG_CACHE_HOME="$OUT/cache"
		step topo $bin/demo topo --plan --svg "$OUT/machine.svg"
		step topo-json $bin/demo topo --json
		step probe $bin/demo probe --virtual
		step baseline-save $bin/demo topo --save "$OUT/baseline.json"
		step baseline-check $bin/demo topo --check "$OUT/baseline.json"
		step baseline-changed changed
		step doctor $bin/demo doctor
		cat "$OUT/topo.txt" "$OUT/probe.txt" "$OUT/doctor.txt"
		tail -n 3 "$OUT/baseline-check.txt" "$OUT/baseline-changed.txt" ;;
	esac
	case " $want " in *" sanitize "*)
		if command -v compute-sanitizer >/dev/null; then
			step memcheck sanitize memcheck
			grep -h 'ERROR SUMMARY' "$OUT/memcheck.txt"
		else
			row memcheck "skipped: no compute-sanitizer here" 0
		fi ;;
	esac
	case " $want " in *" stress "*)
		# shellcheck disable=SC2086 # several flags
		step stress $bin/demo stress --backend cuda --duration "${STRESS:-480s}" --control ${STRESS_FLAGS:-}
		grep -vE '^[^ ].* [0-9]+/[0-9]+ ' "$OUT/stress.txt" # without the lines of the litmus tests
		;;
	esac
	printf '%s\n' '--- GPU check' "${rows[@]}"
	return $status
}
sanitize() {
	(cd allreduce && REQUIRE_GPU=1 compute-sanitizer --report-api-errors no --tool "$1" --error-exitcode 9 "../$bin/allreduce.test" \
		-test.timeout 4m -test.run 'TestAllReduce/(one|two)shot-(pull|push|wide)/(2|3|4)$|TestRegistered/3$|TestPieces|TestEpochWraps')
}

case "${1:-}" in
build) build ;;
run) shift; run "$*" ;;
*) sed -n '2,9p' "$0"; exit 2 ;;
esac
