package main

import (
	"context"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/launcher"
)

// stressKind is where a call's inputs come from.
type stressKind int

const (
	fromPool    stressKind = iota // read where the payload lies, at another place on each rank
	fromNear                      // registered memory, the same place on each rank: peers may read it directly
	fromFar                       // other memory, at another place on each rank
	inPlace                       // the output holds the input
	fromGraph                     // a replay
	stressKinds = fromGraph + 1
)

// What happens to an input right behind the call that reads it.
const (
	overwriteMemset = iota
	overwriteCopy
	overwriteKernel
	overwrites
)

// stressCall is one call of a batch, planned for all ranks.
type stressCall struct {
	kind       stressKind
	dt         allreduce.DType
	count      uint64
	bytes      uint64
	from       []uint64 // in the pool, by rank
	scratch    []uint64 // in near or far
	at         []uint64 // in the set's outputs
	start, end uint64   // of the outputs: this call's part, with its guards
	overwrite  int
	junk       byte
	late       int // this rank is held back before the call; -1: none
	lateNS     uint64
	lateAlone  bool // by a kernel that needs an SM to itself
	sample     int  // index of its marks, or -1
	graph      *stressGraph
	part       int
}

// plan draws the calls of a batch.
func (w *stressWork) plan(s *stressSet, replays bool, limit int) {
	s.calls, s.end, s.sampled = s.calls[:0], 0, 0
	room := s.out[0].Size()
	for len(s.calls) < limit {
		if kind := stressKind(w.rng.IntN(int(stressKinds))); kind != fromGraph {
			c := w.draw(kind, allreduce.DTypes()[w.rng.IntN(3)], w.size(w.most))
			if !s.place(c, room, w.rng.Uint64) {
				return
			}
			if w.rng.IntN(limit/stressSamples+1) == 0 && s.sampled < stressSamples {
				c.sample = s.sampled
				s.sampled++
			}
		} else if replays {
			gr := w.graphs[w.rng.IntN(len(w.graphs))]
			before, end := len(s.calls), s.end
			for i, p := range gr.parts {
				c := w.draw(fromGraph, p.dt, p.count*p.dt.Size())
				c.graph, c.part, c.late = gr, i, -1
				if !s.place(c, room, w.rng.Uint64) {
					s.calls, s.end = s.calls[:before], end
					return
				}
			}
		}
	}
}

func (w *stressWork) draw(kind stressKind, dt allreduce.DType, n uint64) *stressCall {
	ranks := len(w.devices)
	n = n / dt.Size() * dt.Size()
	c := &stressCall{kind: kind, dt: dt, count: n / dt.Size(), bytes: n, overwrite: w.rng.IntN(overwrites), junk: byte(w.rng.Uint32()), late: -1, sample: -1}
	same := w.rng.Uint64N(64) * dt.Size()
	for range ranks {
		c.from = append(c.from, w.rng.Uint64N((uint64(len(w.pools[dt][0]))-n)/dt.Size()+1)*dt.Size())
		if kind != fromNear {
			same = w.rng.Uint64N(64) * dt.Size()
		}
		c.scratch = append(c.scratch, same)
	}
	if w.delays && w.rng.IntN(48) == 0 {
		c.late, c.lateNS, c.lateAlone = w.rng.IntN(ranks), 1000<<w.rng.IntN(9), w.rng.IntN(2) == 0
	}
	return c
}

// place finds room for a call's outputs, with guards of 16 bytes or more around each.
func (s *stressSet) place(c *stressCall, room uint64, random func() uint64) bool {
	c.start = s.end
	same := random()%2 == 0
	off := random() % 8 * c.dt.Size()
	for range c.from {
		if !same {
			off = random() % 8 * c.dt.Size()
		}
		c.at = append(c.at, c.start+16+off)
	}
	c.end = (c.start + 16 + 7*c.dt.Size() + c.bytes + 31) / 16 * 16
	if c.end > room {
		return false
	}
	s.calls, s.end = append(s.calls, c), c.end
	return true
}

const stressPoison = 0xa5

// queue puts a batch on the ranks' streams: from this goroutine, or from one for each rank, which know nothing of each other.
// Ranks that share a GPU share the queues of its copy engines too: there a copy that one rank queues ahead of its time, behind a
// call that waits for another rank, would keep that rank's copies back, and with them the call. So those are queued together.
func (w *stressWork) queue(ctx context.Context, s *stressSet) error {
	together := w.rng.IntN(2) == 0 || w.shared
	limit := w.batch
	if !together {
		// A goroutine whose stream is full may hold a lock of the driver that the others need: no stream gets full.
		limit = min(limit, 64)
	}
	w.plan(s, together, limit)
	for r := range w.devices {
		out, err := s.out[r].Slice(0, s.end)
		if err == nil {
			err = w.g.Rank(r).Stream().Memset(out, stressPoison)
		}
		if err != nil {
			return err
		}
	}
	var err error
	if together {
		err = w.queueTogether(s)
	} else {
		err = w.g.Each(ctx, func(_ context.Context, rank *allreduce.Rank) error { return w.queueRank(s, rank.ID()) })
	}
	if err != nil {
		return err
	}
	for r := range w.devices {
		stream := w.g.Rank(r).Stream()
		to, err := s.host[r].Buffer().Slice(0, s.end)
		if err != nil {
			return err
		}
		from, err := s.out[r].Slice(0, s.end)
		if err != nil {
			return err
		}
		if err := stream.Copy(to, from); err != nil {
			return err
		}
		if err := stream.Record(s.done[r]); err != nil {
			return err
		}
	}
	s.queued = true
	return nil
}

