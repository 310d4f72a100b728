package allreduce

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/launcher"
)

// A rank that gives up sends nothing more, not even what a call sends to refresh unused slots: peers may still wait for what an earlier
// call sent there.
func TestFailedSendsNothing(t *testing.T) {
	rt := openAny(t)
	const first = refresh - 1 // the first call refreshes
	for _, alg := range []Algorithm{TwoshotPush, TwoshotWide} {
		for _, world := range []int{3, 4} {
			t.Run(fmt.Sprintf("%v/%d", alg, world), func(t *testing.T) {
				absent := world - 1
				g := newGroup(t, rt, Config{Ranks: world, Algorithm: alg, Timeout: 300 * time.Millisecond, FirstEpoch: first, MaxBytes: 16 << 10})
				r := newRig(t, g, 4096)
				c := trial{count: 500, dt: BF16}
				r.fill(c)
				in, out, _, _ := r.views(c)
				for p := range absent {
					require.NoError(t, g.Rank(p).AllReduce(in[p], out[p], c.count, c.dt))
				}
				ctx, cancel := r.ctx()
				defer cancel()
				for p := range absent { // all wait for the absent rank's parts, and so send no sums
					var stuck *flags.StuckError
					require.ErrorAs(t, g.Rank(p).Sync(ctx), &stuck)
					require.Equal(t, absent, stuck.Peer)
				}
				for p := range world {
					box := g.Rank(p).scratch.box[alg]
					got := make([]byte, box.Size()) // parts, and then as many sums
					require.NoError(t, g.Rank(p).Stream().CopyOut(ctx, got, box))
					require.NotEqual(t, repeat(first, len(got)/2), got[:len(got)/2], "parts for rank %d", p)
					require.Equal(t, repeat(first, len(got)/2), got[len(got)/2:], "sums for rank %d", p)
				}
			})
		}
	}
}

// A rank that never arrives fails the call on all others within the timeout and is named. The group refuses
// further work; the devices do not mind.
func TestAbsentRank(t *testing.T) {
	rt := openAny(t)
	for _, alg := range everyAlgorithm {
		for _, absent := range []int{0, 2} {
			t.Run(alg.String(), func(t *testing.T) {
				const timeout = 300 * time.Millisecond
				g := newGroup(t, rt, Config{Ranks: 3, Algorithm: alg, Timeout: timeout})
				r := newRig(t, g, 4096)
				r.run(trial{count: 1000, dt: F32})
				c := trial{count: 1000, dt: F32}
				r.fill(c)
				in, out, _, _ := r.views(c)
				errs := make([]error, 3)
				start := time.Now()
				ctx, cancel := r.ctx()
				defer cancel()
				require.NoError(t, g.Each(ctx, func(ctx context.Context, k *Rank) error {
					if k.ID() == absent {
						return nil
					}
					err := k.AllReduce(in[k.ID()], out[k.ID()], c.count, c.dt)
					if err == nil {
						err = k.Sync(ctx)
					}
					errs[k.ID()] = err
					return nil
				}))
				require.Less(t, time.Since(start), timeout+10*time.Second)
				for p, err := range errs {
					if p == absent {
						continue
					}
					var stuck *flags.StuckError
					var gone *AbsentError
					switch {
					case errors.As(err, &stuck):
						require.Equal(t, []int{absent}, stuck.Missing, "rank %d: %v", p, err)
						require.Equal(t, absent, stuck.Peer)
						require.EqualValues(t, 2, stuck.Wanted)
						slot, seen := flags.Start, 1 // the good call's epoch
						if alg.pushes() {
							slot = flags.Packet
							if !alg.twoshot() {
								seen = 0 // its packets are in the other half
							}
						}
						require.Equal(t, slot, stuck.Slot)
						require.EqualValues(t, seen, stuck.Seen)
						if !alg.pushes() { // their blocks give up one by one
							require.Zero(t, stuck.Block)
						}
					case errors.As(err, &gone):
						require.Equal(t, []int{absent}, gone.Missing, "rank %d: %v", p, err)
					default:
						t.Fatalf("rank %d: %v", p, err)
					}
				}
				err := g.AllReduce(in, out, c.count, c.dt)
				require.ErrorIs(t, err, ErrFailed)
				require.ErrorContains(t, err, "make a new one")
				require.ErrorIs(t, g.Rank(absent).AllReduce(in[absent], out[absent], c.count, c.dt), ErrFailed)
				require.ErrorIs(t, g.Rank(absent).Sync(ctx), ErrFailed)
				_, err = g.Capture(func() error { return nil })
				require.ErrorIs(t, err, ErrFailed)
				require.NoError(t, g.Close())
				require.ErrorIs(t, g.AllReduce(in, out, c.count, c.dt), ErrClosed)

				again := newGroup(t, rt, Config{Ranks: 3, Algorithm: alg, Timeout: timeout * 30})
				r2 := newRig(t, again, 4096)
				r2.run(trial{count: 1000, dt: F32})
			})
		}
	}
}

