package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
)

// curve is the time of a choice by size.
type curve func(bytes uint64) time.Duration

// line takes ns at 64 KiB, and slope more for each further KiB.
func line(ns, slope float64) curve {
	return func(bytes uint64) time.Duration { return time.Duration(ns + slope*(float64(bytes)/1024-64)) }
}

// upTo cannot take more than so many bytes.
func upTo(most uint64, c curve) curve {
	return func(bytes uint64) time.Duration {
		if bytes > most {
			return never
		}
		return c(bytes)
	}
}

func TestTuneCrossing(t *testing.T) {
	const small, large = 64 << 10, 128 << 10
	step := func(at uint64, low, high curve) curve {
		return func(bytes uint64) time.Duration { return choice(bytes > at, high, low)(bytes) }
	}
	flat := line(2500, 0)
	for _, c := range []struct {
		name         string
		small, large curve
		from, to     uint64 // where the result may lie
		sizes        int    // timed at most
	}{
		{"in the middle", line(2100, 20), line(2500, 10), 100 << 10, 108 << 10, 6},
		{"a jump in the middle", step(90000, line(2100, 0), line(3300, 0)), flat, 90000 - 90000/boundParts, 90000, 6},
		{"near the lower end", line(2300, 40), flat, 66 << 10, 70 << 10, 6},
		{"near the upper end", line(2100, 7), flat, 114 << 10, large - 1, 6},
		{"right above the lower size", step(small, line(2100, 0), line(2700, 10)), flat, small, small, 1},
		{"just below the larger size", step(large-1, line(2100, 1), line(2700, 0)), flat, large - boundPack, large - boundPack, 2},
		{"the smaller size's choice is the faster all over", line(2100, 1), flat, large - boundPack, large - boundPack, 2},
		{"the larger size's choice is", flat, line(2100, 1), small, small, 1},
		{"equal all over", flat, line(2510, 0), small, small, 1},
		{"the first cannot take more", upTo(small, line(2100, 0)), flat, small, small, 1},
		{"the first can take some", upTo(80<<10, line(2100, 0)), flat, 75 << 10, 80 << 10, 6},
		{"the second cannot take less", line(2700, 1), step(96<<10, upTo(0, flat), flat), 90 << 10, 96 << 10, 6},
		{"nobody can take any", upTo(0, flat), upTo(0, flat), small, small, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			sizes := 0
			got, err := crossing(small, large, func(bytes uint64) (time.Duration, time.Duration, error) {
				sizes++
				require.Zero(t, bytes%boundPack)
				require.Greater(t, bytes, uint64(small))
				require.Less(t, bytes, uint64(large))
				return c.small(bytes), c.large(bytes), nil
			})
			require.NoError(t, err)
			require.GreaterOrEqual(t, got, c.from)
			require.LessOrEqual(t, got, c.to)
			require.LessOrEqual(t, sizes, c.sizes)
		})
	}

	broken, fail := errors.New("broken"), 0
	for ; ; fail++ { // at each size in turn, until none is left
		n := 0
		_, err := crossing(small, large, func(bytes uint64) (time.Duration, time.Duration, error) {
			if n++; n > fail {
				return 0, 0, broken
			}
			return line(2100, 20)(bytes), line(2900, 1)(bytes), nil
		})
		if err == nil {
			break
		}
		require.ErrorIs(t, err, broken)
	}
	require.Greater(t, fail, 3)
}

// Where sizes lie close together there may be none between, and the result stays below the larger in any case.
func TestTuneCrossingNarrow(t *testing.T) {
	for _, c := range []struct{ small, large uint64 }{{2, 4}, {2, 16}, {2, 18}, {16, 32}, {16, 34}, {65536, 65538}, {65534, 65538}, {65536, 65568}, {65536, 65600}, {100, 400}, {2, 1 << 30}} {
		for _, smallWins := range []bool{true, false} {
			timed := map[uint64]bool{}
			got, err := crossing(c.small, c.large, func(bytes uint64) (time.Duration, time.Duration, error) {
				require.False(t, timed[bytes], "%d once more", bytes)
				require.True(t, bytes > c.small && bytes < c.large && bytes%boundPack == 0, "%d of %v", bytes, c)
				timed[bytes] = true
				return choice[time.Duration](smallWins, 1, 2), choice[time.Duration](smallWins, 2, 1), nil
			})
			require.NoError(t, err)
			want := c.small
			if above := (c.large - 1) / boundPack * boundPack; smallWins && above > want {
				want = above
			}
			require.Equal(t, want, got, "%v %v", c, smallWins)
		}
	}
}

// With lines that cross anywhere, and times that vary by half of tuneSlack, one step over the boundary costs little either way.
func TestTuneCrossingNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const small, large = 32 << 10, 64 << 10
	for range 2000 {
		at := small + rng.Float64()*(large-small)
		base, flat, steep := 1500+2000*rng.Float64(), 20*rng.Float64(), 20+30*rng.Float64()
		cost := func(slope float64, bytes uint64) float64 { return base + slope*(float64(bytes)-at)/1024 }
		noisy := func(ns float64) time.Duration {
			return time.Duration(ns * (1 + tuneSlack/2*(rng.Float64()-0.5)))
		}
		n := 0
		got, err := crossing(small, large, func(bytes uint64) (time.Duration, time.Duration, error) {
			n++
			return noisy(cost(steep, bytes)), noisy(cost(flat, bytes)), nil
		})
		require.NoError(t, err)
		require.True(t, got >= small && got < large)
		require.LessOrEqual(t, n, 7)
		one, other := cost(steep, got), cost(flat, got+boundPack)
		require.InEpsilon(t, one, other, cliffSlack, "lines cross at %.0f, the boundary is at %d", at, got)
	}
}

