package check

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/ptx"
)

// columns builds a program of one thread per column, each on a device of its own, that are given the addresses of the
// words x, y and z.
func columns(t testing.TB, racy bool, cols ...string) *Program {
	t.Helper()
	p := &Program{Name: t.Name(), Devices: len(cols), Racy: racy}
	for _, n := range []string{"x", "y", "z"} {
		p.Buffers = append(p.Buffers, Buffer{Name: n, Size: 16})
	}
	for i, c := range cols {
		src := fmt.Sprintf(`.version 8.4
.target sm_70
.address_size 64
.visible .entry k%d(.param .u64 px, .param .u64 py, .param .u64 pz) {
.reg .b32 %%r<8>;
.reg .b64 %%rd<8>;
.reg .pred %%p<4>;
.reg .b64 x; .reg .b64 y; .reg .b64 z;
ld.param.u64 x, [px];
ld.param.u64 y, [py];
ld.param.u64 z, [pz];
%s
ret;
}
`, i, c)
		m, err := ptx.ParseObserved(fmt.Sprintf("c%d.ptx", i), []byte(src))
		require.NoError(t, err)
		k, ok := m.Kernel(fmt.Sprintf("k%d", i))
		require.True(t, ok)
		p.Tasks = append(p.Tasks, Task{Stream: i, Device: i, Name: fmt.Sprintf("T%d", i), Kernel: k, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
			Params: func(address func(int) uint64) []byte {
				var b []byte
				for i := range 3 {
					a := address(i)
					for k := range 8 {
						b = append(b, byte(a>>(8*k)))
					}
				}
				return b
			}})
	}
	return p
}

func (p *Program) see(task int, reg string) *Program {
	p.Observe = append(p.Observe, Observed{Name: reg, Task: task, Register: reg})
	return p
}

const (
	mpWrite = "st.relaxed.sys.global.u32 [x], 1;\nst.release.sys.global.u32 [y], 1;"
	mpRead  = "ld.acquire.sys.global.u32 %r0, [y];\nld.relaxed.sys.global.u32 %r1, [x];"
)

func outcomes(t *testing.T, p *Program) (all, random map[string]uint64) {
	t.Helper()
	start := time.Now()
	r, err := Check(t.Context(), p, Options{Strategy: Exhaustive})
	require.NoError(t, err)
	t.Logf("%s: exhaustive %v %v, %d executions, %v", p.Name, r.Exhaustive, r.Outcomes, r.Executions, time.Since(start))
	for i := range r.Findings {
		t.Log(r.Findings[i].String())
	}
	q, err := Check(t.Context(), p, Options{Executions: 20000})
	require.NoError(t, err)
	t.Logf("random: %v", q.Outcomes)
	return r.Outcomes, q.Outcomes
}

func TestMP(t *testing.T) {
	all, _ := outcomes(t, columns(t, true, mpWrite, mpRead).see(1, "%r0").see(1, "%r1"))
	require.NotContains(t, all, "1 0")
	require.Len(t, all, 3)
	all, _ = outcomes(t, columns(t, true, "st.relaxed.sys.global.u32 [x], 1;\nst.relaxed.sys.global.u32 [y], 1;", mpRead).see(1, "%r0").see(1, "%r1"))
	require.Len(t, all, 4)
}

func TestSB(t *testing.T) {
	sb := func(f string) *Program {
		return columns(t, true, "st.relaxed.sys.global.u32 [x], 1;\n"+f+"\nld.relaxed.sys.global.u32 %r0, [y];",
			"st.relaxed.sys.global.u32 [y], 1;\n"+f+"\nld.relaxed.sys.global.u32 %r0, [x];").see(0, "%r0").see(1, "%r0")
	}
	all, random := outcomes(t, sb(""))
	require.Len(t, all, 4)
	require.Len(t, random, 4)
	all, _ = outcomes(t, sb("fence.acq_rel.sys;"))
	require.Len(t, all, 4)
	all, random = outcomes(t, sb("fence.sc.sys;"))
	require.Len(t, all, 3)
	require.NotContains(t, random, "0 0")
	all, _ = outcomes(t, sb("fence.sc.gpu;"))
	require.Len(t, all, 4)
}

func TestLB(t *testing.T) {
	lb := func(f, dep string) *Program {
		return columns(t, true, "ld.relaxed.sys.global.u32 %r0, [x];\n"+f+"\nst.relaxed.sys.global.u32 [y], "+dep+";",
			"ld.relaxed.sys.global.u32 %r0, [y];\n"+f+"\nst.relaxed.sys.global.u32 [x], "+dep+";").see(0, "%r0").see(1, "%r0")
	}
	all, random := outcomes(t, lb("", "1"))
	require.Len(t, all, 4)
	require.Len(t, random, 4)
	all, random = outcomes(t, lb("", "%r0"))
	require.Len(t, all, 1)
	require.Len(t, random, 1)
	all, random = outcomes(t, lb("fence.acq_rel.sys;", "1"))
	require.Len(t, all, 3)
	require.NotContains(t, random, "1 1")
	all, _ = outcomes(t, lb("fence.acq_rel.gpu;", "1"))
	require.Len(t, all, 4)
}