// Calls queued behind one that fails end at once instead of each waiting out its own timeout, whatever their algorithms.
func TestFailureIsNotPaidTwice(t *testing.T) {
	const timeout, calls = 300 * time.Millisecond, 50
	g := newGroup(t, openAny(t), Config{Ranks: 2, Timeout: timeout, Table: turns()})
	r := newRig(t, g, 4096)
	in, out, _, _ := r.views(trial{count: 100})
	start := time.Now()
	for i := range uint64(calls) {
		require.NoError(t, g.Rank(0).AllReduce(in[0], out[0], 100-i%8, F32))
	}
	ctx, cancel := r.ctx()
	defer cancel()
	err := g.Sync(ctx)
	require.ErrorIs(t, err, flags.ErrTimeout)
	require.Less(t, time.Since(start), calls*timeout/3)
}

// Ranks whose calls differ fail alike, and no output is written.
func TestMismatch(t *testing.T) {
	rt := openAny(t)
	for _, alg := range everyAlgorithm {
		t.Run(alg.String(), func(t *testing.T) {
			g := newGroup(t, rt, Config{Ranks: 3, Algorithm: alg, Timeout: 20 * time.Second})
			r := newRig(t, g, 4096)
			c := trial{count: 1000, dt: F32}
			inputs, _ := r.fill(c)
			in, out, _, _ := r.views(c)
			errs := make([]error, 3)
			ctx, cancel := r.ctx()
			defer cancel()
			start := time.Now()
			require.NoError(t, g.Each(ctx, func(ctx context.Context, k *Rank) error {
				count := c.count
				if k.ID() == 1 {
					count--
				}
				errs[k.ID()] = k.AllReduce(in[k.ID()], out[k.ID()], count, c.dt)
				if errs[k.ID()] == nil {
					errs[k.ID()] = k.Sync(ctx)
				}
				return nil
			}))
			require.Less(t, time.Since(start), 15*time.Second, "found by comparison, not by waiting")
			for p, err := range errs {
				require.ErrorIs(t, err, ErrMismatch, "rank %d", p)
				require.ErrorContains(t, err, "differ in count", "rank %d", p)
			}
			for p := range 3 { // outputs are as fill left them
				got := make([]byte, c.size())
				require.NoError(t, g.Rank(p).Stream().CopyOut(ctx, got, out[p]))
				require.Equal(t, strings.Repeat("\xa5", len(got)), string(got))
				require.Len(t, inputs[p], len(got))
			}
		})
	}
}

