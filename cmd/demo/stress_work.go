package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/flags/stress"
	"github.com/fenceline/fenceline/launcher"
)

// stressWork is the memory and the tools of a stress run. They outlive the groups, which change from round to round.
type stressWork struct {
	rt       *launcher.Runtime
	emulated bool
	devices  []int // of each rank
	shared   bool  // ranks share a GPU
	most     uint64
	batch    int // calls queued together, at most
	timeout  time.Duration
	delays   bool
	rng      *rand.Rand

	pools     [][][]byte // payload by dtype and rank
	pool      [][]launcher.Buffer
	near, far []launcher.Buffer // scratch inputs: near is registered, far is not
	gin, gout []launcher.Buffer // of the graphs
	sets      [2]*stressSet
	tools     []*stressTools // of each rank
	modules   []*launcher.Module
	closers   []func() error

	g      *allreduce.Group // of this round
	graphs []*stressGraph
	round  []func() error // closes what belongs to g, and g
}

// stressSet is where the outputs of one batch go; while one is checked, the other is filled.
type stressSet struct {
	out     []launcher.Buffer
	host    []*launcher.HostBuffer
	done    []*launcher.Event
	marks   [stressSamples][2][]*launcher.Event // around some calls
	sampled int
	calls   []*stressCall
	end     uint64 // bytes of the outputs in use
	queued  bool
}

const stressSamples = 8

// stressTools are the kernels that one rank's stream is troubled with.
type stressTools struct {
	pause, scribble         *launcher.Kernel
	pauseArgs, scribbleArgs *launcher.Args
	dependent               bool
}

// newStressWork allocates everything and fills the pools.
func newStressWork(rt *launcher.Runtime, devices []int, o *stressSettings) (w *stressWork, err error) {
	w = &stressWork{rt: rt, emulated: rt.Info().Emulated, devices: devices, most: o.maxBytes, batch: 256, timeout: o.timeout,
		delays: o.delays, rng: rand.New(rand.NewPCG(o.seed, 0x5e))}
	for r, dev := range devices {
		w.shared = w.shared || !w.emulated && slices.Contains(devices[:r], dev)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	outBytes, poolBytes := min(16<<20, 256<<20/uint64(len(devices)))+2*w.most, 4*w.most+(1<<20)
	if w.emulated {
		w.batch, outBytes, poolBytes = 12, 12*(w.most+256), 4*w.most
	}
	if err := w.tool(); err != nil {
		return w, err
	}
	for _, dt := range allreduce.DTypes() {
		in := make([][]byte, len(devices))
		for r := range in {
			in[r] = make([]byte, poolBytes/4*4)
		}
		fill(dt, w.rng, in)
		w.pools = append(w.pools, in)
		bufs, err := w.alloc(poolBytes / 4 * 4)
		if err != nil {
			return w, err
		}
		w.pool = append(w.pool, bufs)
	}
	for _, list := range []*[]launcher.Buffer{&w.near, &w.far, &w.gin, &w.gout} {
		if *list, err = w.alloc(w.most + 4096); err != nil {
			return w, err
		}
	}
	for i := range w.sets {
		if w.sets[i], err = w.set(outBytes); err != nil {
			return w, err
		}
	}
	return w, w.upload()
}

// alloc gives every rank a buffer.
func (w *stressWork) alloc(n uint64) ([]launcher.Buffer, error) {
	list := make([]launcher.Buffer, len(w.devices))
	for r, dev := range w.devices {
		b, err := w.rt.Alloc(dev, n)
		if err != nil {
			return nil, fmt.Errorf("stress: buffers of rank %d: %w", r, err)
		}
		list[r] = b
		w.closers = append(w.closers, b.Free)
	}
	return list, nil
}

func (w *stressWork) set(n uint64) (s *stressSet, err error) {
	s = &stressSet{}
	if s.out, err = w.alloc(n); err != nil {
		return nil, err
	}
	event := func(dev int, timing bool) *launcher.Event {
		e, eerr := w.rt.NewEvent(dev, timing)
		if eerr != nil {
			err = errors.Join(err, eerr)
			return nil
		}
		w.closers = append(w.closers, e.Close)
		return e
	}
	for _, dev := range w.devices {
		h, herr := w.rt.AllocHost(n)
		if herr != nil {
			return nil, herr
		}
		w.closers = append(w.closers, h.Free)
		s.host = append(s.host, h)
		s.done = append(s.done, event(dev, false))
		for k := range s.marks {
			for side := range s.marks[k] {
				s.marks[k][side] = append(s.marks[k][side], event(dev, true))
			}
		}
	}
	return s, err
}

// tool loads the kernels beside those under test.
func (w *stressWork) tool() error {
	loaded := map[int]*launcher.Module{}
	for _, dev := range w.devices {
		sm := w.rt.Devices()[dev].SM()
		m := loaded[dev]
		if m == nil {
			var err error
			if m, err = w.rt.Load(dev, "stress.ptx", stress.Kernels(sm)); err != nil {
				return err
			}
			loaded[dev] = m
			w.modules = append(w.modules, m)
			w.closers = append(w.closers, m.Close)
		}
		t := &stressTools{dependent: sm >= 90}
		var err error
		for name, k := range map[string]**launcher.Kernel{stress.PauseKernel: &t.pause, stress.ScribbleKernel: &t.scribble} {
			if *k, err = m.Kernel(name); err != nil {
				return err
			}
		}
		if t.pauseArgs, err = t.pause.Pack(0); err != nil {
			return err
		}
		if t.scribbleArgs, err = t.scribble.Pack(0, 0, 0); err != nil {
			return err
		}
		w.tools = append(w.tools, t)
	}
	return nil
}

// upload fills the pools on the devices.
func (w *stressWork) upload() error {
	for r, dev := range w.devices {
		s, err := w.rt.NewStream(dev)
		if err != nil {
			return err
		}
		for dt := range w.pool {
			if err == nil {
				err = s.CopyIn(context.Background(), w.pool[dt][r], w.pools[dt][r])
			}
		}
		if err = errors.Join(err, s.Close()); err != nil {
			return err
		}
	}
	return nil
}

// open makes the group of a round, and its graphs.
func (w *stressWork) open(cfg allreduce.Config) (err error) {
	g, err := allreduce.NewGroup(w.rt, cfg)
	if err != nil {
		return err
	}
	w.g, w.graphs, w.round = g, nil, []func() error{g.Close}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.shut())
		}
	}()
	for _, bufs := range [][]launcher.Buffer{w.near, w.gin} {
		reg, err := g.Register(bufs)
		if err != nil {
			return err
		}
		w.round = append(w.round, reg.Close)
	}
	for range 3 {
		gr, err := w.capture()
		if err != nil {
			return fmt.Errorf("capture: %w", err)
		}
		w.graphs = append(w.graphs, gr)
	}
	return nil
}

