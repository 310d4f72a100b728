package allreduce

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/launcher"
)

// A rank that has timed out stages nothing more, so what it staged in an earlier call stays for a late peer.
func TestPoisonedRankStagesNothing(t *testing.T) {
	g, err := NewGroup(openAny(t), Config{Ranks: 2, Share: true, Algorithm: OneshotPull, MaxBytes: 1 << 16, Timeout: 200 * time.Millisecond})
	require.NoError(t, err)
	defer g.Close()
	r := newRig(t, g, 4096)
	in, out, _, _ := r.views(trial{count: 1000, dt: F32})
	ctx, cancel := r.ctx()
	defer cancel()
	stage := func() []uint32 { return r.words(0, g.Rank(0).scratch.stage) }
	for i := range 3 { // the first times out, the others find the rank poisoned
		require.NoError(t, g.Rank(0).stream.CopyIn(ctx, in[0], payload(r.rng, F32, 1000)))
		require.NoError(t, g.Rank(0).AllReduce(in[0], out[0], 1000, F32))
		require.NoError(t, g.Rank(0).stream.Sync(ctx))
		if i == 0 {
			defer func(first []uint32) { require.Equal(t, first, stage()) }(stage())
		}
	}
	// Nor does the late peer take what it can still compute for a success.
	require.NoError(t, g.Rank(1).AllReduce(in[1], out[1], 1000, F32))
	require.ErrorIs(t, g.Rank(1).Sync(ctx), ErrFailed)
}

// Ranks that share a device could be given each other's memory.
func TestOverlapAcrossRanks(t *testing.T) {
	rt := openAny(t)
	for _, alg := range everyAlgorithm {
		t.Run(alg.String(), func(t *testing.T) {
			g := newGroup(t, rt, Config{Ranks: 2, Devices: []int{0, 0}, Algorithm: alg})
			r := newRig(t, g, 4096)
			c := trial{count: 500, dt: F32}
			for want, change := range map[string]func(in, out []launcher.Buffer){
				"rank 0: out: 2000 bytes at": func(in, out []launcher.Buffer) { out[0] = in[1] },
				"overlap out of rank":        func(in, out []launcher.Buffer) { out[0] = out[1] },
				"overlap in of rank 1": func(in, out []launcher.Buffer) {
					var err error
					out[0], err = r.arenas[1].in.Slice(guard+1000, 2000)
					require.NoError(t, err)
				},
				"overlap in of rank": func(in, out []launcher.Buffer) { in[0], out[0], out[1] = in[1], in[1], in[1] },
			} {
				in, out, _, _ := r.views(c)
				change(in, out)
				err := g.AllReduce(in, out, c.count, c.dt)
				require.ErrorIs(t, err, ErrInvalidArgument)
				require.ErrorContains(t, err, want)
			}
			in, out, _, _ := r.views(c)
			in[0] = in[1] // reading the same is fine
			require.NoError(t, g.AllReduce(in, out, c.count, c.dt))
			r.sync()
		})
	}
}

// Whole-group calls and replays from several goroutines are queued one after another.
func TestConcurrentCalls(t *testing.T) {
	rt := openAny(t)
	for _, alg := range everyAlgorithm {
		t.Run(alg.String(), func(t *testing.T) {
			g := newGroup(t, rt, Config{Ranks: 3, Algorithm: alg})
			const callers, rounds = 4, 6
			rigs := make([]*rig, callers)
			for i := range rigs {
				rigs[i] = newRig(t, g, 4096)
			}
			for round := range rounds {
				var wg sync.WaitGroup
				inputs, wants := make([][][]byte, callers), make([][]byte, callers)
				trials := make([]trial, callers)
				errs := make([]error, callers)
				for i, r := range rigs {
					trials[i] = trial{count: uint64(100 + 200*i + round), dt: DTypes()[i%3]}
					inputs[i], wants[i] = r.fill(trials[i])
				}
				for i, r := range rigs {
					in, out, _, _ := r.views(trials[i])
					wg.Go(func() { errs[i] = g.AllReduce(in, out, trials[i].count, trials[i].dt) })
				}
				wg.Wait()
				require.NoError(t, errors.Join(errs...))
				rigs[0].sync()
				for i, r := range rigs {
					r.verify(trials[i], inputs[i], wants[i])
				}
			}
		})
	}
}

