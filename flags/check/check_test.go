package check

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// spinning is a column whose weak load never sees anything new: one loop that has memory operations and one that has none.
func spinning(t *testing.T, quiet bool) *Program {
	if quiet {
		return columns(t, false, "A: bra A;")
	}
	return columns(t, false, ".reg .pred %spin;\nA: ld.global.u32 %r0, [x];\nsetp.eq.u32 %spin, %r0, 0;\n@%spin bra A;")
}

// A kernel that never ends is a finding, and nothing is tried to mend or to shorten it.
func TestEndless(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		for _, s := range []Strategy{Random, PCT, Exhaustive} {
			p := spinning(t, quiet)
			p.Stronger = func(*Finding) []Variant {
				t.Error("variants of a kernel that never ends")
				return nil
			}
			r, err := Check(t.Context(), p, Options{Strategy: s, Steps: 100_000, Findings: 3})
			require.NoError(t, err)
			require.Len(t, r.Findings, 1)
			f := &r.Findings[0]
			require.Equal(t, Endless, f.Kind)
			require.Contains(t, f.Message, "a kernel that never ends, or one that ")
			require.Contains(t, f.Message, "if it ends, check it with shorter loops")
			require.NotZero(t, f.B.Line)
			require.False(t, r.Exhaustive)
			require.EqualValues(t, 1, r.Executions)
		}
	}
}

// A variant that is tried for a fix takes so many steps and no more, and a few long executions of it prove nothing.
func TestFixIsBounded(t *testing.T) {
	p := columns(t, false, "st.global.u32 [x], 1;", "st.global.u32 [x], 2;")
	slow := columns(t, false, ".reg .pred %more;\nA: ld.global.u32 %r0, [x];\nadd.u32 %r1, %r1, 1;\nsetp.lt.u32 %more, %r1, 5000000;\n@%more bra A;")
	p.Stronger = func(*Finding) []Variant { return []Variant{{"slow", slow}} }
	start := time.Now()
	r, err := Check(t.Context(), p, Options{Executions: 1000})
	require.NoError(t, err)
	require.Equal(t, Race, r.Findings[0].Kind)
	require.Empty(t, r.Findings[0].Fix)
	require.Contains(t, r.Findings[0].Unfixed, "of 1 tried on this finding's lines, is known to make it go away: 1 were not tried to the end")
	require.Less(t, time.Since(start), 30*time.Second)
}

// A variant that the finding's own search shows nothing of, for it ends early, is no fix: other searches must agree.
func TestFixIsConfirmed(t *testing.T) {
	p := columns(t, false, "st.global.u32 [x], 1;", "st.global.u32 [x], 2;")
	write, read := "st.global.u32 [x], 1;\nst.%s.sys.global.u32 [y], 1;", "ld.acquire.sys.global.u32 %r0, [y];\nsetp.ne.u32 %p0, %r0, 1;\n@%p0 bra E;\nld.global.u32 %r1, [x];\nE:"
	bad := columns(t, false, read, fmt.Sprintf(write, "relaxed"))
	good := columns(t, false, read, fmt.Sprintf(write, "release"))
	for _, s := range []Strategy{Random, PCT, Exhaustive} {
		own := Options{Strategy: s, Executions: 1, NoFix: true}
		for r := (*Result)(nil); r == nil || len(r.Findings) > 0; own.Seed++ { // a seed with which one execution shows nothing
			var err error
			r, err = Check(t.Context(), bad, own)
			require.NoError(t, err)
			require.False(t, r.Exhaustive)
			require.Less(t, own.Seed, uint64(100))
		}
		own.Seed--
		own.NoFix = false
		p.Stronger = func(*Finding) []Variant { return []Variant{{"bad", bad}, {"good", good}} }
		r, err := Check(t.Context(), p, own)
		require.NoError(t, err)
		require.Equal(t, "good", r.Findings[0].Fix)
		require.Empty(t, r.Findings[0].Unfixed)

		p.Stronger = func(*Finding) []Variant { return []Variant{{"bad", bad}} }
		r, err = Check(t.Context(), p, own)
		require.NoError(t, err)
		require.Empty(t, r.Findings[0].Fix)
		require.Equal(t, "no single stronger instruction, of 1 tried on this finding's lines, makes it go away", r.Findings[0].Unfixed)
		require.Contains(t, r.Findings[0].String(), "\n  "+r.Findings[0].Unfixed)

		p.Stronger = func(*Finding) []Variant { return nil }
		r, err = Check(t.Context(), p, own)
		require.NoError(t, err)
		require.Empty(t, r.Findings[0].Fix+r.Findings[0].Unfixed)
	}
}

