package check

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// inlinedPTX is a store that was inlined twice, as nvcc writes it: each call has a directive ahead of what was inlined there.
const inlinedPTX = `.version 8.3
.target sm_90
.address_size 64
.file	1 "/home/me/k.cu"
.file	2 "/home/me/post.cuh"
.visible .entry k(.param .u64 a)
{
	.reg .b64 x;
	.loc	1 10 1
	ld.param.u64 x, [a];
	.loc	1 12 5
	.loc	2 7 3, function_name $L__info_string0, inlined_at 1 12 5
	.loc	2 3 9, function_name $L__info_string1 + 4, inlined_at 2 7 3
	st.global.u32 [x], 1;
	.loc	2 4 9 , function_name $L__info_string1, inlined_at 2 7 3
	st.global.u32 [x+4], 1;
	.loc	2 7 3, function_name $L__info_string0, inlined_at 1 12 5
	st.global.u32 [x+8], 1;
	.loc	1 0 5
	st.global.u32 [x+12], 1;
	.loc	2 9 9, function_name $L__info_string1, inlined_at 9 7 3
	st.global.u32 [x+16], 1;
	.loc	1 13 1
	ret;
}
`

func TestLinesOf(t *testing.T) {
	lines, calls := LinesOf("k.ptx", []byte(inlinedPTX))
	for ptxLine, want := range map[int]struct {
		source string
		line   int
		calls  []string
	}{
		8:  {},
		10: {"k.cu", 10, nil},
		14: {"post.cuh", 3, []string{"post.cuh:7", "k.cu:12"}},
		16: {"post.cuh", 4, []string{"post.cuh:7", "k.cu:12"}},
		18: {"post.cuh", 7, []string{"k.cu:12"}},
		20: {},
		22: {"post.cuh", 9, nil}, // called from a file that has no name
		24: {"k.cu", 13, nil},
	} {
		source, line, ok := lines("k.ptx", ptxLine)
		require.Equal(t, want.source != "", ok, ptxLine)
		require.Equal(t, want.source, source, ptxLine)
		require.Equal(t, want.line, line, ptxLine)
		require.Equal(t, want.calls, calls("k.ptx", ptxLine), ptxLine)
	}
	_, _, ok := lines("other.ptx", 14)
	require.False(t, ok)
	require.Empty(t, calls("other.ptx", 14))
	lines, calls = LinesOf("k.ptx", []byte(".version 8.3\n"))
	require.Nil(t, lines)
	require.Nil(t, calls)
}

// nvcc's own output reads.
func TestLinesOfNVCC(t *testing.T) {
	text, err := os.ReadFile("../../internal/ptx/testdata/features/nvcc.sm_90.ptx")
	require.NoError(t, err)
	lines, calls := LinesOf("n.ptx", text)
	source, line, ok := lines("n.ptx", 124)
	require.True(t, ok)
	require.Equal(t, "features.cu", source)
	require.Equal(t, 18, line)
	require.Equal(t, []string{"features.cu:76"}, calls("n.ptx", 124))
}

// Findings name the calls, and faults their source.
func TestFindingNamesCalls(t *testing.T) {
	p := specced(t, inlinedPTX[len(".version 8.3\n.target sm_90\n.address_size 64\n"):], "world 2\nbuffer b size 20 on 0\narg 0 ptr b\nlaunch k grid 1 block 1")
	p.Lines, p.Calls = LinesOf("k.ptx", []byte(inlinedPTX))
	f := faulty(t, p, Race, "nothing orders")
	require.Equal(t, []string{"post.cuh:7", "k.cu:12"}, f.A.Calls)
	require.Contains(t, f.String(), "(post.cuh:3, inlined at post.cuh:7, inlined at k.cu:12)")

	p = specced(t, inlinedPTX[len(".version 8.3\n.target sm_90\n.address_size 64\n"):], "buffer b size 4 on 0\narg 0 ptr b\nlaunch k grid 1 block 1")
	p.Lines, p.Calls = LinesOf("k.ptx", []byte(inlinedPTX))
	f = faulty(t, p, Faulted, "no buffer holds")
	require.Contains(t, f.B.String(), "(post.cuh:4, inlined at post.cuh:7, inlined at k.cu:12)")
}