// A rank that does not exist refuses everything, and so does what it gives.
func TestNoSuchRank(t *testing.T) {
	rt := openAny(t)
	g := newGroup(t, rt, Config{Ranks: 2})
	r := newRig(t, g, 4096)
	in, out, _, _ := r.views(trial{count: 100, dt: F32})
	for _, n := range []int{-1, 2, 9} {
		k := g.Rank(n)
		err := k.AllReduce(in[0], out[0], 100, F32)
		require.ErrorIs(t, err, ErrInvalidArgument)
		require.EqualError(t, err, fmt.Sprintf("all-reduce: rank: there is no rank %d: use 0 to 1", n))
		require.ErrorIs(t, k.Sync(context.Background()), ErrInvalidArgument)
		require.Equal(t, n, k.ID())
		require.Equal(t, -1, k.Device())
		require.ErrorIs(t, k.Stream().Sync(context.Background()), launcher.ErrInvalidValue)
		_, err = rt.Alloc(k.Device(), 64)
		require.ErrorIs(t, err, launcher.ErrInvalidValue)
	}
	r.run(trial{count: 100, dt: F32})
}

// What is nil, zero or closed is refused, and nothing panics.
func TestNothingGiven(t *testing.T) {
	_, err := NewGroup(nil, Config{})
	require.ErrorIs(t, err, ErrInvalidArgument)
	require.ErrorContains(t, err, "launcher.Open")
	_, err = NewGroup(&launcher.Runtime{}, Config{})
	require.ErrorIs(t, err, ErrInvalidArgument)
	closed, err := launcher.Open(launcher.Config{Backend: launcher.Emu})
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	_, err = NewGroup(closed, Config{})
	require.ErrorIs(t, err, launcher.ErrClosed)
	g := newGroup(t, openAny(t), Config{Ranks: 2})
	require.ErrorIs(t, g.AllReduce(nil, nil, 1, F32), ErrInvalidArgument)
	require.ErrorIs(t, g.Each(context.Background(), nil), ErrInvalidArgument)
	_, err = g.Capture(nil)
	require.ErrorIs(t, err, ErrInvalidArgument)
	_, _, err = Choose(nil, nil, Auto)
	require.ErrorIs(t, err, ErrInvalidArgument)
	_, _, err = Choose(machine("X"), []int{1}, Auto)
	require.ErrorIs(t, err, ErrInvalidArgument)
	_, err = Select(SelectInput{})
	require.ErrorIs(t, err, ErrInvalidArgument)
	require.ErrorIs(t, Reference(F32, nil), ErrInvalidArgument)
}

func TestForeignRuntime(t *testing.T) {
	g := newGroup(t, openEmu(t, "nvlink", 2), Config{Ranks: 2})
	r := newRig(t, g, 4096)
	in, out, _, _ := r.views(trial{count: 10, dt: F32})
	other := openEmu(t, "nvlink", 2)
	b, err := other.Alloc(1, 4096)
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Free()) }()
	err = g.AllReduce([]launcher.Buffer{in[0], b}, out, 10, F32)
	require.ErrorIs(t, err, ErrInvalidArgument)
	require.ErrorContains(t, err, "rank 1: in: memory of another runtime")
	_, err = g.Register([]launcher.Buffer{in[0], b})
	require.ErrorContains(t, err, "memory of another runtime")
}

