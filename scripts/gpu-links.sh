#!/usr/bin/env bash
# The suite for a machine whose GPUs (2 to 8) are joined by links. The machine needs no Go: build the binaries elsewhere first.
#
#   scripts/gpu-links.sh build           builds everything into bin/gpu, and bin/gpu.tar.gz, which is enough there (needs Go and gcc)
#   scripts/gpu-links.sh run [SECTION]…  runs it where the GPUs are (default: all sections but nccl)
#
# Sections: topo tests bench tune stress nccl. Each step has a time limit, and a run ends within BUDGET (590 s): what no longer fits is
# in the table as not run. On 2 GPUs all of it takes two runs: `run topo stress` and `run tests bench tune`. On one GPU it can be
# rehearsed, with several ranks on it, and on none with BACKEND=emu. nccl checks the algorithm nccl, where there is a library of NCCL's
# and a GPU for each rank; it takes about three minutes.
#
# Few files go to $OUT (default: bin/gpu/out): the table and the pictures, and results.tar.gz with what each step printed, which is
# written anew after each. scripts/keep-results.sh takes from there what is worth keeping.
#
# WORLDS (2,4,8 as far as there are GPUs, and 3), STRESS (5m), STRESS_FLAGS, CALLS (100000), SIZES ("-b 1K -e 4M -f 2"), ROUNDS, NCCL (the library)
# and TORCH_PYTHON (python3) change what is measured.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/gpu-common.sh
known="topo tests bench tune stress nccl"
export backend=${BACKEND:-cuda}
python=${TORCH_PYTHON:-python3}

run() {
	ready "$1" "$known" || return 2
	local want=${1:-topo tests bench tune stress} section
	share=${OUT:-$PWD/$bin/out}
	OUT=$PWD/$bin/links # where the steps' files go
	rm -rf "$OUT"
	mkdir -p "$share" "$OUT" || return 2
	share=$(cd "$share" && pwd)
	export OUT share XDG_CACHE_HOME=$OUT/cache
	trap 'finish' EXIT
	trap 'exit 130' INT TERM
	defaults
	{
		date -u '+%Y-%m-%d %H:%M UTC'
		echo "gpus: $gpus, backend: $backend, worlds: $worlds, sections: $want"
		echo "commit: $(cat $bin/commit.txt)"
		$bin/demo version
		[ "$backend" = emu ] || nvidia-smi --query-gpu=name,driver_version,pci.bus_id,memory.total --format=csv
	} 2>&1 | tee "$OUT/machine.txt"
	for section in $want; do
		"section_$section"
	done
	return $status
}

# defaults looks at the machine.
defaults() {
	gpus=0
	[ "$backend" = emu ] || gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
	case $gpus in
	0) worlds=2,3 sizes="-b 1K -e 4K -f 4" rounds=1 ;;
	1) worlds=2,4,8 sizes="-b 8K -e 512K -f 4" rounds=1 ;;
	2) worlds=2 sizes="-b 1K -e 4M -f 2" rounds=3 ;;
	3) worlds=2,3 sizes="-b 1K -e 4M -f 2" rounds=2 ;;
	4 | 5 | 6 | 7) worlds=2,3,4 sizes="-b 1K -e 4M -f 4" rounds=2 ;;
	*) worlds=2,4,8 sizes="-b 1K -e 4M -f 4" rounds=2 ;;
	esac
	worlds=${WORLDS:-$worlds} sizes=${SIZES:-$sizes} rounds=${ROUNDS:-$rounds}
	emulated=()
	if [ "$backend" = emu ]; then
		emulated=(-test.short)
		export REQUIRE_GPU=0
	fi
}

within() { # within NAME SECONDS COMMAND...: a step within the budget, after which all that there is so far is packed
	within_budget "$@"
	local code=$?
	pack
	return $code
}

section_topo() {
	local both=
	if [ "$backend" != emu ]; then
		within nvidia-smi 60 nvidia_says
	fi
	within topo 120 $bin/demo topo --backend "$backend" --plan --p2p r,w,n,a,p --svg "$OUT/machine.svg"
	within topo-json 60 $bin/demo topo --backend "$backend" --plan --json
	[ "$gpus" -gt 4 ] || both=1 # each pair takes seconds
	within probe 300 $bin/demo probe --backend "$backend" --virtual
	[ -z "$both" ] || within probe-json 120 $bin/demo probe --backend "$backend" --virtual --json
	within baseline-save 90 $bin/demo topo --backend "$backend" --save "$OUT/baseline.json"
	within baseline-check 90 $bin/demo topo --backend "$backend" --check "$OUT/baseline.json"
	within baseline-changed 90 changed --backend "$backend"
	if [ "$backend" = emu ]; then
		within doctor 60 $bin/demo doctor --backend emu
	else
		within doctor 60 $bin/demo doctor
	fi
	show topo probe doctor
}
nvidia_says() { # as it is, for topo/testdata and for whoever doubts ours
	local c
	nvidia-smi && nvidia-smi topo -m || return 1
	for c in r w n a p; do
		echo "\$ nvidia-smi topo -p2p $c"
		nvidia-smi topo -p2p $c
	done
	nvidia-smi nvlink -s
	cat /proc/driver/nvidia/version
	return 0 # not every driver knows all of these
}
export -f nvidia_says

section_tests() {
	local p
	for p in $packages; do
		within "test-$(basename "$p")" 240 test_in "$p" -test.v "${emulated[@]}" -test.skip TestRandomCalls
	done
	TEST_CALLS=${CALLS:-100000} within calls 240 test_in allreduce -test.v -test.run TestRandomCalls
	grep -h 'calls,' "$OUT/calls.txt" 2>/dev/null
}