// Bad arguments are refused, name the rank, and leave the group working.
func TestBadArguments(t *testing.T) {
	rt := openAny(t)
	g := newGroup(t, rt, Config{Ranks: 2})
	r := newRig(t, g, 4096)
	c := trial{count: 100, dt: F32}
	host, err := rt.AllocHost(4096)
	require.NoError(t, err)
	defer func() { require.NoError(t, host.Free()) }()
	freed, err := rt.Alloc(0, 4096)
	require.NoError(t, err)
	require.NoError(t, freed.Free())
	for name, c2 := range map[string]struct {
		change func(in, out []launcher.Buffer) (count uint64, dt DType)
		want   string
	}{
		"null input":   {func(in, out []launcher.Buffer) (uint64, DType) { in[1] = launcher.Buffer{}; return 100, F32 }, "rank 1: in: not usable memory"},
		"freed output": {func(in, out []launcher.Buffer) (uint64, DType) { out[1] = freed; return 100, F32 }, "rank 1: out: not usable memory"},
		"host memory":  {func(in, out []launcher.Buffer) (uint64, DType) { in[0] = host.Buffer(); return 100, F32 }, "rank 0: in: memory of device -1, the rank is on device 0"},
		"short":        {func(in, out []launcher.Buffer) (uint64, DType) { return 101, F32 }, "rank 0: in: 400 bytes, the call needs 404"},
		"overflow":     {func(in, out []launcher.Buffer) (uint64, DType) { return math.MaxUint64/2 + 1, F32 }, "rank 0: count: 9223372036854775808 elements of f32 do not fit"},
		"huge":         {func(in, out []launcher.Buffer) (uint64, DType) { return 1 << 61, F32 }, "rank 0: count"},
		"dtype":        {func(in, out []launcher.Buffer) (uint64, DType) { return 1, DType(9) }, "dtype: 9 is none of [f32 f16 bf16]"},
		"misaligned": {func(in, out []launcher.Buffer) (uint64, DType) {
			in[1], err = r.arenas[1].in.Slice(guard+1, 400)
			require.NoError(t, err)
			return 100, F32
		}, "rank 1: in: address"},
		"overlap": {func(in, out []launcher.Buffer) (uint64, DType) {
			out[0], err = r.arenas[0].in.Slice(guard+16, 400)
			require.NoError(t, err)
			return 100, F32
		}, "rank 0: out: 400 bytes"},
		"ranks": {func(in, out []launcher.Buffer) (uint64, DType) { return 0, F32 }, "in, out: 1 and 2 buffers for 2 ranks"},
	} {
		t.Run(name, func(t *testing.T) {
			in, out, _, _ := r.views(c)
			count, dt := c2.change(in, out)
			if name == "ranks" {
				in = in[:1]
			}
			err := g.AllReduce(in, out, count, dt)
			require.ErrorIs(t, err, ErrInvalidArgument)
			require.ErrorContains(t, err, c2.want)
			r.run(c)
		})
	}
	_, err = g.Plan(math.MaxUint64, F32)
	require.ErrorIs(t, err, ErrInvalidArgument)
	_, err = g.Register(nil)
	require.ErrorIs(t, err, ErrInvalidArgument)
	in, out, _, _ := r.views(c)
	_, err = g.Register([]launcher.Buffer{in[0], {}})
	require.ErrorContains(t, err, "rank 1: register: not usable memory")
	short, err := out[1].Slice(0, 8)
	require.NoError(t, err)
	_, err = g.Register([]launcher.Buffer{in[0], short})
	require.ErrorContains(t, err, "8 bytes, rank 0 has 400")
}

func TestBadConfig(t *testing.T) {
	rt := openEmu(t, "one-way", 3)
	kinds := []error{ErrInvalidArgument, ErrUnknownName, ErrNoPlan}
	for want, cfg := range map[string]Config{
		"4 ranks on 3 device(s): ask for sharing": {Ranks: 4},
		"17 ranks: use 1 to 16":                   {Ranks: 17, Share: true},
		"-1 ranks":                                {Ranks: -1},
		"2 devices listed for 3 ranks":            {Ranks: 3, Devices: []int{0, 1}},
		"device 3: there are 0 to 2":              {Devices: []int{0, 3}},
		"device 1 already serves rank 0":          {Devices: []int{1, 1}},
		"100 is not a multiple of 16":             {MaxBytes: 100},
		"is above 32 GiB":                         {MaxBytes: 1 << 50},
		"Timeout: -1ns: use 1ms to 24h0m0s":       {Timeout: -1},
		"Timeout: 1µs: use 1ms to 24h0m0s":        {Timeout: time.Microsecond},
		"use 1ms to 24h0m0s, or 0 for 10s":        {Timeout: math.MaxInt64},
		"Blocks: 65":                              {Blocks: 65},
		"Threads: 33":                             {Threads: 33},
		"unknown algorithm \"99\"":                {Algorithm: 99},
		"MaxBytes: 8 is not":                      {MaxBytes: 8},
		"PushBytes: 8: use a multiple of 16":      {PushBytes: 8},
		"PushBytes: 8589934592: use a multiple":   {PushBytes: 8 << 30},
		"table: rule 0 prefers":                   {Table: Table{{}}},
		"1→0: device 1 cannot read":               {Algorithm: OneshotPull},
	} {
		_, err := NewGroup(rt, cfg)
		require.ErrorContains(t, err, want)
		require.True(t, slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) }), "%v", err)
	}
}

// More blocks than can be resident together would wait for each other for ever.
func TestResidency(t *testing.T) {
	rt := openAny(t)
	_, err := NewGroup(rt, Config{Ranks: 16, Share: true, Devices: make([]int, 16), Algorithm: OneshotPull, Blocks: 64, Threads: 512})
	require.ErrorIs(t, err, ErrNoPlan)
	require.ErrorContains(t, err, "block(s) of 512 threads per rank are wanted and there is room for")
}

func TestCloseTwice(t *testing.T) {
	g := newGroup(t, openAny(t), Config{Ranks: 2})
	require.NoError(t, g.Close())
	require.NoError(t, g.Close())
	_, err := g.Register(nil)
	require.ErrorIs(t, err, ErrClosed)
	_, err = g.Capture(nil)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, g.Rank(0).Sync(context.Background()), ErrClosed)
}
