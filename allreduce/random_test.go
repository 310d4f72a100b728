package allreduce

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/launcher"
)

// TestRandomCalls makes TEST_CALLS calls (1500 on the emulator when it is not set) of random size, dtype, alignment,
// payload and kind, queued in batches, and compares every bit of every rank's output, and the guards between the outputs,
// with the reference. Most are made on groups where all algorithms take turns, the rest on groups that do everything by one.
func TestRandomCalls(t *testing.T) {
	rt := openAny(t)
	calls, most := 1500, uint64(3000)
	if !rt.Info().Emulated {
		calls, most = 100_000, 1<<16
	}
	if s := os.Getenv("TEST_CALLS"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err, "TEST_CALLS")
		calls = n
	}
	worlds := []int{2, 3, 4, 5, 8}
	for _, world := range worlds {
		for _, s := range shares(calls / len(worlds)) {
			t.Run(fmt.Sprintf("%d/%v", world, s.by), func(t *testing.T) {
				start := time.Now()
				cfg := Config{Ranks: world, Algorithm: s.by, DirectBytes: 1}
				if s.by == Auto {
					cfg.Table = mixed()
				}
				g := newGroup(t, rt, cfg)
				w := newWorkload(t, g, most)
				for done := 0; done < s.calls; {
					done += w.batch(min(256, s.calls-done))
				}
				t.Logf("%d calls, %d wrong, %d elements summed, %v; %v", s.calls, w.wrong, w.elements, time.Since(start).Round(time.Millisecond), &w.drawn)
				require.Zero(t, w.wrong)
				w.drawn.require(t, s.by, s.calls)
			})
		}
	}
}

// share is how many calls are made by one algorithm; by Auto, with a table that mixes them.
type share struct {
	by    Algorithm
	calls int
}

// shares divides calls: the slow algorithms get few, each at least one.
func shares(calls int) []share {
	list := []share{{by: Auto}, {Copy, max(1, calls/50)}, {Host, max(1, calls/50)}}
	for _, a := range directAlgorithms {
		list = append(list, share{a, max(1, calls/11)})
	}
	rest := calls
	for _, s := range list {
		rest -= s.calls
	}
	list[0].calls = max(1, rest)
	return list
}

// mixed changes the algorithm from size to size and dtype to dtype; copies take few turns, for they are slow.
func mixed() (t Table) {
	d := directAlgorithms
	turn := slices.Concat(d, d[:2], []Algorithm{Copy}, d[2:], d[:2], []Algorithm{Host}, d[2:])
	for to := uint64(16); to < 1<<20; to = to*9/8 + 16 {
		for _, dt := range DTypes() {
			t = append(t, Rule{DTypes: []DType{dt}, To: to, Algorithm: turn[len(t)%len(turn)]})
		}
	}
	return t
}

// drawn counts what kinds of call came up.
type drawn struct {
	algorithms                          [numAlgorithms]int
	dtypes                              [numDTypes]int
	inPlace, outOfPlace, direct, staged int // of pulls out of place: peers read the input itself, or a copy of it, for its places differ
	odd, turns                          int // turns: by another algorithm than the call before
	last                                Algorithm
}

func (d *drawn) String() string {
	s := fmt.Sprintf("%d in place, %d of registered inputs read directly, %d odd counts, %d changes of algorithm:", d.inPlace, d.direct, d.odd, d.turns)
	for a, n := range d.algorithms {
		if n > 0 {
			s += fmt.Sprintf(" %v %d", Algorithm(a), n)
		}
	}
	return s
}

// require fails a run that is long enough and did not come to everything.
func (d *drawn) require(t *testing.T, by Algorithm, calls int) {
	if calls < 150 {
		return
	}
	for _, a := range everyAlgorithm {
		require.True(t, by != Auto && by != a || d.algorithms[a] > 0, "%v was not drawn", a)
	}
	for _, dt := range DTypes() {
		require.NotZero(t, d.dtypes[dt], "%v was not drawn", dt)
	}
	require.NotZero(t, d.inPlace)
	require.NotZero(t, d.outOfPlace)
	require.NotZero(t, d.odd)
	if by == Auto {
		require.NotZero(t, d.direct)
		require.NotZero(t, d.staged)
		require.Greater(t, d.turns, calls/2)
	}
}

// workload is random calls over pools of payload that stay on the devices.
type workload struct {
	t        *testing.T
	g        *Group
	rng      *rand.Rand
	most     uint64
	pools    [numDTypes][][]byte          // by dtype and rank
	pool     [numDTypes][]launcher.Buffer // the same on the device, registered
	out      []launcher.Buffer
	got      [][]byte
	elements uint64
	wrong    int
	drawn    drawn
}

const poolElements = 1 << 18

func newWorkload(t *testing.T, g *Group, most uint64) *workload {
	w := &workload{t: t, g: g, most: most, rng: rand.New(rand.NewPCG(uint64(g.World()), uint64(g.cfg.Algorithm)))}
	n := uint64(poolElements)
	if g.rt.Info().Emulated {
		n = 4 * most
	}
	alloc := func(rank int, size uint64) launcher.Buffer {
		b, err := g.rt.Alloc(g.Rank(rank).Device(), size)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Free()) })
		return b
	}
	ctx, cancel := (&rig{}).ctx()
	defer cancel()
	for p := range g.World() {
		for _, dt := range DTypes() {
			data := payload(w.rng, dt, n)
			b := alloc(p, uint64(len(data)))
			require.NoError(t, g.Rank(p).Stream().CopyIn(ctx, b, data))
			w.pools[dt] = append(w.pools[dt], data)
			w.pool[dt] = append(w.pool[dt], b)
		}
		w.out = append(w.out, alloc(p, min(256*(4*most+64), 16<<20)))
		w.got = append(w.got, make([]byte, w.out[p].Size()))
	}
	for _, dt := range DTypes() {
		reg, err := g.Register(w.pool[dt])
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, reg.Close()) })
	}
	return w
}