# section_bench takes turns: PyTorch, ours with NCCL, and both again. Ours and NCCL take turns inside each of theirs as well.
section_bench() {
	local compare=() beside=() round nccl
	nccl=$(find_nccl)
	if [ -n "$nccl" ]; then
		compare=(--compare nccl --nccl "$nccl")
	else
		row nccl "skipped: no libnccl.so.2 here, or no GPU" 0
	fi
	for round in 1 2; do
		beside=()
		if [ "$backend" = emu ]; then
			row torch-$round "skipped: these devices are emulated" 0
		else
			# shellcheck disable=SC2086 # several flags
			within torch-$round 150 "$python" scripts/symm_mem_bench.py --ranks "$worlds" $sizes --rounds "$rounds" --timeout 140 --out "$OUT/torch-$round.jsonl" &&
				beside=(--beside "$OUT/torch-$round.jsonl")
			if grep -q '^skipped: PyTorch' "$OUT/torch-$round.txt" 2>/dev/null; then
				row "" "skipped: $(head -n 1 "$OUT/torch-$round.txt" | cut -d ' ' -f 2-)" 0
			fi
		fi
		if [ $round = 1 ]; then
			ours bench-1 --plot "$OUT/latency.svg" "${compare[@]}" "${beside[@]}"
		else
			ours bench-2 --json "${compare[@]}" "${beside[@]}"
		fi
	done
	show torch-1 bench-1 torch-2
}
ours() { # ours NAME FLAGS...
	local name=$1
	shift
	# shellcheck disable=SC2086 # several flags
	within "$name" 240 $bin/demo bench --backend "$backend" --algo all --ranks "$worlds" --share $sizes --rounds "$rounds" "$@"
}
find_nccl() { # the library that the machine's PyTorch brings, or the loader's
	[ "$backend" != emu ] || return
	[ -z "${NCCL:-}" ] || { echo "$NCCL" && return; }
	"$python" - 2>/dev/null <<-'END' || ldconfig -p | awk '/libnccl.so.2 / {print $NF; exit}'
		import importlib.util, os, sys
		for folder in importlib.util.find_spec("nvidia.nccl").submodule_search_locations:
		    lib = os.path.join(folder, "lib", "libnccl.so.2")
		    if os.path.exists(lib):
		        print(lib)
		        sys.exit(0)
		sys.exit(1)
	END
}

section_nccl() {
	local nccl
	nccl=$(find_nccl)
	if [ -z "$nccl" ] || [ "$gpus" -lt 2 ]; then
		row nccl "skipped: $gpus GPU(s), library: ${nccl:-none}" 0
		return
	fi
	NCCL_LIBRARY=$nccl REQUIRE_NCCL=1 within nccl-test 240 test_in allreduce -test.v -test.run TestNCCLOnGPUs
	within nccl-run 120 $bin/demo run --backend "$backend" --algo nccl --nccl "$nccl" --sizes 1KB:16MB
	within nccl-absent 60 stays_away --backend "$backend" --algo nccl --nccl "$nccl" --absent 1 --timeout 4s
	within nccl-bench 150 $bin/demo bench --backend "$backend" --algo auto,nccl --nccl "$nccl" -b 1K -e 16M -f 4
	grep -hE 'nccl_gpu_test|^ *--- ' "$OUT/nccl-test.txt"
	show nccl-run nccl-absent nccl-bench
}
stays_away() { # a rank that stays away is a fault, as demonstrated
	local said
	said=$($bin/demo run "$@")
	printf '%s\n' "$said"
	[[ $said == *"FAULT, as demonstrated"* ]]
}
export -f stays_away

section_tune() {
	# shellcheck disable=SC2086 # several flags
	within tune 240 $bin/demo tune --backend "$backend" --out "$OUT/tuned.json" --ranks "$worlds" --share $sizes &&
		within bench-tuned 120 $bin/demo bench --backend "$backend" --table "$OUT/tuned.json" --ranks "$worlds" --share $sizes --rounds "$rounds"
	show tune bench-tuned
}

section_stress() {
	local long=${STRESS:-5m}
	# shellcheck disable=SC2086 # several flags
	within stress 570 $bin/demo stress --backend "$backend" --duration "$long" --control ${STRESS_FLAGS:-}
	[ ! -f "$OUT/stress.txt" ] || grep -vE '^[^ ].* [0-9]+/[0-9]+ ' "$OUT/stress.txt" # without the lines of the litmus tests
}

show() { # show STEP...: what it printed
	local name
	for name in "$@"; do
		[ ! -f "$OUT/$name.txt" ] || cat "$OUT/$name.txt"
	done
}
pack() { # the few files that are easy to take away; results.tar.gz is always whole
	table >"$OUT/summary.txt"
	tar czf "$share/.results" -C "$OUT" --exclude=./cache . && mv "$share/.results" "$share/results.tar.gz"
	local f
	for f in summary.txt bench-1.txt latency.svg machine.svg tuned.json; do
		[ ! -f "$OUT/$f" ] || cp "$OUT/$f" "$share/"
	done
}
table() {
	echo "--- GPUs and links: $gpus GPU(s), worlds $worlds, $SECONDS s"
	[ ${#rows[@]} = 0 ] || printf '%s\n' "${rows[@]}"
}
finish() {
	pack
	table
}

case "${1:-}" in
build) build ;;
run) shift; run "$*" ;;
*) sed -n '2,18p' "$0"; exit 2 ;;
esac
