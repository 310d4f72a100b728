package allreduce

import (
	"iter"

	"github.com/fenceline/fenceline/launcher"
)

// gather is what the copy and host algorithms need on one rank. A message that is small is gathered whole (this file), a large
// one by chunks (chunks.go). In both forms the ranks meet twice on the host, and between the meetings no rank needs another.
//
// Before the first, a rank publishes its buffers and records `ready`. Behind it every `ready` is recorded, so streams may
// wait for those. Behind the second, all that others must wait for is recorded, and the rank's stream waits for it. No
// event is recorded anew, and nothing published anew, while a peer has yet to look: it looks before it comes to the next
// meeting, and the owner goes on only after that.
type gather struct {
	in, out launcher.Buffer // of this call; peers copy from the one, and have their sums copied into the other
	ready   *launcher.Event

	// Places for data on its way, as many as ranks: of a whole message, or of a chunk, and then in `slots` sets.
	parts  launcher.Buffer      // on the device, which sums them
	pinned *launcher.HostBuffer // host: what goes through host memory
	room   uint64               // bytes of a place for a chunk

	copied *launcher.Event // whole: this rank has its peers' data

	fetch    lane                   // chunks: brings peers' data into the parts
	from, to []lane                 // by peer, on its device: from its input to host memory (host only); into its output
	summed   [slots]*launcher.Event // the sum is where the lanes `to` take it from
}

// buildGather allocates the rank's memory and events.
func (r *Rank) buildGather() (err error) {
	limit := &r.g.policy.limit
	rt, world, t := r.g.rt, uint64(r.g.cfg.Ranks), &gather{}
	r.gather = t
	most := max(limit[Copy], limit[Host])
	t.room = chunkRoom(most, r.g.cfg.Ranks)
	whole := roundUp(wholeRoom(most, r.g.cfg.Ranks), line)
	if t.parts, err = rt.Alloc(r.dev, world*max(slots*t.room, whole)); err != nil {
		return err
	}
	if limit[Host] != 0 {
		if t.pinned, err = rt.AllocHost(max(slots*world*t.room, whole)); err != nil {
			return err
		}
	}
	for _, e := range []**launcher.Event{&t.ready, &t.copied, &t.summed[0], &t.summed[1]} {
		if *e, err = rt.NewEvent(r.dev, false); err != nil {
			return err
		}
	}
	return nil
}

func (t *gather) release() error {
	var errs []error
	for _, l := range append(append([]lane{t.fetch}, t.from...), t.to...) {
		errs = append(errs, l.close())
	}
	for _, e := range []*launcher.Event{t.ready, t.copied, t.summed[0], t.summed[1]} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if t.pinned != nil {
		errs = append(errs, t.pinned.Free())
	}
	if t.parts.Ptr() != 0 {
		errs = append(errs, t.parts.Free())
	}
	return joined(errs...)
}

// others are the peers, from the next one on: so the ranks do not all copy from the same at a time.
func (r *Rank) others() iter.Seq[*Rank] {
	return func(yield func(*Rank) bool) {
		world := len(r.g.ranks)
		for i := 1; i < world; i++ {
			if !yield(r.g.ranks[(r.id+i)%world]) {
				return
			}
		}
	}
}

func (r *Rank) enqueueGather(p party, op *operation) error {
	most := r.g.policy.limit[op.call.algorithm]
	if op.bytes() <= wholeRoom(most, len(r.g.ranks)) {
		return r.gatherWhole(p, op)
	}
	return r.gatherChunks(p, op, chunkingOf(op.bytes(), most, len(r.g.ranks)))
}

// publish shows peers this call's buffers, records `ready`, and meets the others.
func (r *Rank) publish(p party, in, out launcher.Buffer) error {
	r.gather.in, r.gather.out = in, out
	if err := r.stream.Record(r.gather.ready); err != nil {
		return err
	}
	return p.meeting().arrive(r.id, "before the copies", r.g.cfg.Timeout)
}

// gatherWhole queues a call for which every rank sums everything. The stream waits for every `ready`, copies the peers' data
// (host: which they have copied to pinned memory) into the parts, and records `copied`; it waits for all of those, and
// sums. So no input, and no output that is an input, changes while a peer still copies it. It returns nil early
// when the party refuses work; the caller looks.
func (r *Rank) gatherWhole(p party, op *operation) (err error) {
	g, t, data := r.g, r.gather, op.in
	if op.call.algorithm == Host {
		if data, err = t.pinned.Buffer().Slice(0, op.bytes()); err != nil {
			return err
		}
		if err := r.stream.Copy(data, op.in); err != nil {
			return err
		}
	}
	if err := r.publish(p, data, op.out); err != nil || p.refusal() != nil {
		return err
	}
	for peer := range r.others() {
		if err := r.stream.Wait(peer.gather.ready); err != nil {
			return err
		}
		part, err := t.parts.Slice(t.whole(peer.id, op.bytes()), op.bytes())
		if err != nil {
			return err
		}
		if err := r.stream.Copy(part, peer.gather.in); err != nil {
			return err
		}
	}
	if err := r.stream.Record(t.copied); err != nil {
		return err
	}
	if err := p.meeting().arrive(r.id, "after the copies", g.cfg.Timeout); err != nil || p.refusal() != nil {
		return err
	}
	for peer := range r.others() {
		if err := r.stream.Wait(peer.gather.copied); err != nil {
			return err
		}
	}
	return r.launchReduce(op, span{0, op.bytes()}, func(rank int) uint64 { return t.whole(rank, op.bytes()) })
}

// whole is where in the parts rank's message of n bytes has its place.
func (t *gather) whole(rank int, n uint64) uint64 { return uint64(rank) * roundUp(n, line) }

// launchReduce sums a span of the message into the output. The peers' data is in the parts, where place says; this
// rank's own is read where it is.
func (r *Rank) launchReduce(op *operation, s span, place func(rank int) uint64) error {
	k, dt := r.kits[op.call.algorithm], op.call.dtype
	a := k.packed[:reduceBytes]
	for p := range r.g.ranks {
		at := r.gather.parts.Ptr() + place(p)
		if p == r.id {
			at = op.in.Ptr() + s.off
		}
		put64(a, reducePart+8*p, at)
	}
	put64(a, reduceOut, op.out.Ptr()+s.off)
	put64(a, reduceCount, s.n/dt.Size())
	put32(a, reduceWorld, uint32(len(r.g.ranks)))
	put32(a, reduceHead, 0) // parts are aligned; where in or out is not, the kernel goes element by element
	return k.launch(r, op.call.algorithm, dt, s.n, op.grid)
}
