#!/usr/bin/env bash
# Clang's PTX of the kernels, which is shipped, against nvcc's of the same sources: two programs that differ in their PTX alone, by turns on one GPU.
# The machine with the GPU needs no Go and no nvcc: build the programs elsewhere first.
#
#   scripts/gpu-compilers.sh build  both programs into bin/compilers, and bin/compilers.tar.gz, which is enough there (needs Go and NVCC, nvcc, no newer than the driver)
#   scripts/gpu-compilers.sh run    times them where the GPU is; the table goes to $OUT/compilers.txt too
#
# RANKS (2,4,8), ALGOS, SIZES (-b 8K -e 1M -f 2) and TURNS (2) say what is timed, LIMIT (120) how many seconds a turn of one program may take.
set -uo pipefail
cd "$(dirname "$0")/.."
out=bin/compilers

build() {
	set -e
	rm -rf $out
	mkdir -p $out
	local source sm=90 replace=()
	for source in kernels/*.cu; do
		source=$(basename "$source" .cu)
		(cd kernels && "${NVCC:-nvcc}" -std=c++20 -ptx -arch=compute_$sm "$source.cu" -o "../$out/$source.ptx")
		replace+=("\"$PWD/kernels/ptx/$source.sm_$sm.ptx\": \"$PWD/$out/$source.ptx\"")
	done
	(IFS=,; echo "{\"Replace\": {${replace[*]}}}") >$out/overlay.json
	export CGO_CFLAGS="${CGO_CFLAGS:--O2 -g -Wno-deprecated-declarations}"
	go build -ldflags '-s -w' -o $out/clang ./cmd/demo
	go build -ldflags '-s -w' -overlay $out/overlay.json -o $out/nvcc ./cmd/demo
	{
		echo "commit $(git describe --always --dirty --abbrev=12)"
		sed -n 's/.*"compiler": "\(.*\)",/\1/p' kernels/ptx/manifest.json
		"${NVCC:-nvcc}" --version | sed -n 's/.*release/nvcc/p'
	} | paste -sd';' >$out/built.txt
	cat $out/built.txt
	tar czf $out.tar.gz -C bin compilers/clang compilers/nvcc compilers/built.txt
}

run() {
	local turn name
	[ ! $out.tar.gz -nt $out/built.txt ] || tar xzmf $out.tar.gz -C bin || return 2
	[ -x $out/nvcc ] || { echo "no programs in $out: run $0 build first" >&2; return 2; }
	OUT=${OUT:-$PWD/$out}
	mkdir -p "$OUT" || return 2
	for turn in $(seq "${TURNS:-2}"); do
		for name in clang nvcc; do
			# shellcheck disable=SC2086
			timeout -k 5 "${LIMIT:-120}" $out/$name bench --json --floor=false --ranks "${RANKS:-2,4,8}" --share --rounds 1 ${SIZES:--b 8K -e 1M -f 2} \
				--algo "${ALGOS:-oneshot-pull,oneshot-push,oneshot-wide,twoshot-pull,twoshot-push,twoshot-wide}" >"$OUT/$name.$turn.json" ||
				{ echo "$name, turn $turn: exit status $?" >&2; tail -n 5 "$OUT/$name.$turn.json" >&2; return 1; }
		done
	done
	python3 - "$OUT" "${TURNS:-2}" <<'PY' | tee "$OUT/compilers.txt"
import json, statistics, sys
from collections import defaultdict
times, worst = defaultdict(list), []
for turn in range(1, int(sys.argv[2]) + 1):
    for name in "clang", "nvcc":
        with open(f"{sys.argv[1]}/{name}.{turn}.json") as f:
            run = json.load(f)
        if not run["ok"]:
            sys.exit(f"{name}, turn {turn}: wrong elements")
        for r in run["results"]:
            times[r["ranks"], r["name"], r["bytes"], f'{r["plan"]["blocks"]}x{r["plan"]["threads"]}', name].append(r["out_of_place"]["p50_us"])
print(open("bin/compilers/built.txt").read().strip(), run["devices"][0]["name"], sep="; ")
print("us of one call, out of place, bf16, median of each turn. Ratio: nvcc's median over clang's.\n")
n = 7 * int(sys.argv[2])
print(f'{"ranks":>5} {"algorithm":>13} {"bytes":>8} {"grid":>7} {"clang":>{n}} {"nvcc":>{n}}   ratio')
for key in sorted({k[:4] for k in times}, key=lambda k: (k[0], k[1], k[2])):
    c, v = times[*key, "clang"], times[*key, "nvcc"]
    ratio = statistics.median(v) / statistics.median(c)
    worst.append((ratio, key))
    cells = ["".join(f"{t:7.2f}" for t in each) for each in (c, v)]
    print(f"{key[0]:5} {key[1]:>13} {key[2]:8} {key[3]:>7} {cells[0]:>{n}} {cells[1]:>{n}}   {ratio:.3f}")
print(f"\n{len(worst)} cells; nvcc's is faster by more than 3 % in {sum(r < 0.97 for r, _ in worst)}, slower by more than 3 % in {sum(r > 1.03 for r, _ in worst)}, median ratio",
      f"{statistics.median(r for r, _ in worst):.3f}")
PY
}

case "${1:-}" in
build) build ;;
run) run ;;
*) sed -n '2,9p' "$0"; exit 2 ;;
esac
