package kernels

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every PTX file has a map of its lines, as long as it is, and every line that the map names exists.
func TestLines(t *testing.T) {
	m, err := Load()
	require.NoError(t, err)
	lengths := map[string]int{}
	for _, mod := range m.Modules {
		text, err := mod.Text()
		require.NoError(t, err)
		packed, err := lineFiles.ReadFile("ptx/" + LinesFile(mod.File))
		require.NoError(t, err, "run `make ptx`")
		runs, err := ParseLines(packed)
		require.NoError(t, err)
		again, err := FormatLines(runs)
		require.NoError(t, err)
		require.Equal(t, string(packed), string(again))
		total := 0
		for _, r := range runs {
			total += r.Count
			if r.Source == "" {
				continue
			}
			if lengths[r.Source] == 0 {
				source, err := Source(r.Source)
				require.NoError(t, err)
				lengths[r.Source] = strings.Count(string(source), "\n")
			}
			require.LessOrEqual(t, r.Line, lengths[r.Source], "%s in %s", r.Source, mod.File)
		}
		require.Equal(t, strings.Count(string(text), "\n"), total, mod.File)
	}
}

// Instructions that only one function of the sources writes are said to come from it.
func TestLinesPointAtTheirSource(t *testing.T) {
	for instruction, source := range map[string]string{
		"fence.acq_rel.sys;":       "FL_DEVICE void fence_release() ",
		"bar.sync 0;":              "FL_DEVICE void sync_block() ",
		"atom.relaxed.gpu.global":  `asm volatile("atom.relaxed.gpu.global`,
		"ld.acquire.sys.global":    `asm volatile("ld.acquire.sys.global`,
		"griddepcontrol.wait;":     `asm volatile("griddepcontrol.wait;`,
		"vote.sync.ballot.b32":     "asm volatile",
		"st.relaxed.sys.global.u":  `asm volatile("st.relaxed.sys.global.u`,
		"st.relaxed.sys.global.v":  `asm volatile("st.relaxed.sys.global.v`,
		"st.relaxed.sys.global.b":  `asm volatile("{\n\t.reg .b64 l, h;`,
		"atom.relaxed.sys.global":  `asm volatile("atom.relaxed.sys.global`,
		"cvt.rn.bf16x2.f32":        `asm("cvt.rn.bf16x2.f32`,
		"st.relaxed.gpu.global":    `asm volatile("st.relaxed.gpu.global`,
		"bar.warp.sync 0xffffffff": "FL_DEVICE void sync_warp() ",
	} {
		found := 0
		m, err := Load()
		require.NoError(t, err)
		for _, mod := range m.Modules {
			text, err := mod.Text()
			require.NoError(t, err)
			for i, line := range strings.Split(string(text), "\n") {
				if !strings.HasPrefix(strings.TrimSpace(line), instruction) {
					continue
				}
				found++
				file, n, ok := Lines(mod.File, i+1)
				require.True(t, ok, "%s:%d", mod.File, i+1)
				code, err := Source(file)
				require.NoError(t, err)
				require.Contains(t, strings.Split(string(code), "\n")[n-1], source, "%s:%d", mod.File, i+1)
			}
		}
		require.NotZero(t, found, instruction)
	}
}

// The two relaxed loads of a call's start are told apart by the calls that led to them.
func TestCalls(t *testing.T) {
	m, err := Load()
	require.NoError(t, err)
	code, err := Source("fenceline.cuh")
	require.NoError(t, err)
	rows := strings.Split(string(code), "\n")
	for _, mod := range m.Modules {
		if mod.Source != "oneshot_pull" {
			continue
		}
		text, err := mod.Text()
		require.NoError(t, err)
		seen := map[string]int{}
		for i, line := range strings.Split(string(text), "\n") {
			if !strings.HasPrefix(strings.TrimSpace(line), "ld.relaxed.gpu.global") {
				continue
			}
			calls := Calls(mod.File, i+1)
			require.GreaterOrEqual(t, len(calls), 2, "%s:%d", mod.File, i+1)
			file, n, _ := strings.Cut(calls[0], ":")
			require.Equal(t, "fenceline.cuh", file)
			at, err := strconv.Atoi(n)
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(calls[1], "oneshot_pull.cu:"))
			for _, f := range []string{"load_relaxed_gpu(c.control + 4 * block())", "offsetof(Control, poisoned)) != 0"} {
				if strings.Contains(rows[at-1], f) {
					seen[f]++
				}
			}
		}
		require.Len(t, seen, 2)
		for f, n := range seen {
			require.Equal(t, 12, n, f) // three types, four world sizes
		}
	}
}

func TestLinesOfNothing(t *testing.T) {
	for _, c := range []struct {
		file string
		line int
	}{{"oneshot_pull.sm_90.ptx", 1}, {"oneshot_pull.sm_90.ptx", 0}, {"oneshot_pull.sm_90.ptx", -3}, {"oneshot_pull.sm_90.ptx", 1 << 30}, {"other.ptx", 20}, {"", 20}} {
		_, _, ok := Lines(c.file, c.line)
		require.False(t, ok, "%s:%d", c.file, c.line)
	}
}

func TestParseLinesErrors(t *testing.T) {
	for text, want := range map[string]string{
		"a x.cu\n3":     `line 2: "3" names no source`,
		"a x.cu\n0a4":   "has no count",
		"a x.cu\n1b4":   "not listed",
		"a x.cu\n1a4x":  "has no line",
		"a x.cu\na4":    "has no count",
		"a x.cu\n1a4<0": "names calls that are not listed",
		"a x.cu\n<0 b3": "not listed",
	} {
		_, err := ParseLines([]byte(text))
		require.ErrorContains(t, err, want)
	}
}
