package check

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/ptx"
)

// pull is the one-shot pull kernel on n ranks, called so many times back to back, on count elements of f32.
func pull(t testing.TB, text []byte, n, calls, count int, staged, dependent bool) *Program {
	m, err := ptx.Parse("oneshot_pull.ptx", text)
	require.NoError(t, err)
	k, ok := m.Kernel("allreduce_oneshot_pull_f32")
	require.True(t, ok)
	p := &Program{Name: fmt.Sprintf("pull %d", n), Devices: n}
	const in, out, pad, control, status, stage = 0, 1, 2, 3, 4, 5
	half := (4*count + 15) / 16 * 16
	for r := range n {
		data := make([]byte, 4*count)
		for i := range count {
			binary.LittleEndian.PutUint32(data[4*i:], 0x3f800000+uint32(r*count+i)<<12)
		}
		p.Buffers = append(p.Buffers, Buffer{Name: fmt.Sprintf("in%d", r), Device: r, Size: 4 * count, Init: data},
			Buffer{Name: fmt.Sprintf("out%d", r), Device: r, Size: 4 * count},
			Buffer{Name: fmt.Sprintf("pad%d", r), Device: r, Size: 8192},
			Buffer{Name: fmt.Sprintf("control%d", r), Device: r, Size: 260},
			Buffer{Name: fmt.Sprintf("status%d", r), Device: Host, Size: 256},
			Buffer{Name: fmt.Sprintf("stage%d", r), Device: r, Size: 2 * half})
	}
	for range calls {
		for r := range n {
			p.Tasks = append(p.Tasks, Task{Stream: r, Device: r, Kernel: k, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, Dependent: dependent,
				Params: func(address func(int) uint64) []byte {
					b := make([]byte, 336)
					at := func(r, i int) uint64 { return address(6*r + i) }
					for q := range n {
						if staged {
							binary.LittleEndian.PutUint64(b[8*q:], at(q, stage))
						} else {
							binary.LittleEndian.PutUint64(b[8*q:], at(q, in))
						}
						binary.LittleEndian.PutUint64(b[128+8*q:], at(q, pad))
					}
					w := func(o int, v uint64) { binary.LittleEndian.PutUint64(b[o:], v) }
					w(256, at(r, in))
					w(264, at(r, out))
					if staged {
						w(272, at(r, stage))
					}
					w(280, at(r, control))
					w(288, at(r, status))
					w(296, uint64(count))
					w(304, uint64(half))
					w(312, 1e9)
					binary.LittleEndian.PutUint32(b[320:], uint32(r))
					binary.LittleEndian.PutUint32(b[324:], uint32(n))
					return b
				}})
		}
	}
	return p
}

func TestPull(t *testing.T) {
	for _, sm := range []string{"sm_70", "sm_90"} {
		text, err := os.ReadFile("../../kernels/ptx/oneshot_pull." + sm + ".ptx")
		require.NoError(t, err)
		for _, c := range []struct {
			n, calls int
			staged   bool
		}{{2, 1, true}, {2, 2, true}, {2, 3, true}, {2, 2, false}, {3, 1, true}, {3, 2, true}} {
			p := pull(t, text, c.n, c.calls, 37, c.staged, sm == "sm_90")
			r, err := Check(t.Context(), p, Options{Strategy: Exhaustive})
			require.NoError(t, err)
			require.Empty(t, r.Findings)
			require.True(t, r.Exhaustive, r.Why)
			t.Logf("%s %+v: %d executions, %d operations", sm, c, r.Executions, r.Operations)
			for _, s := range []Strategy{Random, PCT} {
				r, err = Check(t.Context(), p, Options{Strategy: s, Executions: 100})
				require.NoError(t, err)
				require.Empty(t, r.Findings)
				require.EqualValues(t, 100, r.Executions)
				require.False(t, r.Exhaustive)
			}
		}
	}
}

// Kernels with one kind of ordering taken out, which must be caught at once.
func TestPullWeakened(t *testing.T) {
	text, err := os.ReadFile("../../kernels/ptx/oneshot_pull.sm_90.ptx")
	require.NoError(t, err)
	for _, c := range [][2]string{
		{"fence.acq_rel.sys;", ""},
		{"fence.acq_rel.sys;", "fence.acq_rel.gpu;"},
		{"ld.acquire.sys.global.u32", "ld.relaxed.sys.global.u32"},
		{"ld.acquire.sys.global.u32", "ld.acquire.gpu.global.u32"},
		{"st.relaxed.sys.global.u32", "st.relaxed.gpu.global.u32"},
		{"st.relaxed.sys.global.u32", "st.global.u32"},
		{"bar.red.or.pred b, 0, a;", "mov.pred b, a;"},
		{"griddepcontrol.wait;", ""},
	} {
		weak := bytes.ReplaceAll(text, []byte(c[0]), []byte(c[1]))
		require.NotEqual(t, text, weak)
		for _, n := range []int{2, 3} {
			p := pull(t, weak, n, 2, 37, true, true)
			for _, o := range []Options{{Strategy: Exhaustive}, {Executions: 10}, {Strategy: PCT, Executions: 10}} {
				r, err := Check(t.Context(), p, o)
				require.NoError(t, err)
				require.NotEmpty(t, r.Findings, "%q → %q on %d ranks", c[0], c[1], n)
				f := &r.Findings[0]
				require.Equal(t, Race, f.Kind)
				require.NotNil(t, f.A)
				require.NotNil(t, f.B)
				require.NotEmpty(t, f.Missing)
				again, err := Check(t.Context(), p, Options{Replay: f.Token})
				require.NoError(t, err)
				require.Len(t, again.Findings, 1)
				require.Equal(t, f.key(), again.Findings[0].key(), "the token replays it")
				require.False(t, again.Exhaustive)
			}
		}
	}
}
