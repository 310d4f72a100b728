package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/kernels"
)

func TestStripLines(t *testing.T) {
	marked := `.version 7.0
.visible .entry f()
{
	.file	1 "/somewhere/kernels/f.cu"
	.loc	1 7 0                         // f.cu:7:0
$L__func_begin0:
	.loc	1 7 0                         // f.cu:7:0
// %bb.0:
	mov.u32 	%r1, 0;
$L__tmp0:
	.loc	2 9 3                         // ./g.cuh:9:3
	st.global.u32 	[%rd1], %r1;
	.loc	1 0 0
	add.s32 	%r1, %r1, 1;
	ret;
$L__tmp1:
$L__func_end0:
}
	// done
	.file	2 "/somewhere/kernels/g.cuh"
	.section	.debug_loc	{	}
`
	plain, runs, err := stripLines([]byte(marked), nil)
	require.NoError(t, err)
	require.Equal(t, `.version 7.0
.visible .entry f()
{
// %bb.0:
	mov.u32 	%r1, 0;
	st.global.u32 	[%rd1], %r1;
	add.s32 	%r1, %r1, 1;
	ret;
}
	// done
`, string(plain))
	require.Equal(t, []kernels.LineRun{{Count: 3}, {Count: 2, Source: "f.cu", Line: 7}, {Count: 1, Source: "g.cuh", Line: 9}, {Count: 4}}, runs)

	_, _, err = stripLines([]byte("\t.loc\t4 9 3\n\tret;\n"), nil)
	require.ErrorContains(t, err, "file 4, which is not declared")
}
