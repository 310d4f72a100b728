package allreduce

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/launcher"
)

// TestRandomCalls makes TEST_CALLS calls (a few hundred when it is not set) of random size, dtype,
// alignment, payload and kind, queued in batches, and compares every bit of every rank's output, and the
// guards between the outputs, with the reference.
func TestRandomCalls(t *testing.T) {
	rt := openAny(t)
	calls, most := 200, uint64(3000)
	if !rt.Info().Emulated {
		calls, most = 20_000, 1<<16
	}
	if s := os.Getenv("TEST_CALLS"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err, "TEST_CALLS")
		calls = n
	}
	for _, world := range []int{4, 8} {
		for alg, share := range shares(calls) {
			t.Run(fmt.Sprintf("%d/%v", world, alg), func(t *testing.T) {
				start := time.Now()
				g := newGroup(t, rt, Config{Ranks: world, Algorithm: alg, Table: mixed(), DirectBytes: 1})
				w := newWorkload(t, g, most)
				for done := 0; done < max(share, 1); {
					done += w.batch(min(256, max(share, 1)-done))
				}
				t.Logf("%d calls, %d wrong, %d elements summed, %v", max(share, 1), w.wrong, w.elements, time.Since(start).Round(time.Millisecond))
				require.Zero(t, w.wrong)
			})
		}
	}
}

// shares is how many calls each algorithm gets; Auto has a table that mixes them.
func shares(calls int) map[Algorithm]int {
	list := map[Algorithm]int{Auto: calls / 2, Copy: calls / 100, Host: calls / 100}
	for _, a := range directAlgorithms {
		list[a] = calls / 2
	}
	return list
}

// mixed changes the algorithm from size to size and dtype to dtype, copies included.
func mixed() (t Table) {
	for to := uint64(16); to < 1<<20; to = to*5/3 + 16 {
		for i, dt := range DTypes() {
			n := len(t) + i
			t = append(t, Rule{DTypes: []DType{dt}, To: to, Algorithm: directAlgorithms[n%len(directAlgorithms)]})
		}
	}
	return append(Table{{From: 4000, To: 4500, Algorithm: Copy}, {From: 4501, To: 4600, Algorithm: Host}}, t...)
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
		count := min(w.most, uint64(1)<<w.rng.IntN(17)+w.rng.Uint64N(64))
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
	w.elements += count
	require.NoError(w.t, w.g.AllReduce(in, out, count, d.dt))
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