// Groups on one device share its room: what they may launch together is resident together.
func TestResidencyLedger(t *testing.T) {
	rt := openEmu(t, "nvlink", 1)
	var groups []*Group
	for range 100 {
		g, err := NewGroup(rt, Config{Ranks: 8, Share: true, Algorithm: OneshotPull, MaxBytes: 1 << 18, Timeout: 20 * time.Second})
		if err != nil {
			require.ErrorIs(t, err, ErrNoPlan)
			require.ErrorContains(t, err, "with the groups that exist")
			break
		}
		groups = append(groups, g)
	}
	require.NotEmpty(t, groups)
	// Left to choose, a group that finds no room takes the next rung.
	crowded := newRig(t, newGroup(t, rt, Config{Ranks: 8}), 4096)
	plan, err := crowded.g.Plan(1000, F32)
	require.NoError(t, err)
	require.Equal(t, Copy, plan.Algorithm)
	require.Contains(t, plan.Reason, "with the groups that exist and an SM left empty, so direct kernels cannot run")
	crowded.run(trial{count: 1000, dt: F32})
	require.Less(t, len(groups), 20)
	// Queued rank by rank, as badly as possible, all of them end.
	var rigs []*rig
	c := trial{count: 1 << 16, dt: F32}
	for _, g := range groups {
		rigs = append(rigs, newRig(t, g, c.size()))
	}
	inputs, wants := make([][][]byte, len(rigs)), make([][]byte, len(rigs))
	for i, r := range rigs {
		inputs[i], wants[i] = r.fill(c)
	}
	for p := range 8 {
		for _, r := range rigs {
			in, out, _, _ := r.views(c)
			require.NoError(t, r.g.Rank(p).AllReduce(in[p], out[p], c.count, c.dt))
		}
	}
	for i, r := range rigs {
		r.sync()
		r.verify(c, inputs[i], wants[i])
		require.NoError(t, r.g.Close())
	}
	g := newGroup(t, rt, Config{Ranks: 8}) // the room is free again
	require.Positive(t, g.rooms[OneshotPull][512/32])
	require.NoError(t, g.Close())
	residency.mu.Lock()
	defer residency.mu.Unlock()
	require.NotContains(t, residency.taken, g.place(0))
}

// Captures in which the ranks differ, or that fail, are refused and leave the group working.
func TestCaptureRefused(t *testing.T) {
	rt := openAny(t)
	mine := errors.New("mine")
	cases := map[string]struct {
		queue func(r *rig, in, out []launcher.Buffer) error
		want  error
	}{
		"one rank": {func(r *rig, in, out []launcher.Buffer) error {
			return r.g.Rank(0).AllReduce(in[0], out[0], 100, F32)
		}, ErrInvalidArgument},
		"other counts": {func(r *rig, in, out []launcher.Buffer) error {
			_ = r.g.Rank(0).AllReduce(in[0], out[0], 100, F32)
			_ = r.g.Rank(1).AllReduce(in[1], out[1], 99, F32)
			return nil
		}, ErrMismatch},
		"own error": {func(r *rig, in, out []launcher.Buffer) error {
			_ = r.g.Rank(0).AllReduce(in[0], out[0], 100, F32)
			return mine
		}, mine},
		"sync inside": {func(r *rig, in, out []launcher.Buffer) error {
			return r.g.Sync(context.Background())
		}, ErrInvalidArgument},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t, rt, Config{Ranks: 2})
			r := newRig(t, g, 4096)
			in, out, _, _ := r.views(trial{count: 100, dt: F32})
			_, err := g.Capture(func() error { return c.queue(r, in, out) })
			require.ErrorIs(t, err, c.want)
			r.run(trial{count: 100, dt: F32})
		})
	}
	// Where ranks wait for each other, one after the other in one goroutine wait in vain; but it costs only the capture.
	for _, alg := range []Algorithm{Copy, Host} {
		for name, c := range cases {
			t.Run(alg.String()+"/"+name, func(t *testing.T) {
				g := newGroup(t, rt, Config{Ranks: 2, Algorithm: alg, Timeout: 50 * time.Millisecond})
				g.cfg.Timeout = 50 * time.Millisecond
				r := newRig(t, g, 4096)
				in, out, _, _ := r.views(trial{count: 100, dt: F32})
				want := c.want
				if name == "one rank" || name == "other counts" {
					want = ErrAbsent
				}
				_, err := g.Capture(func() error { return c.queue(r, in, out) })
				require.ErrorIs(t, err, want)
				g.cfg.Timeout = 20 * time.Second
				r.run(trial{count: 100, dt: F32})
				r.runEach(trial{count: 100, dt: BF16})
			})
		}
	}
}

