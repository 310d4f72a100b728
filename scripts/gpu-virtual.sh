#!/usr/bin/env bash
# The kernels and protocols by themselves: several ranks on one GPU, no link between them. What a folder docs/results/<machine>-1gpu is made of.
# The machine needs no Go: build the binaries elsewhere first.
#
#   scripts/gpu-virtual.sh build           builds everything into bin/gpu, and bin/gpu.tar.gz, which is enough there (needs Go and gcc)
#   scripts/gpu-virtual.sh run [SECTION]…  runs it where the GPU is; what each step printed goes to $OUT/results.tar.gz
#
# Sections: tune bench around large corpus host calls stress (default: all). With two GPUs or more the first has 8 ranks while the second has
# 2 and 4; with one they take turns. Each step has a time limit, and a run ends within BUDGET (590 s). CALLS (100000) is how many random
# calls are made, STRESS (200s) how long stress makes its own, ALGOS which algorithms tune and bench compare, BLOCKS and THREADS which grids tune tries.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/gpu-common.sh
known="tune bench around large corpus host calls stress"
algos=${ALGOS:-oneshot-push,twoshot-push,oneshot-wide,twoshot-wide,oneshot-pull,twoshot-pull}
blocks=${BLOCKS:-8,16,22,32,43,64} threads=${THREADS:-64,96,128,192,256,512}

ranks() { # ranks GPU RANKS SECTIONS: the sections that depend on the number of ranks
	local worlds=$2 as=${2//,/-} want=" $3 " table=()
	export CUDA_VISIBLE_DEVICES=$1
	case $want in *" tune "*)
		within_budget "tune-$as" 200 $bin/demo tune --out "$OUT/tuned-$as.json" --ranks "$worlds" --share --algo "$algos" \
			-b 8K -e 1M -f 2 --blocks "$blocks" --threads "$threads" -n 100 --rounds 2 ;;
	esac
	[ ! -s "$OUT/tuned-$as.json" ] || table=(--table "$OUT/tuned-$as.json")
	case $want in *" bench "*)
		within_budget "bench-$as" 120 $bin/demo bench "${table[@]}" --algo "auto,$algos" --ranks "$worlds" --share -b 4K -e 1M -f 2 --rounds 2 --plot "$OUT/latency-$as.svg" ;;
	esac
	case $want in *" around "*)
		within_budget "around-$as" 60 $bin/demo bench "${table[@]}" --floor=false --around --ranks "$worlds" --share -b 8K -e 512K -f 2 --rounds 2 ;;
	esac
	case $want in *" large "*)
		within_budget "large-$as" 200 $bin/demo bench "${table[@]}" --floor=false --algo auto,twoshot-pull,copy --ranks "$worlds" --share -b 1M -e 64M -f 4 --rounds 1 -n 20 ;;
	esac
	printf '%s\n' "${rows[@]}" >"$OUT/rows-$as"
}

single() { # single GPU SECTIONS: those that do not
	export CUDA_VISIBLE_DEVICES=$1
	case " $2 " in *" corpus "*) # for allreduce/testdata/corpus
		CORPUS_OUT=$OUT/corpus within_budget corpus 90 test_in allreduce -test.v -test.run 'TestCorpus$' ;;
	esac
	case " $2 " in *" host "*)
		within_budget host-cost 60 test_in allreduce -test.run '^$' -test.bench Launch -test.count 3
		within_budget host-driver 60 test_in internal/cuda -test.run '^$' -test.bench LaunchOnGPU -test.count 3 ;; # what of it is the driver's
	esac
	case " $2 " in *" calls "*)
		TEST_CALLS=${CALLS:-100000} within_budget calls 240 test_in allreduce -test.v -test.run TestRandomCalls ;;
	esac
	case " $2 " in *" stress "*)
		within_budget stress 400 $bin/demo stress --duration "${STRESS:-200s}" --max-bytes 512KB --ranks 4 --share --no-litmus --control ;;
	esac
	printf '%s\n' "${rows[@]}" >"$OUT/rows-single"
}

run() {
	ready "$1" "$known" || return 2
	local want=${1:-$known} share=${OUT:-$PWD/$bin/out} gpus
	OUT=$PWD/$bin/virtual
	rm -rf "$OUT"
	mkdir -p "$share" "$OUT" || return 2
	share=$(cd "$share" && pwd)
	export OUT
	{
		date -u '+%Y-%m-%d %H:%M UTC'
		echo "commit: $(cat $bin/commit.txt)"
		$bin/demo version
		nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
	} 2>&1 | tee "$OUT/machine.txt"
	gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
	if [ "$gpus" -gt 1 ]; then
		ranks 0 8 "$want" &
		(ranks 1 2,4 "$want") && (single 1 "$want")
		wait
	else
		(ranks 0 8 "$want")
		(ranks 0 2,4 "$want")
		(single 0 "$want")
	fi
	cat "$OUT"/rows-* | tee "$OUT/summary.txt"
	rm -f "$OUT"/rows-*
	tar czf "$share/results.tar.gz" -C "$OUT" .
	! grep -q FAIL "$OUT/summary.txt"
}

case "${1:-}" in
build) build ;;
run) shift; run "$*" ;;
*) sed -n '2,11p' "$0"; exit 2 ;;
esac
