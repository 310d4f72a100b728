package allreduce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/nccl"
	"github.com/fenceline/fenceline/internal/nccl/nccltest"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
)

// standIn makes a fake NCCL on emulated devices, one for each rank.
func standIn(t *testing.T, devices int) (*nccltest.Fake, *launcher.Runtime) {
	t.Helper()
	rt := openEmu(t, "nvlink", devices)
	f := &nccltest.Fake{Driver: rt.Driver(), Sum: func(dt nccl.DType, out []byte, in ...[]byte) error {
		return Reference(map[nccl.DType]DType{nccl.F32: F32, nccl.F16: F16, nccl.BF16: BF16}[dt], out, in...)
	}}
	t.Cleanup(nccl.StandIn(f.Load))
	return f, rt
}

// wholeInputs gives every rank numbers whose sums are exact in any order.
func (r *rig) wholeInputs(c trial) (inputs [][]byte, want []byte) {
	return r.fillWith(c, func(rng *rand.Rand, dt DType, n uint64) []byte {
		data := make([]byte, n*dt.Size())
		for i := range n {
			dt.Store(data[i*dt.Size():], float32(rng.IntN(17)-8))
		}
		return data
	})
}

// wholeCalls makes a call of the whole group and one of each rank by itself, on such numbers.
func (r *rig) wholeCalls(c trial) {
	r.t.Helper()
	inputs, want := r.wholeInputs(c)
	in, out, _, _ := r.views(c)
	require.NoError(r.t, r.g.AllReduce(in, out, c.count, c.dt))
	r.sync()
	r.verify(c, inputs, want)

	inputs, want = r.wholeInputs(c)
	ctx, cancel := r.ctx()
	require.NoError(r.t, r.g.Each(ctx, func(ctx context.Context, k *Rank) error {
		return errors.Join(k.AllReduce(in[k.ID()], out[k.ID()], c.count, c.dt), k.Sync(ctx))
	}))
	cancel()
	r.verify(c, inputs, want)
}

// Whole-group calls are one group of NCCL's each, and calls of ranks none; any size is one piece; and the end is a flush.
func TestNCCL(t *testing.T) {
	f, rt := standIn(t, 3)
	g, err := NewGroup(rt, Config{Algorithm: NCCL, MaxBytes: 1024})
	require.NoError(t, err)
	counts := f.Counts()
	require.Equal(t, 1, counts.Joins)
	require.Equal(t, 2, counts.Groups, "the first calls connect")
	for r, m := range counts.Members {
		require.Equal(t, nccl.Member{Device: r, Stream: g.Rank(r).Stream().Handle()}, m)
	}
	p, err := g.Plan(5000, F32)
	require.NoError(t, err)
	require.Equal(t, Plan{Algorithm: NCCL, Reason: "asked for; NCCL does not sum in rank order, so bits can differ from the reference", Pieces: 1}, p)
	require.Equal(t, "nccl: "+p.Reason, p.String())
	r := newRig(t, g, 40<<10)
	for _, c := range []trial{{count: 1}, {count: 5000, dt: F32}, {count: 777, dt: F16, inOff: 1, outOff: 2, skew: 5}, {count: 900, dt: BF16, inPlace: true}} {
		r.wholeCalls(c)
	}
	require.NoError(t, g.AllReduce(make([]launcher.Buffer, 3), make([]launcher.Buffer, 3), 0, F32))
	counts = f.Counts()
	require.Equal(t, [2]int{6, 12}, [2]int{counts.Groups, counts.Calls})
	require.NoError(t, g.Close())
	require.NoError(t, g.Close())
	counts = f.Counts()
	require.Equal(t, [2]int{1, 0}, [2]int{counts.Closes, counts.Aborts})
}

