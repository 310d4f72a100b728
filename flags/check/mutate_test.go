package check

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/ptx"
	"github.com/fenceline/fenceline/kernels"
)

const mutatePTX = `.version 8.4
.target sm_90
.address_size 64
// .entry comment(
.visible .entry first(.param .u64 arg)
{
	.reg .pred p, q;
	.reg .b32 r<9>;
	.reg .b128 w;
	.reg .b64 d<9>; // st.release.sys.global.u32 [d1], r1;
$L__BB0_1:
	%s
	ret;
}
.visible .entry second(.param .u64 arg)
{
	bar.sync 0;
	ret;
}
`

// mutated are the mutants' instructions, "what → text", of a kernel that holds one.
func mutated(t *testing.T, instruction string, of func(*instruction) []edit) []string {
	t.Helper()
	text := []byte(strings.Replace(mutatePTX, "%s", instruction, 1))
	var list []string
	all := edits("m.ptx", text, scan(text, "first"), of)
	for _, m := range all {
		if m.Line == 13 { // ret
			continue
		}
		require.Equal(t, 12, m.Line)
		rows := strings.Split(string(m.PTX), "\n")
		require.Len(t, rows, strings.Count(string(text), "\n")+1)
		list = append(list, m.What+": "+strings.TrimSpace(rows[11]))
		_, err := ptx.Parse("m.ptx", m.PTX)
		require.NoError(t, err, rows[11])
	}
	return list
}

func TestWeaken(t *testing.T) {
	for in, want := range map[string][]string{
		"ld.acquire.sys.global.u32 r1, [d1];": {"relaxed: ld.relaxed.sys.global.u32 r1, [d1];", "weak: ld.global.u32 r1, [d1];",
			".cta: ld.acquire.cta.global.u32 r1, [d1];", ".gpu: ld.acquire.gpu.global.u32 r1, [d1];"},
		"@p st.release.gpu.global.u32 [d1+8], r1;": {"relaxed: @p st.relaxed.gpu.global.u32 [d1+8], r1;", "weak: @p st.global.u32 [d1+8], r1;",
			".cta: @p st.release.cta.global.u32 [d1+8], r1;"},
		"st.relaxed.sys.global.b128 [d1+16], w;": {"weak: st.global.b128 [d1+16], w;", ".cta: st.relaxed.cta.global.b128 [d1+16], w;", ".gpu: st.relaxed.gpu.global.b128 [d1+16], w;",
			"split into .v2.b64: { .reg .b64 split_l, split_h; mov.b128 {split_l, split_h}, w; st.relaxed.sys.global.v2.b64 [d1+16], {split_l, split_h}; }"},
		"@!p ld.acquire.gpu.global.b128 w, [d1];": {"relaxed: @!p ld.relaxed.gpu.global.b128 w, [d1];", "weak: @!p ld.global.b128 w, [d1];", ".cta: @!p ld.acquire.cta.global.b128 w, [d1];",
			"split into .v2.b64: { .reg .b64 split_l, split_h; @!p ld.acquire.gpu.global.v2.b64 {split_l, split_h}, [d1]; @!p mov.b128 w, {split_l, split_h}; }"},
		"ld.volatile.global.b128 w, [d1+4096];": {"weak: ld.global.b128 w, [d1+4096];",
			"split into .v2.b64: { .reg .b64 split_l, split_h; ld.volatile.global.v2.b64 {split_l, split_h}, [d1+4096]; mov.b128 w, {split_l, split_h}; }",
			"folded on the first slots: ld.volatile.global.b128 w, [d1+0];"},
		"ld.global.b128 w, [d1];":          nil,
		"ld.volatile.global.u32 r1, [d1];": {"weak: ld.global.u32 r1, [d1];"},
		"ld.param.u64 d1, [arg];":          nil,
		"ld.global.v2.u32 {r1, r2}, [d1];": nil,
		"@!p atom.acq_rel.gpu.global.add.u32 r1, [d1], 1;": {"relaxed: @!p atom.relaxed.gpu.global.add.u32 r1, [d1], 1;",
			".cta: @!p atom.acq_rel.cta.global.add.u32 r1, [d1], 1;"},
		"red.global.add.u32 [d1], 1;":      {".cta: red.cta.global.add.u32 [d1], 1;"},
		"fence.sc.sys;":                    {"dropped: ", "acq_rel: fence.acq_rel.sys;", ".cta: fence.sc.cta;", ".gpu: fence.sc.gpu;"},
		"membar.sys;":                      {"dropped: ", ".gl: membar.gl;", ".cta: membar.cta;"},
		"@p bar.sync 1, 64;":               {"dropped: ", "bar.warp.sync: @p bar.warp.sync 0xffffffff;"},
		"bar.warp.sync 0xffffffff;":        {"dropped: "},
		"bar.red.or.pred q, 0, p;":         {"dropped: and.pred q, p, p;", "bar.warp.sync: bar.warp.sync 0xffffffff; vote.sync.any.pred q, p, 0xffffffff;"},
		"bar.red.and.pred q, 0, !p;":       {"dropped: not.pred q, p;", "bar.warp.sync: bar.warp.sync 0xffffffff; vote.sync.all.pred q, !p, 0xffffffff;"},
		"griddepcontrol.wait;":             {"dropped: "},
		"st.global.u32 [d1+4100], r1;":     {"folded on the first slots: st.global.u32 [d1+4], r1;"},
		"add.s32 r1, r2, 4096;":            {"folded on the first slots: add.s32 r1, r2, 0;"},
		"add.s64 d1, d2, 8192;":            nil,
		"selp.b64 d1, 0, d2, p;":           {"always the first half: selp.b64 d1, 0, 0, p;"},
		"@q selp.b64 d1, d2, 0, p;":        {"always the first half: @q selp.b64 d1, 0, 0, p;"},
		"selp.b64 d1, d2, d3, p;":          nil,
		"selp.b32 r1, 0, r2, p;":           nil,
		"add.s32 r1, r2, 4097;":            nil,
		"mov.u32 r1, 4096;":                nil,
		"{ .reg .b32 k; mov.u32 k, 1; }":   nil,
		"bra.uni $L__BB0_1; fence.sc.cta;": {"dropped: bra.uni $L__BB0_1;", "acq_rel: bra.uni $L__BB0_1; fence.acq_rel.cta;"},
	} {
		got := mutated(t, in, weaken)
		if want == nil {
			require.Empty(t, got, in)
			continue
		}
		require.Equal(t, want, got, in)
	}
}

