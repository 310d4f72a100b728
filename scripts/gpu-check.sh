#!/usr/bin/env bash
# The whole GPU check in one go. The machine with the GPU needs no Go: build the binaries elsewhere first.
#
#   scripts/gpu-check.sh build          builds everything into bin/gpu (needs Go and gcc)
#   scripts/gpu-check.sh run [SECTION]  runs it where the GPU is; results go to $OUT (default: bin/gpu/out)
#
# Sections: tests calls latency demo topo sanitize bench tune stress nccl (default: all but the last four. stress takes STRESS, 480s, and
# about a minute more; STRESS_FLAGS, BENCH_FLAGS and TUNE_FLAGS go to demo stress, bench and tune). nccl needs two GPUs and libnccl.so.2,
# or the library that NCCL_LIBRARY names by its full path. The last lines are a short table.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=bin/gpu
packages="internal/cuda launcher topo/nvml topo/probe allreduce examples/addpeer"
calls=${CALLS:-1000000}
export NCCL_NVLS_ENABLE=0 # no multicast objects: not every machine bears them

build() {
	set -e
	rm -rf $bin
	mkdir -p $bin
	export CGO_CFLAGS="${CGO_CFLAGS:--O2 -g -Wno-deprecated-declarations}"
	for p in $packages; do
		go test -c -ldflags '-s -w' -o "$bin/$(basename "$p").test" "./$p"
	done
	go build -ldflags '-s -w' -o $bin/demo ./cmd/demo
	go build -ldflags '-s -w' -o $bin/addpeer ./examples/addpeer
	ls -la $bin
}

status=0
declare -a rows
step() { # step NAME COMMAND...: runs it, keeps its output, remembers how it went
	local name=$1 start=$SECONDS
	shift
	if "$@" >"$OUT/$name.txt" 2>&1; then
		rows+=("$(printf '%-22s ok    %4d s' "$name" $((SECONDS - start)))")
	else
		rows+=("$(printf '%-22s FAIL  %4d s' "$name" $((SECONDS - start)))")
		tail -n 40 "$OUT/$name.txt"
		status=1
	fi
}
test_in() { # test_in PACKAGE FLAGS...: its test binary, in its folder, as go test would
	local package=$1
	shift
	(cd "$package" && REQUIRE_GPU=1 "$OLDPWD/$bin/$(basename "$package").test" -test.timeout 9m "$@")
}

run() {
	local section
	for section in $1; do
		case $section in
		tests | calls | latency | demo | topo | sanitize | bench | tune | stress | nccl) ;;
		*) echo "unknown section \"$section\": use tests, calls, latency, demo, topo, sanitize, bench, tune, stress, nccl" >&2; return 2 ;;
		esac
	done
	[ -x $bin/allreduce.test ] || { echo "no binaries in $bin: run scripts/gpu-check.sh build first" >&2; return 2; }
	OUT=${OUT:-$bin/out}
	mkdir -p "$OUT"
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
		step latency test_in allreduce -test.run '^$' -test.bench Graph -test.benchtime 1x
		step host-cost test_in allreduce -test.run '^$' -test.bench Launch
		grep -h Benchmark "$OUT/latency.txt" "$OUT/host-cost.txt" ;;
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
			rows+=("memcheck               skipped: no compute-sanitizer here")
		fi ;;
	esac
	case " $want " in *" nccl "*)
		local library=${NCCL_LIBRARY:-libnccl.so.2}
		REQUIRE_NCCL=1 step nccl-test test_in allreduce -test.v -test.run TestNCCLOnGPUs
		step nccl-run $bin/demo run --algo nccl --nccl "$library" --sizes 1KB:64MB
		step nccl-absent absent --algo nccl --nccl "$library" --absent 1 --timeout 4s
		step nccl-bench $bin/demo bench --algo auto,nccl --nccl "$library" -b 1K -e 64M -f 4
		grep -hE 'nccl_gpu_test|^ *--- ' "$OUT/nccl-test.txt"
		tail -n 30 "$OUT/nccl-run.txt" "$OUT/nccl-bench.txt"
		cat "$OUT/nccl-absent.txt" ;;
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
changed() { # a baseline of another machine must not match
	sed 's/"sms": *[0-9]*/"sms": 7/' "$OUT/baseline.json" >"$OUT/other.json"
	$bin/demo topo --check "$OUT/other.json"
	[ $? -eq 1 ]
}
absent() { # a rank that stays away is a fault, as demonstrated
	local said
	said=$($bin/demo run "$@")
	printf '%s\n' "$said"
	[[ $said == *"FAULT, as demonstrated"* ]]
}
sanitize() {
	(cd allreduce && REQUIRE_GPU=1 compute-sanitizer --report-api-errors no --tool "$1" --error-exitcode 9 "$OLDPWD/$bin/allreduce.test" \
		-test.timeout 4m -test.run 'TestAllReduce/(one|two)shot-pu(ll|sh)/(2|3|4)$|TestRegistered/3$|TestPieces|TestEpochWraps')
}

case "${1:-}" in
build) build ;;
run) shift; run "$*" ;;
*) sed -n '2,9p' "$0"; exit 2 ;;
esac