// A graph has NCCL's calls as it has direct kernels: one graph for each rank, whoever makes the calls.
func TestNCCLCapture(t *testing.T) {
	f, rt := standIn(t, 2)
	for _, cfg := range []Config{{Algorithm: NCCL}, {AllowNCCL: true, Table: Table{{DTypes: []DType{BF16}, Algorithm: NCCL}}}} {
		g := newGroup(t, rt, cfg)
		r := newRig(t, g, 4096)
		c := trial{count: 100, dt: BF16}
		in, out, _, outAt := r.views(c)
		for _, queue := range []func() error{
			func() error { return g.AllReduce(in, out, c.count, c.dt) },
			func() error { return g.Rank(0).AllReduce(in[0], out[0], c.count, c.dt) },
		} {
			f.Capturing.Store(true)
			gr, err := g.Capture(func() error {
				if err := queue(); err != nil || f.Counts().Captured%2 == 0 {
					return err
				}
				return g.Rank(1).AllReduce(in[1], out[1], c.count, c.dt)
			})
			f.Capturing.Store(false)
			require.NoError(t, err)
			require.Len(t, gr.execs, 2)
			r.fill(c)
			require.NoError(t, gr.Launch())
			r.sync()
			for p := range 2 {
				got := make([]byte, r.bytes)
				require.NoError(t, g.Rank(p).Stream().CopyOut(t.Context(), got, r.arenas[p].out))
				require.Equal(t, bytes.Repeat([]byte{nccltest.Mark}, int(c.size())), got[outAt[p]:outAt[p]+c.size()])
			}
			require.NoError(t, gr.Close())
		}
		require.Zero(t, g.nccl.made[0].Load(), "nothing was made by hand")
	}
	require.Equal(t, 8, f.Counts().Captured)
}

// Auto takes NCCL only where a rule asks for it and it is allowed; direct kernels do the rest in the same group, and in a graph.
func TestNCCLByTable(t *testing.T) {
	f, rt := standIn(t, 2)
	table := Table{{From: 4096, Algorithm: NCCL}}
	plan := func(cfg Config, count uint64) Plan {
		t.Helper()
		g := newGroup(t, rt, cfg)
		p, err := g.Plan(count, F32)
		require.NoError(t, err)
		return p
	}
	p := plan(Config{Table: table}, 2000)
	require.Equal(t, OneshotPush, p.Algorithm)
	require.Contains(t, p.Reason, "; a rule for nccl is passed over, for Config.AllowNCCL and FENCELINE_NCCL=1 do not allow it")
	require.NotContains(t, plan(Config{Table: table}, 200).Reason, "nccl", "no rule for such a call")
	allowed := newGroup(t, rt, Config{AllowNCCL: true})
	p, err := allowed.PlanBy(table, 2000, F32)
	require.NoError(t, err)
	require.Contains(t, p.Reason, "; a rule for nccl is passed over, for no rule of Config.Table asks for it, and it was not started")
	plan(Config{AllowNCCL: true, Table: Table{{World: 3, Algorithm: NCCL}}}, 2000)
	require.Zero(t, f.Counts().Joins, "who does not take it does not start it")
	p = plan(Config{Knobs: Knobs{NCCL: true}, Table: table}, 2000)
	require.Equal(t, NCCL, p.Algorithm)
	require.Equal(t, "the tuning table prefers it for 8000 bytes of f32 on 2 ranks; NCCL does not sum in rank order, so bits can differ from the reference", p.Reason)

	g := newGroup(t, rt, Config{AllowNCCL: true, Table: table})
	r := newRig(t, g, 40<<10)
	for _, c := range []trial{{count: 100, dt: F32}, {count: 2000, dt: F32}, {count: 100, dt: F16}, {count: 9000, dt: F32}, {count: 7, dt: F32}} {
		inputs, want := r.wholeInputs(c)
		in, out, _, _ := r.views(c)
		require.NoError(t, g.AllReduce(in, out, c.count, c.dt))
		r.sync()
		r.verify(c, inputs, want)
	}
	require.Equal(t, uint64(2), g.nccl.made[1].Load())

	// Where there are only copies, a graph is one for all ranks, and NCCL's kernels stay out of it.
	one := openEmu(t, "one-way", 2)
	f.Driver = one.Driver()
	g = newGroup(t, one, Config{AllowNCCL: true, Table: table})
	for captured, want := range map[bool]Algorithm{false: NCCL, true: Copy} {
		a, _ := g.policy.pick(table, 8000, F32, captured)
		require.Equal(t, want, a)
	}
}