// Check ends when its context does, within an execution and between two, with what it has.
func TestInterrupted(t *testing.T) {
	for _, s := range []Strategy{Random, PCT, Exhaustive} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		start := time.Now()
		r, err := Check(ctx, spinning(t, false), Options{Strategy: s, Steps: 1 << 60})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(start), 10*time.Second)
		require.Empty(t, r.Findings)
		require.False(t, r.Exhaustive)

		ctx, cancel = context.WithCancel(t.Context())
		p := columns(t, true, mpWrite+mpWrite+mpWrite, mpRead+mpRead+mpRead, mpRead+mpRead+mpRead).see(1, "%r0")
		r, err = Check(ctx, p, Options{Strategy: s, Executions: 1 << 60, Progress: func(uint64) { cancel() }})
		require.ErrorIs(t, err, context.Canceled)
		require.EqualValues(t, 256, r.Executions)
		require.NotEmpty(t, r.Outcomes)
	}
}

// Programs that would need more memory than machines have are refused.
func TestTooManyThreads(t *testing.T) {
	p := columns(t, false, "ret;")
	p.Tasks[0].Grid[0], p.Tasks[0].Block[0] = 64, 1024
	_, err := Check(t.Context(), p, Options{})
	require.ErrorContains(t, err, "65536 threads, 65536 of them at once, need 16 GB of memory")
}

// A token is of one program and one execution: every other is an error, and not an execution without a finding.
func TestReplayMisfits(t *testing.T) {
	p := columns(t, false, "st.relaxed.sys.global.u32 [x], 1;\nfence.sc.sys;\nst.global.u32 [y], 1;", "ld.relaxed.sys.global.u32 %r0, [x];\nfence.sc.sys;\nld.global.u32 %r1, [y];")
	p.Key = "cafe"
	for _, s := range []Strategy{Random, PCT, Exhaustive} {
		r, err := Check(t.Context(), p, Options{Strategy: s, NoFix: true})
		require.NoError(t, err)
		require.NotEmpty(t, r.Findings)
		token := r.Findings[0].Token
		require.Contains(t, token, "cafe-")
		again, err := Check(t.Context(), p, Options{Replay: token})
		require.NoError(t, err)
		require.Equal(t, r.Findings[0].key(), again.Findings[0].key())
		require.Equal(t, token, again.Findings[0].Token)
		for _, bad := range []string{strings.TrimPrefix(token, "cafe-"), "beef" + token[4:], token + ":1", token + ":7", token + "!", "x" + token} {
			_, err := Check(t.Context(), p, Options{Replay: bad})
			require.ErrorContains(t, err, "the token does not fit", bad)
		}
	}
	for _, bad := range []string{"", "cafe", "x", "x:-1", "x:9", "x:0.-9", "x:-1.1", "x:0.0", "x:9.1", "x:1.1", "x:::::::::::1", "x:1.1!:1.1!:1.1!", "r:-1", "r:g", "p:1", "p:1:0", "p:1:-1"} {
		_, err := Check(t.Context(), p, Options{Replay: "cafe-" + bad})
		if bad == "x" { // the first execution of all
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "the token does not fit", bad)
	}
}