// tunerOf is what tune makes of its flags, on two emulated devices, and one group.
func tunerOf(t *testing.T, capable allreduce.Table, args ...string) (*tuner, *groupContender) {
	t.Helper()
	a, o, c := &app{stderr: io.Discard}, &tuneOptions{out: filepath.Join(t.TempDir(), "x.json")}, &cobra.Command{}
	a.opt.backend = "emu"
	o.measured(a, c, tuneReplays)
	require.NoError(t, c.ParseFlags(append([]string{"--ranks", "2"}, args...)))
	tn, err := o.check(a, c.Flags().Changed)
	require.NoError(t, err)
	tn.rt, err = open(tn.set.settings)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tn.rt.Close()) })
	require.NoError(t, tn.prepare())
	tn.defaults()
	tn.bar = newProgress(io.Discard, 0)
	f := &field{clocks: map[*allreduce.Group]*stopwatch{}}
	t.Cleanup(func() { require.NoError(t, tn.closeField(f)) })
	g, err := tn.group(t.Context(), f, &tn.rep.Worlds[0], allreduce.Auto, capable)
	require.NoError(t, err)
	return tn, tn.contender(f, allreduce.Auto, g, nil, true).(*groupContender)
}

func TestTuneBounds(t *testing.T) {
	push, pull := allreduce.Rule{Algorithm: allreduce.OneshotPush}, allreduce.Rule{Algorithm: allreduce.TwoshotPull, Blocks: 3, Threads: 96}
	copies := allreduce.Rule{Algorithm: allreduce.Copy} // not for captured calls, so it can take no size here
	tn, c := tunerOf(t, allreduce.Table{push, pull})
	at := func(bytes uint64, dt allreduce.DType, grid allreduce.Rule) tuneChoice {
		return tuneChoice{Ranks: 2, Bytes: bytes, To: bytes, DType: dt, grid: grid}
	}
	list := []tuneChoice{
		at(512, allreduce.F32, push), at(1024, allreduce.F32, push), at(2048, allreduce.F32, pull), at(4096, allreduce.F32, copies), at(8192, allreduce.F32, push),
		at(16384, allreduce.BF16, pull), at(16386, allreduce.BF16, push),
	}
	require.NoError(t, tn.bounds(t.Context(), c, list))
	require.Equal(t, len(list)-1, tn.cells, "steps of the bar")
	for i, ch := range list {
		require.GreaterOrEqual(t, ch.To, ch.Bytes)
		if i+1 < len(list) && list[i+1].DType == ch.DType {
			require.Less(t, ch.To, list[i+1].Bytes)
		}
	}
	for _, i := range []int{0, 4, 5, 6} {
		require.Equal(t, list[i].Bytes, list[i].To, "the same choice, or another type, or no size between, or the last")
		require.Empty(t, list[i].Probes)
	}
	require.NotEmpty(t, list[1].Probes)
	for _, p := range list[1].Probes {
		require.Positive(t, p.SmallUS)
		require.Positive(t, p.LargeUS)
	}
	require.Equal(t, uint64(1040), list[1].Probes[0].Bytes)
	require.Equal(t, uint64(4096-boundPack), list[2].To, "what comes next can take no size")
	require.Equal(t, uint64(4096), list[3].To, "what is here can take none")
	require.Positive(t, list[2].Probes[0].SmallUS)
	require.Zero(t, list[2].Probes[0].LargeUS)

	rules := rulesOf(list, true)
	require.Equal(t, list[1].To, rules[0].To)
	require.Equal(t, list[1].To+1, rules[1].From)
	var text bytes.Buffer
	(&tuneTable{w: &text}).bounds(list)
	require.Regexp(t, `(?m)^ +4080 +f32 +twoshot-pull +3x96 +[\d.]+ \| +copy by size +- \| +\d{4} +2$`, text.String())
	require.Regexp(t, `(?m)^ +4096 +f32 +copy by size +- \| +oneshot-push by size +[\d.]+ \| +4112 +1$`, text.String())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	list[1].Probes = nil
	require.ErrorIs(t, tn.bounds(ctx, c, list), errInterrupted)
	require.Empty(t, list[1].Probes)
}

// Rules follow each other without gap or overlap wherever the changes are.
func TestTuneRulesMeet(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var list []tuneChoice
		for bytes := uint64(1024); bytes <= 1<<20; bytes *= 2 {
			c := tuneChoice{Ranks: 4, Bytes: bytes, To: bytes, grid: allreduce.Rule{Algorithm: allreduce.OneshotPush, Blocks: rng.IntN(3)}}
			if n := len(list); n > 0 && !sameChoice(list[n-1].grid, c.grid) {
				list[n-1].To += rng.Uint64N(bytes - list[n-1].Bytes)
			}
			list = append(list, c)
		}
		rules := rulesOf(list, false)
		require.Zero(t, rules[0].From)
		require.Equal(t, uint64(1<<20), rules[len(rules)-1].To)
		for i, r := range rules[1:] {
			require.Equal(t, rules[i].To+1, r.From)
			require.GreaterOrEqual(t, r.To, r.From)
			require.False(t, sameChoice(rules[i], r))
		}
		for _, c := range list {
			for _, r := range rules {
				if r.From <= c.Bytes && c.Bytes <= r.To {
					require.True(t, sameChoice(r, c.grid), "what was the fastest for a size is taken there")
				}
			}
		}
	}
}