// shut waits for the round's work and closes its group. Work that was not checked is dropped.
func (w *stressWork) shut() error {
	var errs []error
	for _, f := range slices.Backward(w.round) {
		errs = append(errs, f())
	}
	for _, s := range w.sets {
		s.queued = false
	}
	w.g, w.graphs, w.round = nil, nil, nil
	return errors.Join(errs...)
}

func (w *stressWork) close() error {
	var errs []error
	for _, f := range slices.Backward(w.closers) {
		errs = append(errs, f())
	}
	w.closers = nil
	return errors.Join(errs...)
}

// stressGraph is a captured sequence of calls over fixed places of gin and gout.
type stressGraph struct {
	graph *allreduce.Graph
	parts []stressPart
}

type stressPart struct {
	dt      allreduce.DType
	count   uint64
	in, out uint64 // bytes into gin and gout
}

// capture records one to four calls, each with its input overwritten behind it.
func (w *stressWork) capture() (*stressGraph, error) {
	gr := &stressGraph{}
	at := uint64(0)
	for range 1 + w.rng.IntN(4) {
		p := stressPart{dt: allreduce.DTypes()[w.rng.IntN(3)]}
		p.count = w.size(w.most/4) / p.dt.Size()
		p.in = at + p.dt.Size()*w.rng.Uint64N(8)
		p.out = at + p.dt.Size()*w.rng.Uint64N(8)
		at += (p.count*p.dt.Size() + 47) / 16 * 16
		gr.parts = append(gr.parts, p)
	}
	graph, err := w.g.Capture(func() error {
		for _, p := range gr.parts {
			in, err := cut(w.gin, p.in, p.count*p.dt.Size())
			if err != nil {
				return err
			}
			out, err := cut(w.gout, p.out, p.count*p.dt.Size())
			if err != nil {
				return err
			}
			if err := w.g.AllReduce(in, out, p.count, p.dt); err != nil {
				return err
			}
			for r := range in {
				if err := w.g.Rank(r).Stream().Memset(in[r], 0xee); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	gr.graph = graph // closed with the group
	return gr, nil
}

// cut takes the same part out of every rank's buffer.
func cut(bufs []launcher.Buffer, off, n uint64) ([]launcher.Buffer, error) {
	list := make([]launcher.Buffer, len(bufs))
	for r, b := range bufs {
		var err error
		if list[r], err = b.Slice(off, n); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// size is a random number of bytes up to most, as likely small as large, and a multiple of 4.
func (w *stressWork) size(most uint64) uint64 {
	n := uint64(4) << w.rng.IntN(bits.Len64(most/4))
	return max(4, min(n+w.rng.Uint64N(n), most)/4*4)
}