// done is a queued call: where each rank's input came from, and where the output lies on all.
type done struct {
	dt  DType
	in  [][]byte
	at  uint64
	len uint64
}

// batch queues up to n calls, as many as the output memory holds, and checks them.
func (w *workload) batch(n int) int {
	t, g := w.t, w.g
	for p := range w.out {
		require.NoError(t, g.Rank(p).Stream().Memset(w.out[p], poison))
	}
	var list []done
	at := uint64(16)
	for range n {
		dt := DTypes()[w.rng.IntN(3)]
		// Log-uniform: as many small calls as large ones.
		low := uint64(1) << w.rng.IntN(17)
		count := min(w.most, low+w.rng.Uint64N(low))
		at = (at+15)/16*16 + 16 + dt.Size()*w.rng.Uint64N(8)
		if at+count*dt.Size()+16 > w.out[0].Size() {
			break
		}
		d := done{dt: dt, at: at, len: count * dt.Size()}
		w.queue(&d, count)
		list = append(list, d)
		at += d.len
	}
	ctx, cancel := (&rig{}).ctx()
	defer cancel()
	require.NoError(t, g.Sync(ctx))
	for p := range w.out {
		end, err := w.out[p].Slice(0, (at+31)/16*16)
		require.NoError(t, err)
		w.got[p] = w.got[p][:end.Size()]
		require.NoError(t, g.Rank(p).Stream().CopyOut(ctx, w.got[p], end))
	}
	w.check(list)
	return len(list)
}

// queue makes one call: at unequal places in the pools (staged), at equal ones (read directly), or in place over
// a copy of the input.
func (w *workload) queue(d *done, count uint64) {
	kind := w.rng.IntN(4)
	in := make([]launcher.Buffer, w.g.World())
	out := make([]launcher.Buffer, w.g.World())
	places := uint64(len(w.pools[d.dt][0]))/d.dt.Size() - count
	from := w.rng.Uint64N(places+1) * d.dt.Size()
	var err error
	for p := range in {
		if kind != 1 {
			from = w.rng.Uint64N(places+1) * d.dt.Size()
		}
		d.in = append(d.in, w.pools[d.dt][p][from:from+d.len])
		in[p], err = w.pool[d.dt][p].Slice(from, d.len)
		require.NoError(w.t, err)
		out[p], err = w.out[p].Slice(d.at, d.len)
		require.NoError(w.t, err)
		if kind == 2 {
			require.NoError(w.t, w.g.Rank(p).Stream().Copy(out[p], in[p]))
			in[p] = out[p]
		}
	}
	w.note(d, count, kind == 1, kind == 2, in, out)
	require.NoError(w.t, w.g.AllReduce(in, out, count, d.dt))
}

// note counts what this call is.
func (w *workload) note(d *done, count uint64, samePlace, inPlace bool, in, out []launcher.Buffer) {
	by, _ := w.g.choose(d.len, d.dt, false)
	op, err := w.g.Rank(0).check(in[0], out[0], count, d.dt)
	require.NoError(w.t, err)
	n := &w.drawn
	w.elements += count
	n.algorithms[by]++
	n.dtypes[d.dt]++
	switch {
	case inPlace:
		n.inPlace++
	case by.pulls() && samePlace && op.registration != nil:
		n.direct++
	case by.pulls():
		n.staged++
	}
	if !inPlace {
		n.outOfPlace++
	}
	if count%2 == 1 {
		n.odd++
	}
	if by != n.last {
		n.turns++
	}
	n.last = by
}

// check compares the outputs, and what lies between them, on all cores.
func (w *workload) check(list []done) {
	var eg errgroup.Group
	eg.SetLimit(runtime.GOMAXPROCS(0))
	bad := make([]int, len(list))
	for i, d := range list {
		eg.Go(func() error {
			want := make([]byte, d.len)
			if err := Reference(d.dt, want, d.in...); err != nil {
				return err
			}
			end := d.at + d.len
			for p, got := range w.got {
				guardEnd := uint64(len(got))
				if i+1 < len(list) {
					guardEnd = list[i+1].at
				}
				rest := got[end:guardEnd]
				if !bytes.Equal(got[d.at:end], want) || len(bytes.Trim(rest, "\xa5")) != 0 {
					bad[i]++
					k := max(firstDifference(got[d.at:end], want), 0)
					w.t.Errorf("rank %d: %d %v elements at %d: first difference at byte %d, guard % x", p, d.len/d.dt.Size(), d.dt, d.at, k, rest[:min(16, len(rest))])
				}
			}
			return nil
		})
	}
	require.NoError(w.t, eg.Wait())
	for _, n := range bad {
		w.wrong += n
	}
	if w.wrong > 0 {
		w.t.FailNow()
	}
}