// What cannot be used is refused by name, and passed over in a table.
func TestNCCLRefused(t *testing.T) {
	reach := machine("X1", "1X")
	liar := probed(2, passed, map[[2]int]topo.Measured{{0, 1}: {Read: garbage, Write: good, Flags: good}})
	emulated := machine("X1", "1X")
	emulated.Emulated = true
	missing := &nccl.Error{Op: "dlopen libnccl.so.2", Kind: nccl.ErrUnavailable, Text: "no such file", Detail: "install NCCL 2, or name its library"}
	for name, c := range map[string]struct {
		in   SelectInput
		want string
	}{
		"shared":   {SelectInput{Machine: reach, Devices: []int{0, 1, 0}}, "algorithm nccl: ranks 0 and 2 share device 0, and NCCL refuses two ranks on one device: use as many ranks as devices, or use auto, copy or host"},
		"emulated": {SelectInput{Machine: emulated, Devices: []int{0, 1}}, "algorithm nccl: the devices are emulated, and NCCL needs GPUs: run on GPUs, or use auto, copy or host"},
		"missing":  {SelectInput{Machine: reach, Devices: []int{0, 1}, NCCL: missing}, "algorithm nccl: dlopen libnccl.so.2: NCCL is unavailable (no such file): install NCCL 2, or name its library, or use auto, copy or host"},
		"other":    {SelectInput{Machine: reach, Devices: []int{0, 1}, NCCL: errors.New("it broke")}, "algorithm nccl: it broke: install NCCL 2, or use auto, copy or host"},
		"barred":   {SelectInput{Machine: reach, Devices: []int{0, 1}, Knobs: Knobs{P2PDisable: true}}, "algorithm nccl: FENCELINE_P2P_DISABLE=1 turns direct access off, and NCCL does not go by that: lift it and use NCCL's own NCCL_P2P_LEVEL or NCCL_P2P_DISABLE, or use auto, copy or host"},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.Want = NCCL
			_, err := Select(c.in)
			require.ErrorIs(t, err, ErrNoPlan)
			require.EqualError(t, err, c.want)
			var pe *PlanError
			require.ErrorAs(t, err, &pe)
			require.Equal(t, NCCL, pe.Algorithm)

			c.in.Want, c.in.AllowNCCL, c.in.Table = Auto, true, Table{{Algorithm: NCCL}}
			p, err := Select(c.in)
			require.NoError(t, err)
			require.NotEqual(t, NCCL, p.Algorithm)
			require.Contains(t, p.Reason, "; a rule for nccl is passed over, for "+pe.Reason)

			c.in.AllowNCCL, c.in.Table = false, nil
			c.in.Knobs.Algorithm = NCCL
			_, err = Select(c.in)
			require.ErrorContains(t, err, "; FENCELINE_ALGO asks for it: set it to auto, copy or host, or unset it")
		})
	}
	in := SelectInput{Machine: reach, Devices: []int{0, 1}, Bytes: 1 << 40, Want: NCCL}
	p, err := Select(in)
	require.NoError(t, err)
	require.Equal(t, Plan{Algorithm: NCCL, Reason: "asked for" + ncclBits, Pieces: 1}, p)
	in.Want, in.Table = Auto, Table{{Algorithm: NCCL}}
	in.Knobs.NCCL = true
	p, err = Select(in)
	require.NoError(t, err)
	require.Equal(t, NCCL, p.Algorithm)
	in.Measurement = liar
	p, err = Select(in)
	require.NoError(t, err)
	require.Contains(t, p.Reason, ", and NCCL takes the driver's word for it")
	require.Contains(t, p.Reason, "probing found that device 0 cannot read the memory of device 1 (")

	rt := openEmu(t, "nvlink", 2)
	_, err = NewGroup(rt, Config{Algorithm: NCCL})
	require.ErrorIs(t, err, ErrNoPlan, "no fake stands in here")
	g := newGroup(t, rt, Config{AllowNCCL: true, Table: Table{{Algorithm: NCCL}}})
	p, err = g.Plan(5, F32)
	require.NoError(t, err)
	require.Contains(t, p.Reason, "a rule for nccl is passed over, for the devices are emulated")
}

