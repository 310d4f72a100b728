package stress

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/ptx"
	"github.com/fenceline/fenceline/kernels"
)

// assemble runs NVIDIA's assembler, where there is one.
func assemble(t *testing.T, arch string, text []byte) {
	t.Helper()
	ptxas, err := exec.LookPath("ptxas")
	if err != nil {
		t.Log("no ptxas in PATH: only our own parser has read it")
		return
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "a.ptx")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	out, err := exec.Command(ptxas, "-arch="+arch, "-o", filepath.Join(dir, "a.cubin"), file).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Every shipped kernel can be patched in every way, and stays PTX.
func TestPatchShipped(t *testing.T) {
	m, err := kernels.Load()
	require.NoError(t, err)
	for _, mod := range m.Modules {
		t.Run(mod.File, func(t *testing.T) {
			src, err := mod.Text()
			require.NoError(t, err)
			local := mod.Source == "reduce_local"
			out, n, err := Delays{Seed: 7, OneIn: 4, MaxNS: 1000}.Patch(mod.File, src)
			require.NoError(t, err)
			require.Equal(t, local, n == 0)
			require.Equal(t, n, strings.Count(string(out), "nanosleep"))
			assemble(t, "sm_90", out)
			for _, w := range Weakenings() {
				weak, changed, err := w.Patch(mod.File, src)
				require.NoError(t, err)
				if mod.Source == "oneshot_pull" {
					require.NotZero(t, changed, w)
				}
				both, _, err := Delays{}.Patch(mod.File, weak)
				require.NoError(t, err)
				if w == NoFence {
					require.NotContains(t, strings.ReplaceAll(string(weak), "// left out: fence", ""), "fence.")
					assemble(t, "sm_90", both)
				}
			}
		})
	}
}

const head = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n\t.reg .pred %p<3>;\n\t.reg .b32 %r<9>;\n\t.reg .b64 %rd<5>;\n"

func body(s string) []byte { return []byte(head + s + "\n\tret;\n}\n") }

func TestDelayPlaces(t *testing.T) {
	src := body(`	ld.param.u64 %rd1, [p];
	ld.global.u32 %r1, [%rd1];
	setp.eq.u32 %p1, %r1, 0;
$L: ld.acquire.sys.global.u32 %r2, [%rd1]; // a label ahead
	@%p1 st.relaxed.gpu.global.u32 [%rd1], %r2;
	{
	.reg .pred q;
	setp.eq.u32 q, %r1, 1;
	@!q bra $L;
	bar.red.or.pred q, 0, q;
	}
	atom.global.add.u32 %r3, [%rd1], 1;
	fence.acq_rel.sys;
	bar.sync 0;`)
	out, n, err := Delays{}.Patch("k.ptx", src)
	require.NoError(t, err)
	require.Equal(t, 6, n)
	lines := strings.Split(string(out), "\n")
	for i, l := range lines {
		if strings.Contains(l, "ld.global.u32") {
			require.NotEqual(t, "\t}", lines[i-1], "weak accesses are left alone")
		}
		if l == "$L:" {
			require.Equal(t, "\t{", lines[i+1], "a jump to the label meets the pause")
		}
	}
	again, _, err := Delays{}.Patch("k.ptx", src)
	require.NoError(t, err)
	require.Equal(t, out, again)
	other, _, err := Delays{Seed: 1}.Patch("k.ptx", src)
	require.NoError(t, err)
	require.NotEqual(t, out, other)
	assemble(t, "sm_90", out)
}

func TestMask(t *testing.T) {
	for _, c := range []struct{ v, want uint32 }{{0, 7}, {1, 0}, {2, 1}, {3, 3}, {8, 7}, {9, 15}, {1 << 30, 1023}} {
		require.Equal(t, c.want, mask(c.v, 8, 1024), c.v)
	}
}

func TestWeaken(t *testing.T) {
	src := body(`	ld.param.u64 %rd1, [p];
	setp.eq.u64 %p1, %rd1, 0;
	ld.acquire.sys.global.u32 %r2, [%rd1];
	@%p1 st.release.gpu.global.u32 [%rd1], %r2;
	@%p1 fence.sc.sys;
	membar.gl;
	bar.warp.sync -1;
	bar.sync 0;
	barrier.sync 1;`)
	for w, want := range map[Weakening][]string{
		NoFence:   {"// left out: @%p1 fence.sc.sys;", "// left out: membar.gl;"},
		NoAcquire: {"ld.relaxed.sys.global.u32 %r2, [%rd1];", "@%p1 st.relaxed.gpu.global.u32 [%rd1], %r2;"},
		NoBarrier: {"// left out: bar.sync 0;", "// left out: barrier.sync 1;"},
	} {
		out, n, err := w.Patch("k.ptx", src)
		require.NoError(t, err)
		require.Equal(t, 2, n, w)
		var changed []string
		old := strings.Split(string(src), "\n")
		for i, l := range strings.Split(string(out), "\n") {
			if l != old[i] {
				changed = append(changed, strings.TrimSpace(l))
			}
		}
		require.Equal(t, want, changed)
		assemble(t, "sm_90", out)
	}
}

// What is not understood is refused, with its place.
func TestPatchRefuses(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"two on a line", string(body("\tfence.acq_rel.sys; bar.sync 0;")), "k.ptx:9: several instructions on one line"},
		{"block comment", string(body("\t/* x */ bar.sync 0;")), "k.ptx:9: comments of this kind"},
		{"over two lines", string(body("\tatom.global.add.u32 %r1,\n [%rd1], 1;")), "k.ptx:9: this instruction does not end on its line"},
		{"scope on one line", string(body("\t{ bar.sync 0; }")), "k.ptx:9: this is no instruction"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Delays{}.Patch("k.ptx", []byte(c.src))
			var e *PatchError
			require.True(t, errors.As(err, &e), "%v", err)
			require.ErrorContains(t, err, c.want)
			_, _, err = NoFence.Patch("k.ptx", []byte(c.src))
			require.ErrorContains(t, err, c.want)
		})
	}
	_, _, err := Delays{}.Patch("k.ptx", body("\tmultimem.red.relaxed.sys.global.add.u32 [%rd1], %r1;"))
	var unknown *ptx.Error
	require.ErrorAs(t, err, &unknown)
	require.ErrorContains(t, err, "k.ptx:9")
	_, _, err = Delays{}.Patch("k.ptx", []byte(strings.ReplaceAll(strings.ReplaceAll(string(body("\tbar.sync 0;")), "sm_90", "sm_60"), "7.8", "6.0")))
	require.ErrorContains(t, err, "pauses need sm_70")
}
