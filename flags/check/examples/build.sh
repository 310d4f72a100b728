#!/bin/sh
# Builds the PTX of every example; .loc directives stay in, so that reports name the lines of the sources.
set -eu
cd "$(dirname "$0")"
out=${1:-.}
for src in *.cu; do
	${CLANG:-clang-19} -x cuda --cuda-device-only -nocudainc -nocudalib -std=c++20 -O3 -Wall -Werror -Wno-unknown-cuda-version \
		--cuda-gpu-arch=sm_70 -Xclang -target-feature -Xclang +ptx70 -gline-directives-only -fdebug-prefix-map="$PWD"=. \
		-I ../../../kernels -S "$src" -o - | grep -v '\.debug_loc' >"$out/${src%.cu}.ptx"
done