// A library that is not there, or does not start, is told; Auto goes on without it.
func TestNCCLDoesNotStart(t *testing.T) {
	broke := &nccl.Error{Op: "ncclCommInitRankConfig", Kind: nccl.ErrTimeout, Text: "1m0s"}
	for name, c := range map[string]struct {
		break_ func(f *nccltest.Fake)
		kind   error
		aborts int
	}{
		"load":       {func(f *nccltest.Fake) { f.LoadErr = broke }, ErrNoPlan, 0},
		"join":       {func(f *nccltest.Fake) { f.JoinErr = broke }, ErrNCCL, 0},
		"first call": {func(f *nccltest.Fake) { f.Break(1, broke) }, ErrNCCL, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f, rt := standIn(t, 2)
			c.break_(f)
			_, err := NewGroup(rt, Config{Algorithm: NCCL})
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, "ncclCommInitRankConfig: NCCL did not come back in time (1m0s)")
			require.Equal(t, c.aborts, f.Counts().Aborts)
			g := newGroup(t, rt, Config{AllowNCCL: true, Table: Table{{Algorithm: NCCL}}})
			p, err := g.Plan(5, F32)
			require.NoError(t, err)
			require.Equal(t, OneshotPush, p.Algorithm)
			require.Contains(t, p.Reason, "a rule for nccl is passed over, for ")
			newRig(t, g, 1000).run(trial{count: 5})
		})
	}
}

// MaxBytes, which does not bound NCCL's calls, may be more than the devices have.
func TestNCCLMaxBytes(t *testing.T) {
	_, rt := standIn(t, 2)
	g := newGroup(t, rt, Config{Algorithm: NCCL, MaxBytes: mostMaxBytes})
	r := newRig(t, g, 1000)
	in, out, _, _ := r.views(trial{count: 5})
	require.NoError(t, g.AllReduce(in, out, 5, F32))
	r.sync()
}

// Where there is no room for direct kernels either, Auto goes on with copies.
func TestNCCLDoesNotStartWhereCrowded(t *testing.T) {
	f, rt := standIn(t, 2)
	for _, ranks := range []int{8, 2} { // as long as there is room for so many
		for {
			g, err := NewGroup(rt, Config{Ranks: ranks, Share: true, Algorithm: OneshotPull, MaxBytes: 1 << 18})
			if err != nil {
				require.ErrorIs(t, err, ErrNoPlan)
				break
			}
			t.Cleanup(func() { require.NoError(t, g.Close()) })
		}
	}
	f.JoinErr = &nccl.Error{Op: "ncclCommInitRankConfig", Kind: nccl.ErrTimeout}
	g := newGroup(t, rt, Config{AllowNCCL: true, Table: Table{{Algorithm: NCCL}}})
	p, err := g.Plan(5, F32)
	require.NoError(t, err)
	require.Equal(t, Copy, p.Algorithm)
	require.Contains(t, p.Reason, "so direct kernels cannot run")
	require.Contains(t, p.Reason, "a rule for nccl is passed over, for ")
	newRig(t, g, 1000).run(trial{count: 5})
}