// Ranks captured from a goroutine each: those that agree give a graph; one that differs, or stays away, fails the
// capture at once or after the timeout, on every rank, and nothing else.
func TestCaptureEachRank(t *testing.T) {
	rt := openAny(t)
	for _, alg := range everyAlgorithm {
		t.Run(alg.String(), func(t *testing.T) {
			g := newGroup(t, rt, Config{Ranks: 3, Algorithm: alg, MaxBytes: 1024})
			r := newRig(t, g, 4096)
			c := trial{count: 700, dt: F32} // three pieces
			in, out, _, _ := r.views(c)
			capture := func(count func(r *Rank) uint64, errs []error) (*Graph, error) {
				return g.Capture(func() error {
					return g.Each(context.Background(), func(_ context.Context, k *Rank) error {
						if n := count(k); n != 0 {
							errs[k.ID()] = k.AllReduce(in[k.ID()], out[k.ID()], n, c.dt)
						}
						return nil
					})
				})
			}
			errs := make([]error, 3)
			start := time.Now()
			_, err := capture(func(k *Rank) uint64 { return c.count - uint64(k.ID()/2) }, errs)
			require.ErrorIs(t, err, ErrMismatch)
			require.ErrorContains(t, err, "differ in count")
			require.Less(t, time.Since(start), g.cfg.Timeout/2, "found by comparison, not by waiting")
			require.ErrorIs(t, errors.Join(errs...), ErrMismatch)
			if !alg.Direct() {
				for p, err := range errs {
					require.ErrorIs(t, err, ErrMismatch, "rank %d", p)
				}
				timeout := g.cfg.Timeout
				g.cfg.Timeout = 50 * time.Millisecond
				_, err = capture(func(k *Rank) uint64 { return c.count * uint64(min(k.ID(), 1)) }, errs)
				var absent *AbsentError
				require.ErrorAs(t, err, &absent)
				require.Equal(t, []int{0}, absent.Missing)
				require.ErrorContains(t, err, "use Group.AllReduce, or a goroutine per rank")
				g.cfg.Timeout = timeout
			}
			require.NoError(t, g.Err())
			r.run(c)
			gr, err := capture(func(*Rank) uint64 { return c.count }, errs)
			require.NoError(t, err)
			inputs, want := r.fill(c)
			require.NoError(t, gr.Launch())
			r.sync()
			r.verify(c, inputs, want)
		})
	}
}

// A call made after queue has returned, by a goroutine that was left behind, is refused; or it comes so late that it
// is a call like any other.
func TestCaptureLeftBehind(t *testing.T) {
	g := newGroup(t, openAny(t), Config{Ranks: 2, Algorithm: Copy, Timeout: time.Minute})
	r := newRig(t, g, 4096)
	in, out, _, _ := r.views(trial{count: 100, dt: F32})
	late := make(chan error)
	_, err := g.Capture(func() error {
		go func() { late <- g.Rank(0).AllReduce(in[0], out[0], 100, F32) }()
		time.Sleep(100 * time.Millisecond) // it waits for rank 1 by now
		return nil
	})
	require.ErrorIs(t, err, ErrInvalidArgument)
	err = <-late
	require.ErrorIs(t, err, ErrInvalidArgument)
	require.ErrorContains(t, err, "the capture has ended")
	r.run(trial{count: 100, dt: F32})
}

// Close in the middle of a capture ends it.
func TestCloseDuringCapture(t *testing.T) {
	g := newGroup(t, openAny(t), Config{Ranks: 2, Algorithm: Host, Timeout: time.Minute})
	r := newRig(t, g, 4096)
	in, out, _, _ := r.views(trial{count: 100, dt: F32})
	start := time.Now()
	closed := make(chan error)
	_, err := g.Capture(func() error {
		timeout := g.cfg.Timeout
		g.cfg.Timeout = 50*time.Millisecond - 5*time.Second
		require.ErrorIs(t, g.Close(), ErrBusy, "it cannot end the capture that it is called in")
		g.cfg.Timeout = timeout
		return nil
	})
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, g.Err())
	r.run(trial{count: 100, dt: F32})
	_, err = g.Capture(func() error {
		go func() {
			time.Sleep(50 * time.Millisecond)
			closed <- g.Close()
		}()
		return g.Rank(0).AllReduce(in[0], out[0], 100, F32)
	})
	require.ErrorIs(t, err, ErrClosed)
	require.NoError(t, <-closed)
	require.Less(t, time.Since(start), 20*time.Second)
}

