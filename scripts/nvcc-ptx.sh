#!/usr/bin/env bash
# Rebuilds nvcc's PTX of the kernels, which the interpreter's tests run (internal/ptx/testdata/nvcc). Needs nvcc 13 (NVCC) and Go.
set -euo pipefail
cd "$(dirname "$0")/../kernels"
out=../internal/ptx/testdata/nvcc
for source in oneshot_pull reduce_local; do
	for sm in 75 90; do
		"${NVCC:-nvcc}" -std=c++20 -ptx -arch=compute_$sm $source.cu -o $out/$source.sm_$sm.ptx
	done
done
cd .. && go test ./kernels -run TestNVCCData -update