func (w *stressWork) queueRank(s *stressSet, r int) error {
	for _, c := range s.calls {
		in, out, err := w.before(s, c, r)
		if err != nil {
			return err
		}
		if err := w.g.Rank(r).AllReduce(in, out, c.count, c.dt); err != nil {
			return err
		}
		if err := w.after(s, c, r, in); err != nil {
			return err
		}
	}
	return nil
}

func (w *stressWork) queueTogether(s *stressSet) error {
	in, out := make([]launcher.Buffer, len(w.devices)), make([]launcher.Buffer, len(w.devices))
	for i := 0; i < len(s.calls); {
		c := s.calls[i]
		if c.graph != nil {
			if err := w.replay(s, s.calls[i:i+len(c.graph.parts)]); err != nil {
				return err
			}
			i += len(c.graph.parts)
			continue
		}
		i++
		for r := range in {
			var err error
			if in[r], out[r], err = w.before(s, c, r); err != nil {
				return err
			}
		}
		if err := w.g.AllReduce(in, out, c.count, c.dt); err != nil {
			return err
		}
		for r := range in {
			if err := w.after(s, c, r, in[r]); err != nil {
				return err
			}
		}
	}
	return nil
}

// replay fills the graph's inputs, launches it and keeps its outputs.
func (w *stressWork) replay(s *stressSet, parts []*stressCall) error {
	gr := parts[0].graph
	for r := range w.devices {
		for i, p := range gr.parts {
			if err := w.move(r, w.gin[r], p.in, w.pool[p.dt][r], parts[i].from[r], parts[i].bytes); err != nil {
				return err
			}
		}
	}
	if err := gr.graph.Launch(); err != nil {
		return err
	}
	for r := range w.devices {
		for i, p := range gr.parts {
			if err := w.move(r, s.out[r], parts[i].at[r], w.gout[r], p.out, parts[i].bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// move queues a copy of n bytes on rank r's stream.
func (w *stressWork) move(r int, dst launcher.Buffer, to uint64, src launcher.Buffer, from, n uint64) error {
	d, err := dst.Slice(to, n)
	if err != nil {
		return err
	}
	b, err := src.Slice(from, n)
	if err != nil {
		return err
	}
	return w.g.Rank(r).Stream().Copy(d, b)
}

// before readies one rank's input, holds the rank back, and marks the time.
func (w *stressWork) before(s *stressSet, c *stressCall, r int) (in, out launcher.Buffer, err error) {
	if out, err = s.out[r].Slice(c.at[r], c.bytes); err != nil {
		return in, out, err
	}
	pool := w.pool[c.dt][r]
	switch c.kind {
	case fromPool:
		in, err = pool.Slice(c.from[r], c.bytes)
	case inPlace:
		in, err = out, w.move(r, s.out[r], c.at[r], pool, c.from[r], c.bytes)
	default:
		scratch := w.near[r]
		if c.kind == fromFar {
			scratch = w.far[r]
		}
		if err = w.move(r, scratch, c.scratch[r], pool, c.from[r], c.bytes); err == nil {
			in, err = scratch.Slice(c.scratch[r], c.bytes)
		}
	}
	if err != nil {
		return in, out, err
	}
	stream := w.g.Rank(r).Stream()
	if c.late == r {
		t := w.tools[r]
		if err := t.pauseArgs.SetU64(0, c.lateNS); err != nil {
			return in, out, err
		}
		shape := launcher.Linear(1, 1)
		if c.lateAlone {
			shape.Shared = uint32(w.rt.Devices()[w.devices[r]].SharedPerBlock)
		}
		if err := t.pause.Launch(stream, shape, t.pauseArgs); err != nil {
			return in, out, err
		}
	}
	if c.sample >= 0 {
		err = stream.Record(s.marks[c.sample][0][r])
	}
	return in, out, err
}

// after marks the time and overwrites the input, if it was made for this call.
func (w *stressWork) after(s *stressSet, c *stressCall, r int, in launcher.Buffer) error {
	stream := w.g.Rank(r).Stream()
	if c.sample >= 0 {
		if err := stream.Record(s.marks[c.sample][1][r]); err != nil {
			return err
		}
	}
	if c.kind != fromNear && c.kind != fromFar {
		return nil
	}
	switch c.overwrite {
	case overwriteMemset:
		return stream.Memset(in, c.junk)
	case overwriteCopy:
		other, err := w.pool[c.dt][r].Slice(0, c.bytes)
		if err != nil {
			return err
		}
		return stream.Copy(in, other)
	}
	t := w.tools[r]
	for i, v := range []uint64{in.Ptr(), c.bytes} {
		if err := t.scribbleArgs.SetU64(i, v); err != nil {
			return err
		}
	}
	if err := t.scribbleArgs.SetU32(2, uint32(c.junk)); err != nil {
		return err
	}
	cfg := launcher.Linear(uint32(min(8, c.bytes/1024+1)), 128)
	cfg.Dependent = t.dependent
	return t.scribble.Launch(stream, cfg, t.scribbleArgs)
}
