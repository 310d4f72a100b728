#!/usr/bin/env bash
# Keeps what is worth it of runs of scripts/gpu-links.sh in docs/results/<machine>-<n>gpu, as it was printed.
#
#   scripts/keep-results.sh OUT…   the folders that the runs left, each with its results.tar.gz; a later one wins
#
# INTO (docs/results) is where the folder goes. An older one of the same machine is replaced.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,6p' "$0"; exit 2; }
into=${INTO:-$(dirname "$0")/../docs/results}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/all" "$work/kept"
runs=0
for out in "$@"; do
	[ -f "$out/results.tar.gz" ] || { echo "no results.tar.gz in $out: give a folder that scripts/gpu-links.sh run left" >&2; exit 2; }
	runs=$((runs + 1))
	mkdir "$work/$runs"
	tar xzf "$out/results.tar.gz" -C "$work/$runs"
	grep -q '^gpus: .* sections: ' "$work/$runs/machine.txt" || { echo "$out is not of scripts/gpu-links.sh: docs/results/README.md says how other results are kept" >&2; exit 2; }
	cp -r "$work/$runs/." "$work/all"
done

# One machine: the names of its GPUs and the driver must be the same in all runs.
gpus() { sed -nE 's/^((NVIDIA|Tesla|GeForce|Quadro) [^,]*), ([^,]*),.*/\1, \3/p' "$1/machine.txt"; }
machine=$(gpus "$work/1")
[ -n "$machine" ] || { echo "machine.txt of $1 names no GPU: results of emulated devices are not kept" >&2; exit 1; }
for ((i = 2; i <= runs; i++)); do
	[ "$(gpus "$work/$i")" = "$machine" ] || { echo "run $i was made on another machine or driver than the first" >&2; exit 1; }
done
count=$(wc -l <<<"$machine")
name=$(head -n 1 <<<"$machine" | sed -E 's/^NVIDIA //; s/,.*//' | tr 'A-Z ' 'a-z-')
folder=$into/$name-${count}gpu

keep() { # keep FILE [AS]
	[ ! -s "$work/all/$1" ] || cp "$work/all/$1" "$work/kept/${2:-$1}"
}
for f in topo.txt machine.svg nvidia-smi.txt probe.txt baseline.json doctor.txt latency.svg torch-1.jsonl torch-2.jsonl tuned.json tune.txt bench-tuned.txt; do
	keep $f
done
keep topo-json.txt topo.json
keep probe-json.txt probe.json
keep bench-1.txt bench.txt
keep bench-2.txt bench.json
for f in topo.json probe.json bench.json; do # of a step that failed, it may be none
	[ ! -f "$work/kept/$f" ] || python3 -m json.tool "$work/kept/$f" /dev/null 2>/dev/null || rm "$work/kept/$f"
done
[ ! -f "$work/all/stress.txt" ] || grep -vE '^[^ ].* [0-9]+/[0-9]+ |^.* not run: ' "$work/all/stress.txt" >"$work/kept/stress.txt" || true
[ ! -f "$work/all/calls.txt" ] || grep -E 'calls,|^(---|PASS|FAIL|ok)' "$work/all/calls.txt" >"$work/kept/calls.txt" || true
{
	echo "# $count × $(head -n 1 <<<"$machine" | sed 's/, /, driver /')"
	echo
	echo "As \`scripts/gpu-links.sh run\` printed it; [../README.md](../README.md) says what each file is."
	for ((i = 1; i <= runs; i++)); do
		printf '\n## Run %d\n\n```\n' "$i"
		cat "$work/$i/machine.txt" "$work/$i/summary.txt"
		echo '```'
	done
} >"$work/kept/README.md"
big=$(find "$work/kept" -size +1024k -printf '%f ')
[ -z "$big" ] || { echo "more than 1 MiB, not kept: $big" >&2; find "$work/kept" -size +1024k -delete; }
rm -rf "$folder"
mkdir -p "$into"
mv "$work/kept" "$folder"
ls -la "$folder"