// Whatever a token says, it is an error or an execution.
func FuzzReplay(f *testing.F) {
	f.Add("x:1:0.1")
	f.Add("x::0.-1:1.1!")
	p := columns(f, true, "ld.relaxed.sys.global.u32 %r0, [y];\nst.relaxed.sys.global.u32 [x], 1;\nfence.sc.sys;\nst.relaxed.sys.global.u32 [x], 2;",
		"ld.relaxed.sys.global.u32 %r0, [x];\nfence.sc.sys;\nst.relaxed.sys.global.u32 [x], 3;\nst.relaxed.sys.global.u32 [y], 1;")
	f.Fuzz(func(t *testing.T, token string) {
		if token == "" { // a search
			return
		}
		r, err := Check(t.Context(), p, Options{Replay: token})
		if (err == nil) != (r != nil && r.Executions == 1) {
			t.Fatal(token, err)
		}
	})
}

// A racing write is reported with what it wrote, of the bytes that are named, and a read, or a write of several, with no value.
func TestRaceValues(t *testing.T) {
	const (
		poll = "L:\nld.relaxed.sys.global.u32 %r0, [y];\nsetp.ne.u32 %p0, %r0, 1;\n@%p0 bra L;\n"
		post = "\nst.relaxed.sys.global.u32 [y], 1;"
	)
	for _, c := range []struct {
		first, second string
		a, b          any
	}{
		{"st.global.u32 [x], 42;", "ld.global.u32 %r1, [x];", 42, nil},
		{"st.global.u32 [x], 42;", "ld.acquire.sys.global.u32 %r1, [x];", 42, nil},
		{"st.relaxed.sys.global.u32 [x], 42;", "ld.global.u32 %r1, [x];", 42, nil},
		{"st.relaxed.gpu.global.u32 [x], 42;", "st.relaxed.gpu.global.u32 [x], 43;", 42, 43},
		{"st.relaxed.sys.global.u32 [x], 42;", "atom.relaxed.gpu.global.add.u32 %r1, [x], 1;", 42, nil},
		{"ld.global.u32 %r1, [x];", "st.global.u32 [x], 43;", nil, 43},
		{"ld.relaxed.sys.global.u32 %r1, [x];", "st.global.u32 [x], 43;", nil, 43},
		{"st.global.u32 [x], 0x01020304;", "ld.global.u16 %rs0, [x+2];", 0x0102, nil},
		{"ld.global.u32 %r1, [x];", "st.global.u8 [x+1], 0x105;", nil, 5},
		{"st.global.u8 [x], 1;\nst.global.u8 [x+1], 2;", "ld.global.u16 %rs0, [x];", nil, nil},
		{"st.global.v2.u32 [x], {7, 8};\nld.global.u32 %r1, [x];", "st.global.v2.u32 [x], {9, 10};", 7, 9},
		{"st.global.u64 [x], 0x700000008;", "st.global.u64 [x], 0x900000000;", 8, 0},
	} {
		p := columns(t, false, ".reg .b16 %rs<2>;\n"+c.first+post, ".reg .b16 %rs<2>;\n"+poll+c.second)
		r, err := Check(t.Context(), p, Options{Strategy: PCT, NoFix: true})
		require.NoError(t, err)
		require.NotEmpty(t, r.Findings, c.first)
		require.Contains(t, []Kind{Race, Torn}, r.Findings[0].Kind, c.first)
		f := &r.Findings[0]
		for a, want := range map[*Access]any{f.A: c.a, f.B: c.b} {
			if want == nil {
				require.False(t, a.Known, "%s | %s: %v is %d", c.first, c.second, a, a.Value)
				continue
			}
			require.True(t, a.Known, "%s | %s: %v", c.first, c.second, a)
			require.EqualValues(t, want, a.Value, "%s | %s: %v", c.first, c.second, a)
		}
		for i := range f.History {
			require.True(t, f.History[i].Known)
		}
	}
}