// Failures of NCCL surface as such, from the call or from Sync, fail the group, and abort the communicators.
func TestNCCLFails(t *testing.T) {
	broke := &nccl.Error{Op: "work of ncclAllReduce", Kind: nccl.ErrFailed, Code: 6}
	group := func(t *testing.T) (*nccltest.Fake, *Group, *rig) {
		f, rt := standIn(t, 2)
		g := newGroup(t, rt, Config{Algorithm: NCCL})
		return f, g, newRig(t, g, 1000)
	}
	failed := func(t *testing.T, f *nccltest.Fake, g *Group, rank int) {
		t.Helper()
		var ne *NCCLError
		require.ErrorAs(t, g.Err(), &ne)
		require.Equal(t, rank, ne.Rank)
		require.ErrorIs(t, g.Err(), ErrFailed)
		require.ErrorIs(t, g.Err(), ErrNCCL)
		require.ErrorIs(t, g.Err(), nccl.ErrFailed)
		require.ErrorIs(t, g.AllReduce(make([]launcher.Buffer, 2), make([]launcher.Buffer, 2), 0, F32), ErrFailed)
		_ = g.Close()
		require.Equal(t, [2]int{0, 1}, [2]int{f.Counts().Closes, f.Counts().Aborts})
	}
	t.Run("sync", func(t *testing.T) {
		f, g, r := group(t)
		in, out, _, _ := r.views(trial{count: 5})
		require.NoError(t, g.AllReduce(in, out, 5, F32))
		f.Break(1, broke)
		err := g.Rank(1).Sync(t.Context())
		require.ErrorIs(t, err, ErrNCCL)
		require.EqualError(t, err, "all-reduce by nccl, rank 1: work of ncclAllReduce: NCCL reported an error (6)")
		require.ErrorIs(t, g.Rank(0).Sync(t.Context()), ErrFailed)
		require.ErrorIs(t, g.Sync(t.Context()), ErrNCCL)
		failed(t, f, g, 1)
	})
	for name, rank := range map[string]int{"call of all": -1, "call of a rank": 0} {
		t.Run(name, func(t *testing.T) {
			f, g, r := group(t)
			f.CallErr = broke
			in, out, _, _ := r.views(trial{count: 13})
			call := func() error { return g.AllReduce(in, out, 13, F32) }
			if rank == 0 {
				call = func() error { return g.Rank(0).AllReduce(in[0], out[0], 13, F32) }
			}
			require.ErrorIs(t, call(), ErrNCCL)
			require.ErrorIs(t, g.Sync(t.Context()), ErrNCCL)
			failed(t, f, g, rank)
		})
	}
	t.Run("capture", func(t *testing.T) {
		f, g, r := group(t)
		f.CallErr = broke
		in, out, _, _ := r.views(trial{count: 13})
		_, err := g.Capture(func() error { return g.AllReduce(in, out, 13, F32) })
		require.ErrorIs(t, err, ErrNCCL)
		require.NoError(t, g.Err(), "nothing has run")
		require.Zero(t, f.Counts().Aborts)
	})
	t.Run("mismatch", func(t *testing.T) {
		f, g, r := group(t)
		in, out, _, _ := r.views(trial{count: 20})
		var wg sync.WaitGroup
		var errs [2]error
		for p := range 2 {
			wg.Go(func() { errs[p] = g.Rank(p).AllReduce(in[p], out[p], uint64(10+p), F32) })
		}
		wg.Wait()
		require.ErrorIs(t, errors.Join(errs[:]...), ErrMismatch)
		require.ErrorIs(t, g.Sync(t.Context()), ErrMismatch)
		_ = g.Close()
		require.Equal(t, 1, f.Counts().Aborts)
	})
}

// A rank that does not come is named: by the call of another that NCCL keeps, and by Sync where NCCL's kernels wait for it.
func TestNCCLAbsent(t *testing.T) {
	absent := func(t *testing.T, err error) {
		t.Helper()
		var ae *AbsentError
		require.ErrorAs(t, err, &ae)
		require.Equal(t, []int{1, 2}, ae.Missing)
		require.Equal(t, 0, ae.Rank)
		require.Equal(t, "in a call of nccl", ae.Where)
	}
	t.Run("call", func(t *testing.T) {
		f, rt := standIn(t, 3)
		g := newGroup(t, rt, Config{Algorithm: NCCL, Timeout: 100 * time.Millisecond})
		r := newRig(t, g, 1000)
		in, out, _, _ := r.views(trial{count: 5})
		absent(t, g.Rank(0).AllReduce(in[0], out[0], 5, F32))
		absent(t, g.Sync(t.Context()))
		_ = g.Close()
		require.Equal(t, 1, f.Counts().Aborts)
	})
	t.Run("kernel", func(t *testing.T) {
		f, rt := standIn(t, 3)
		release := hanging(t, rt, 0)
		f.OnAbort = release.stop
		g := newGroup(t, rt, Config{Algorithm: NCCL, Timeout: 200 * time.Millisecond})
		release.on(g.Rank(0).Stream())
		g.nccl.made[0].Add(1) // as if NCCL's kernel were what hangs
		start := time.Now()
		err := g.Sync(t.Context())
		absent(t, err)
		require.GreaterOrEqual(t, time.Since(start), 200*time.Millisecond)
		_ = g.Close()
		require.Equal(t, 1, f.Counts().Aborts)
	})
	t.Run("close", func(t *testing.T) { // without a Sync
		if testing.Short() {
			t.Skip("it waits for 5 s")
		}
		f, rt := standIn(t, 3)
		release := hanging(t, rt, 0)
		f.OnAbort = release.stop
		g, err := NewGroup(rt, Config{Algorithm: NCCL, Timeout: 100 * time.Millisecond})
		require.NoError(t, err)
		release.on(g.Rank(0).Stream())
		require.NoError(t, g.Close())
		require.Equal(t, 1, f.Counts().Aborts)
	})
}