// A loop over the ranks in one goroutine cannot work where they wait for each other. The error says so.
func TestRankByRank(t *testing.T) {
	rt := openAny(t)
	for _, alg := range []Algorithm{Copy, Host} {
		g := newGroup(t, rt, Config{Ranks: 2, Algorithm: alg, Timeout: 50 * time.Millisecond})
		r := newRig(t, g, 4096)
		in, out, _, _ := r.views(trial{count: 100, dt: F32})
		err := g.Rank(0).AllReduce(in[0], out[0], 100, F32)
		require.ErrorIs(t, err, ErrAbsent)
		require.EqualError(t, err, "rank 0, before the copies: rank(s) 1 did not come within 50ms: with copy and host the ranks wait "+
			"for each other inside the call, so that one goroutine cannot make their calls one after another: use Group.AllReduce, or a goroutine per rank")
	}
}

func TestCapturePanics(t *testing.T) {
	rt := openAny(t)
	for _, alg := range everyAlgorithm {
		t.Run(alg.String(), func(t *testing.T) {
			g := newGroup(t, rt, Config{Ranks: 3, Algorithm: alg})
			r := newRig(t, g, 4096)
			require.PanicsWithValue(t, "user", func() { _, _ = g.Capture(func() error { panic("user") }) })
			r.run(trial{count: 100, dt: F32})
		})
	}
}