// One mutant has all .b128 accesses in halves, and nothing else changed.
func TestSplitAll(t *testing.T) {
	at := func(text string) []Mutant {
		return splitAll("m.ptx", []byte(text), scan([]byte(text), "first"))
	}
	text := strings.Replace(mutatePTX, "%s", "st.relaxed.sys.global.b128 [d1], w;\n\t{ ld.global.b128 w, [d1];\n\t@p ld.volatile.global.b128\n\t\tw, [d2]; }\n\tst.relaxed.sys.global.u32 [d1], r1;", 1)
	all := at(text)
	require.Len(t, all, 1)
	require.Equal(t, [3]any{12, "st.relaxed.sys.global.b128 [d1], w;", "all .b128 split into .v2.b64"}, [3]any{all[0].Line, all[0].Text, all[0].What})
	_, err := ptx.Parse("m.ptx", all[0].PTX)
	require.NoError(t, err)
	was, is := strings.Split(text, "\n"), strings.Split(string(all[0].PTX), "\n")
	require.Len(t, is, len(was))
	var changed []int
	for i := range was {
		if was[i] != is[i] {
			changed = append(changed, i+1)
		}
	}
	require.Equal(t, []int{12, 14, 15}, changed, "the second access is on two lines")
	require.Equal(t, 2, strings.Count(string(all[0].PTX), ".v2.b64"))
	require.Equal(t, all[0], Mutants("m.ptx", []byte(text), "first")[len(Mutants("m.ptx", []byte(text), "first"))-1])
	require.Empty(t, at(strings.Replace(mutatePTX, "%s", "st.relaxed.sys.global.b128 [d1], w;", 1)), "one alone is split already")
	require.Empty(t, at(strings.Replace(mutatePTX, "%s", "st.global.b128 [d1], w; ld.global.b128 w, [d1];", 1)))
}

