package check

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// hosted is a program of columns with a step of the host behind the kernels that it waits for, and others behind that.
func hosted(t *testing.T, before []string, after []int, do func(*Memory), behind ...string) *Program {
	t.Helper()
	p := columns(t, false, append(before, behind...)...)
	step := Task{Stream: 99, Device: Host, After: after, Name: "host", Do: do}
	n := len(before)
	p.Tasks = append(p.Tasks[:n:n], append([]Task{step}, p.Tasks[n:]...)...)
	return p
}

// What a step of the host waits for comes before it, what it does comes before all that is issued later, and nothing else is ordered.
func TestHostSteps(t *testing.T) {
	const write, copied = "st.global.u32 [x], 0x04030201;", "ld.global.u32 %r0, [x];\nst.global.u32 [y], %r0;"
	final := func(want ...byte) func(*Memory) error {
		return func(m *Memory) error {
			require.Equal(t, want, m.Bytes(1)[:4])
			return nil
		}
	}
	// One kernel, the host, another: the host's wait orders the two, whether it touches their memory or not.
	p := hosted(t, []string{write}, []int{0}, func(*Memory) {}, copied)
	p.Final = final(1, 2, 3, 4)
	clean(t, p)
	faulty(t, hosted(t, []string{write}, nil, func(*Memory) {}, copied), Race, "nothing orders")

	// What a kernel observed that the host waited for is before the host too.
	clean(t, hosted(t, []string{"st.relaxed.sys.global.u32 [x], 1;", ".reg .pred %n;\nL:\nld.relaxed.sys.global.u32 %r0, [x];\nsetp.eq.u32 %n, %r0, 0;\n@%n bra L;"}, []int{1}, func(m *Memory) {
		require.Equal(t, []byte{1, 0, 0, 0}, m.Bytes(0)[:4])
	}))

	// It reads and writes bytes.
	p = hosted(t, []string{write}, []int{0}, func(m *Memory) {
		require.Equal(t, []byte{1, 2, 3, 4, 0}, m.Bytes(0)[:5])
		m.Write(0, 1, []byte{8, 9})
	}, copied)
	p.Final = final(1, 8, 9, 4)
	clean(t, p)
	p = hosted(t, []string{"st.global.u8 [x+2], 7;"}, []int{0}, func(m *Memory) {
		require.Equal(t, []byte{0, 0, 7, 0, 0, 0, 0, 0}, m.Bytes(0)[:8])
		m.Write(0, 3, []byte{5, 6})
	}, "ld.global.u8 %r0, [x+2];\nld.global.u32 %r1, [x+4];\nshl.b32 %r1, %r1, 8;\nor.b32 %r0, %r0, %r1;\nst.global.u32 [y], %r0;")
	p.Final = final(7, 6, 0, 0)
	clean(t, p)

	// Who does not wait races, whichever way, with parts of words too.
	for _, c := range []struct {
		kernel string
		do     func(*Memory)
	}{
		{write, func(m *Memory) { m.Bytes(0) }},
		{write, func(m *Memory) { m.Write(0, 0, []byte{1}) }},
		{"ld.global.u32 %r0, [x];", func(m *Memory) { m.Write(0, 0, []byte{1}) }},
		{"st.global.u8 [x+2], 7;", func(m *Memory) { m.Bytes(0) }},
		{"st.relaxed.sys.global.u32 [x], 7;", func(m *Memory) { m.Bytes(0) }},
		{"ld.relaxed.sys.global.u32 %r0, [x];", func(m *Memory) { m.Write(0, 0, []byte{1}) }},
	} {
		p := hosted(t, []string{c.kernel}, nil, c.do)
		for _, s := range []Strategy{Random, Exhaustive} {
			r, err := Check(t.Context(), p, Options{Strategy: s, Executions: 200})
			require.NoError(t, err)
			require.Len(t, r.Findings, 1, "%s", c.kernel)
		}
		clean(t, hosted(t, []string{c.kernel}, []int{0}, c.do))
		// The same when the host comes later, but waits for another alone.
		poll := ".reg .pred %n;\nL:\nld.relaxed.sys.global.u32 %r0, [y];\nsetp.eq.u32 %n, %r0, 0;\n@%n bra L;"
		r, err := Check(t.Context(), hosted(t, []string{c.kernel + "\nst.relaxed.sys.global.u32 [y], 1;", poll}, []int{1}, c.do), Options{Strategy: Exhaustive, Executions: 1})
		require.NoError(t, err)
		require.Len(t, r.Findings, 1, "%s", c.kernel)
	}
}