// One rank after the other, with more calls than ranks may be ahead of each other outside a capture.
func TestCaptureRankByRank(t *testing.T) {
	g := newGroup(t, openAny(t), Config{Ranks: 2})
	r := newRig(t, g, 4096)
	c := trial{count: 100, dt: F32}
	in, out, _, _ := r.views(c)
	gr, err := g.Capture(func() error {
		for p := range g.World() {
			for range ahead + 44 {
				if err := g.Rank(p).AllReduce(in[p], out[p], c.count, c.dt); err != nil {
					return err
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	inputs, want := r.fill(c)
	require.NoError(t, gr.Launch())
	r.sync()
	r.verify(c, inputs, want)
	r.run(c)
}

func TestGraphAfterClose(t *testing.T) {
	rt := openAny(t)
	for _, alg := range everyAlgorithm {
		g := newGroup(t, rt, Config{Ranks: 2, Algorithm: alg})
		gr, err := g.Capture(func() error { return nil })
		require.NoError(t, err)
		require.NoError(t, gr.Launch())
		require.NoError(t, gr.Close())
		err = gr.Launch()
		require.ErrorIs(t, err, ErrGraphClosed)
		require.NotErrorIs(t, err, ErrClosed)
		require.EqualError(t, err, "the graph is closed")
		gr, err = g.Capture(func() error { return nil })
		require.NoError(t, err)
		require.NoError(t, g.Close())
		require.ErrorIs(t, gr.Launch(), ErrClosed)
	}
}

func TestOverlappingRegistrations(t *testing.T) {
	g := newGroup(t, openAny(t), Config{Ranks: 2})
	r := newRig(t, g, 4096)
	in, out, _, _ := r.views(trial{count: 100, dt: F32})
	reg, err := g.Register(in)
	require.NoError(t, err)
	_, err = g.Register([]launcher.Buffer{in[0], out[1]})
	require.ErrorIs(t, err, ErrInvalidArgument)
	require.ErrorContains(t, err, "rank 0: register: 400 bytes at")
	require.NoError(t, reg.Close())
	reg, err = g.Register([]launcher.Buffer{in[0], out[1]})
	require.NoError(t, err)
	require.NoError(t, reg.Close())
}

// A failure that no Sync has seen is reported by Close, once.
func TestCloseReportsFailure(t *testing.T) {
	g, err := NewGroup(openAny(t), Config{Ranks: 2, Share: true, MaxBytes: 4096, Timeout: 100 * time.Millisecond})
	require.NoError(t, err)
	r := newRig(t, g, 4096)
	in, out, _, _ := r.views(trial{count: 100, dt: F32})
	require.NoError(t, g.Rank(0).AllReduce(in[0], out[0], 100, F32))
	err = g.Close()
	require.ErrorIs(t, err, flags.ErrTimeout)
	require.ErrorContains(t, err, "waiting for rank 1")
	require.NoError(t, g.Close())
}

// Close that could not wait long enough frees nothing, and can be called again.
func TestCloseAgainAfterBusy(t *testing.T) {
	rt := openAny(t)
	g := newGroup(t, rt, Config{Ranks: 1})
	pause(t, rt, g.Rank(0).Stream(), 500*time.Millisecond)
	timeout := g.cfg.Timeout
	g.cfg.Timeout = 50*time.Millisecond - 5*time.Second
	require.ErrorIs(t, g.Close(), ErrBusy)
	g.cfg.Timeout = timeout
	require.NoError(t, g.Close()) // and the runtime's own check finds no leak
}

// Close wakes ranks that wait for others on the host.
func TestCloseWakesWaiting(t *testing.T) {
	rt := openAny(t)
	for _, alg := range []Algorithm{Copy, Host} {
		t.Run(alg.String(), func(t *testing.T) {
			g := newGroup(t, rt, Config{Ranks: 2, Algorithm: alg, Timeout: time.Minute})
			r := newRig(t, g, 4096)
			in, out, _, _ := r.views(trial{count: 100, dt: F32})
			done := make(chan error)
			go func() { done <- g.Rank(0).AllReduce(in[0], out[0], 100, F32) }()
			time.Sleep(20 * time.Millisecond)
			start := time.Now()
			require.NoError(t, g.Close())
			require.ErrorIs(t, <-done, ErrClosed)
			require.Less(t, time.Since(start), 20*time.Second)
		})
	}
}

// Sync, calls and Close may meet.
func TestCloseDuringUse(t *testing.T) {
	rt := openAny(t)
	for i := range 20 {
		g := newGroup(t, rt, Config{Ranks: 2})
		r := newRig(t, g, 4096)
		in, out, _, _ := r.views(trial{count: 100, dt: F32})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 50 {
					err := errors.Join(g.AllReduce(in, out, 100, F32), g.Sync(context.Background()))
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(i) * 200 * time.Microsecond)
		require.NoError(t, g.Close(), fmt.Sprint(i))
		wg.Wait()
	}
}

// A fault is met by every rank of a device, and by everything that Close does there. It is reported once.
func TestCloseReportsFaultOnce(t *testing.T) {
	for _, alg := range everyAlgorithm {
		t.Run(alg.String(), func(t *testing.T) {
			rt, err := launcher.Open(launcher.Config{Backend: launcher.Emu, Devices: 1}) // a GPU would be lost to later tests
			require.NoError(t, err)
			g, err := NewGroup(rt, Config{Ranks: 3, Share: true, Algorithm: alg, MaxBytes: 4096})
			require.NoError(t, err)
			m, err := rt.Load(0, "trap.ptx", []byte(".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry boom()\n{\n\ttrap;\n}\n"))
			require.NoError(t, err)
			k, err := m.Kernel("boom")
			require.NoError(t, err)
			args, err := k.Pack()
			require.NoError(t, err)
			require.NoError(t, k.Launch(g.Rank(1).Stream(), launcher.Linear(1, 1), args))
			err = g.Close()
			require.ErrorIs(t, err, launcher.ErrLaunchFailed)
			require.Equal(t, 1, strings.Count(err.Error(), "launch failed"), "%v", err)
			require.NoError(t, g.Close())
			_ = rt.Close() // may report what a faulted device does not free
		})
	}
}

func TestJoined(t *testing.T) {
	fault := &launcher.FaultError{Kind: launcher.ErrLaunchFailed, Device: 1}
	a, b := errors.New("a"), errors.New("b")
	require.NoError(t, joined())
	require.NoError(t, joined(nil, joined(nil)))
	require.Equal(t, a, joined(nil, a, errors.New("a")))
	err := joined(joined(fmt.Errorf("free: %w", fault), a), joined(fault, b), a)
	require.EqualError(t, err, "free: "+fault.Error()+"\na\nb")
	for _, want := range []error{launcher.ErrLaunchFailed, a, b} {
		require.ErrorIs(t, err, want)
	}
}
