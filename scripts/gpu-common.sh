# shellcheck shell=bash
# What gpu-check.sh, gpu-links.sh and gpu-virtual.sh share. They source it in the repository's root; it does nothing by itself.
export bin=bin/gpu
packages="internal/cuda launcher topo/nvml topo/probe allreduce examples/addpeer"
# A multicast object can put the GPUs of a host out of service: nothing here may make one.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
status=0
declare -a rows # the lines of the table

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
	git describe --always --dirty --abbrev=12 >$bin/commit.txt 2>/dev/null || echo unknown >$bin/commit.txt
	tar czf $bin.tar.gz -C "$(dirname $bin)" "$(basename $bin)"
	ls -la $bin $bin.tar.gz
}

ready() { # ready SECTIONS KNOWN: there are binaries, and each section is known
	local section
	for section in $1; do
		case " $2 " in
		*" $section "*) ;;
		*) echo "unknown section \"$section\": use $2" >&2; return 2 ;;
		esac
	done
	if [ $bin.tar.gz -nt $bin ]; then
		tar xzmf $bin.tar.gz -C "$(dirname $bin)" || return 2 # only the archive was brought here, or a newer one
	fi
	[ -x $bin/allreduce.test ] || { echo "no binaries in $bin: run $0 build first" >&2; return 2; }
}

budget=${BUDGET:-590} # seconds that a run may take, for within_budget
limit=0 # seconds that a step may take; 0: as long as it likes
step() { # step NAME COMMAND...: runs it, keeps its output in $OUT/NAME.txt, remembers how it went
	local name=$1 start=$SECONDS code
	shift
	if [ "$limit" -gt 0 ]; then # its own bash, for COMMAND may be one of our functions
		timeout -k 10 "$limit" bash -c '"$@"' step "$@" >"$OUT/$name.txt" 2>&1
	else
		"$@" >"$OUT/$name.txt" 2>&1
	fi
	code=$?
	case $code in
	0) row "$name" ok $((SECONDS - start)) && return ;;
	124 | 137) row "$name" "FAIL: stopped after $limit s" $((SECONDS - start)) ;;
	*) row "$name" "FAIL: exit status $code" $((SECONDS - start)) ;;
	esac
	export status=1
	tail -n 40 "$OUT/$name.txt"
	return 1
}
within_budget() { # within_budget NAME SECONDS COMMAND...: a step that may take so long, and no longer than what is left of $budget
	local name=$1 most=$2 left=$((budget - SECONDS - 10))
	shift 2
	if [ $left -lt 10 ]; then
		row "$name" "FAIL: not run, the $budget s are over" 0
		export status=1
		return 1
	fi
	limit=$((most < left ? most : left))
	step "$name" "$@"
}
row() { # row NAME OUTCOME SECONDS
	rows+=("$(printf '%-20s %4s s  %s' "$1" "$3" "$2")")
}
test_in() { # test_in PACKAGE FLAGS...: its test binary, in its folder, as go test would
	local package=$1 root=$PWD
	shift
	(cd "$package" && REQUIRE_GPU=${REQUIRE_GPU-1} "$root/$bin/$(basename "$package").test" -test.timeout 9m "$@")
}
changed() { # a baseline of another machine must not match
	[ -s "$OUT/baseline.json" ] || return 1
	sed 's/"sms": *[0-9]*/"sms": 7/' "$OUT/baseline.json" >"$OUT/other.json"
	$bin/demo topo "$@" --check "$OUT/other.json"
	[ $? -eq 1 ]
}
export -f test_in changed