func TestStrengthen(t *testing.T) {
	got := mutated(t, "st.relaxed.gpu.global.u32 [d1], r1;", strengthen)
	require.Equal(t, "`st.relaxed.gpu.global.u32` → `st.relaxed.sys.global.u32`: st.relaxed.sys.global.u32 [d1], r1;", got[0])
	require.Contains(t, got, "`st.relaxed.gpu.global.u32` → `st.release.sys.global.u32`: st.release.sys.global.u32 [d1], r1;")
	require.Contains(t, got, "`fence.acq_rel.sys` before `st.relaxed.gpu.global.u32`: fence.acq_rel.sys; st.relaxed.gpu.global.u32 [d1], r1;")
	got = mutated(t, "ld.global.u32 r1, [d1];", strengthen)
	require.Contains(t, got, "`ld.global.u32` → `ld.acquire.sys.global.u32`: ld.acquire.sys.global.u32 r1, [d1];")
	require.Contains(t, got, "`bar.sync 0` after `ld.global.u32`: ld.global.u32 r1, [d1]; bar.sync 0;")
	require.Equal(t, []string{"`fence.acq_rel.gpu` → `fence.acq_rel.sys`: fence.acq_rel.sys;", "`fence.acq_rel.gpu` → `fence.sc.gpu`: fence.sc.gpu;",
		"`fence.acq_rel.gpu` → `fence.sc.sys`: fence.sc.sys;"}, mutated(t, "fence.acq_rel.gpu;", strengthen))
	require.Equal(t, []string{"`bar.warp.sync` → `bar.sync 0`: bar.sync 0;"}, mutated(t, "bar.warp.sync -1;", strengthen))
	require.Empty(t, mutated(t, "add.s32 r1, r1, 1;", strengthen))
}

func TestScanEntries(t *testing.T) {
	text := []byte(strings.Replace(mutatePTX, "%s", "mov.u32 r1, 1; /* } */ bar.sync 0;", 1))
	require.Len(t, entries(text), 2)
	require.Len(t, Mutants("m.ptx", text, "first"), 2)
	require.Len(t, Mutants("m.ptx", text, "second"), 2)
	require.Len(t, Mutants("m.ptx", text, ""), 4)
	require.Empty(t, Mutants("m.ptx", text, "third"))
	small := Isolate(text, []string{"second"})
	require.Equal(t, strings.Count(string(text), "\n"), strings.Count(string(small), "\n"))
	require.Empty(t, Mutants("m.ptx", small, "first"))
	require.Equal(t, 17, Mutants("m.ptx", small, "second")[0].Line)
	require.Len(t, Stronger("m.ptx", text, 12), 0)
}

// Every mutant of the shipped kernels is PTX, on as many lines as before.
func TestShippedMutants(t *testing.T) {
	m, err := kernels.Load()
	require.NoError(t, err)
	mod := &m.Modules[2]
	require.Equal(t, "oneshot_pull.sm_90.ptx", mod.File)
	text, err := mod.Text()
	require.NoError(t, err)
	const entry = "allreduce_oneshot_pull_bf16"
	small := Isolate(text, []string{entry})
	all := Mutants(mod.File, small, entry)
	require.Greater(t, len(all), 400)
	for i := 0; i < len(all); i += 29 {
		_, err := ptx.Parse(mod.File, all[i].PTX)
		require.NoError(t, err, all[i].String())
		require.Equal(t, strings.Count(string(text), "\n"), strings.Count(string(all[i].PTX), "\n"))
		require.Contains(t, strings.Split(string(text), "\n")[all[i].Line-1], strings.Fields(all[i].Text)[0])
	}
}

func TestParseRedundancies(t *testing.T) {
	list, err := ParseRedundancies("r.txt", "# comment\n\nk | st.relaxed | weak | | because\n")
	require.NoError(t, err)
	require.Equal(t, []Redundancy{{"k", "st.relaxed", "weak", "", "because"}}, list)
	_, err = ParseRedundancies("r.txt", "k | st | weak | x")
	require.ErrorContains(t, err, "r.txt:1: want `kernel |")
	text, err := kernels.Redundant()
	require.NoError(t, err)
	_, err = ParseRedundancies("redundant.txt", string(text))
	require.NoError(t, err)
}

// Directives for debuggers stand on lines of their own and hide nothing behind them.
func TestMutantsBehindLines(t *testing.T) {
	text := ".version 7.8\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n.reg .b64 a;\n.file 1 \"k.cu\"\n.loc 1 3 0\nld.param.u64 a, [p];\n" +
		"\t.loc\t1 4 5 // k.cu:4:5\n\tst.release.gpu.global.u32 [a], 1;\n.loc 1 5 5, function_name L, inlined_at 1 9 2\nfence.acq_rel.sys;\nret;\n}\n"
	lines := map[int]bool{}
	for _, m := range Mutants("k.ptx", []byte(text), "k") {
		lines[m.Line] = true
	}
	require.Equal(t, map[int]bool{11: true, 13: true}, lines)
}