// The time that a rank is waited for begins anew with each call that it makes.
func TestNCCLWatch(t *testing.T) {
	f, rt := standIn(t, 2)
	g := newGroup(t, rt, Config{Algorithm: NCCL, Timeout: time.Second})
	w, now := &ncclWatch{r: g.ranks[0]}, time.Now()
	made := func(r int) { g.nccl.made[r].Add(1) }
	at := func(ms int) error { return w.judge(now.Add(time.Duration(ms) * time.Millisecond)) }
	require.NoError(t, at(0))
	made(0)
	made(0)
	require.NoError(t, at(1500), "seen for the first time")
	require.NoError(t, at(2000))
	made(1)
	require.NoError(t, at(2600), "it has moved")
	require.NoError(t, at(3500))
	require.ErrorIs(t, at(3700), ErrAbsent)
	made(1)
	require.NoError(t, at(3800))
	require.NoError(t, at(9000))
	made(1)
	require.NoError(t, at(19000), "who is ahead misses nobody")
	f.Break(0, nccl.ErrFailed)
	require.ErrorIs(t, at(19001), ErrNCCL)
	f.Break(0, nil)
}

// hangs is a kernel that polls a word until it is told to stop.
type hangs struct {
	t    *testing.T
	word *launcher.HostBuffer
	k    *launcher.Kernel
	dev  int
}

func hanging(t *testing.T, rt *launcher.Runtime, dev int) *hangs {
	t.Helper()
	m, err := rt.Load(dev, "hung.ptx", []byte(hungPTX))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	h := &hangs{t: t, dev: dev}
	h.k, err = m.Kernel("hung")
	require.NoError(t, err)
	h.word, err = rt.AllocHost(16)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.word.Free()) })
	clear(h.word.Bytes())
	return h
}

func (h *hangs) on(s *launcher.Stream) {
	args, err := h.k.Pack(h.word.Ptr())
	require.NoError(h.t, err)
	require.NoError(h.t, h.k.Launch(s, launcher.Linear(1, 32), args))
}

func (h *hangs) stop() {
	if err := h.word.Store32(0, 1); err != nil {
		panic(fmt.Sprint("stop the kernel that hangs: ", err))
	}
}

const hungPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry hung(.param .u64 word)
{
	.reg .pred %p;
	.reg .u32 %r;
	.reg .u64 %d;
	ld.param.u64 %d, [word];
again:
	ld.relaxed.sys.global.u32 %r, [%d];
	setp.eq.u32 %p, %r, 0;
	@%p bra again;
	ret;
}
`

// inert is an NCCL that does nothing.
type inert struct{ nccl.Ranks }

func (inert) AllReduce([]nccl.Call, uint64, nccl.DType, time.Duration) error        { return nil }
func (inert) AllReduceRank(int, nccl.Call, uint64, nccl.DType, time.Duration) error { return nil }

// A call through NCCL allocates nothing on this side of it.
func TestNCCLAllocates(t *testing.T) {
	_, rt := standIn(t, 2)
	g := newGroup(t, rt, Config{Algorithm: NCCL})
	r := newRig(t, g, 1000)
	in, out, _, _ := r.views(trial{count: 5})
	was := g.nccl.Ranks
	g.nccl.Ranks = inert{}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for p := range 2 {
			_ = g.Rank(p).AllReduce(in[p], out[p], 5, F32)
		}
	}))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = g.AllReduce(in, out, 5, F32) }))
	g.nccl.Ranks = was
}
