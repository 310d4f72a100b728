package allreduce

import "github.com/fenceline/fenceline/launcher"

// A large message goes through copy and host by chunks. It is cut into pieces, and of each piece every rank sums one chunk.
// A rank queues the whole way of its chunks, from all inputs to all outputs, by itself: it brings the peers' data into
// its parts (lane `fetch`), sums (the rank's stream), and has each peer's device fetch the sum (lanes `to`, streams on the
// peers' devices). For host, streams on the peers' devices (`from`) bring their data to this rank's pinned memory first, and
// the sum goes back through it. Each step waits for the one before it by an event of this rank, recorded by the goroutine that
// queues the wait. So between the two meetings ranks need not come together, however many pieces there are, and
// nothing queued ever waits for something that is not.
//
// Lanes go at their own pace: the copies of one piece run while another is summed, and a third is on its way out. Parts
// and pinned memory have `slots` sets of places, which pieces take turns with; a set is used again when the event says
// that what read it has ended.
//
// In place: a rank's output changes in the chunk of rank q only by q's copy, which waits for q's sum, before which q, the
// only one to read that chunk of the input, has read it.

// slots is how many sets of places there are: while what is in one is read, the other fills.
const slots = 2

// lane is a stream that a rank uses besides its own, and events on it, one for each set of places.
type lane struct {
	stream *launcher.Stream
	done   [slots]*launcher.Event
}

func newLane(rt *launcher.Runtime, dev int) (l lane, err error) {
	if l.stream, err = rt.NewStream(dev); err != nil {
		return l, err
	}
	for i := range l.done {
		if l.done[i], err = rt.NewEvent(dev, false); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (l *lane) close() error {
	var errs []error
	for _, e := range l.done {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	return joined(append(errs, l.stream.Close())...)
}

// move queues a copy behind an event, and records the lane's own.
func (l *lane) move(dst, src launcher.Buffer, after *launcher.Event, slot int) error {
	if after != nil {
		if err := l.stream.Wait(after); err != nil {
			return err
		}
	}
	if err := l.stream.Copy(dst, src); err != nil {
		return err
	}
	return l.stream.Record(l.done[slot])
}

// openLanes makes the rank's lanes. It comes after all ranks have their own streams: a GPU has few queues, which streams get in turn, and
// ranks' own streams, on which kernels may wait for each other, should not be those that share one.
func (r *Rank) openLanes() (err error) {
	t, rt := r.gather, r.g.rt
	if t.fetch, err = newLane(rt, r.dev); err != nil {
		return err
	}
	t.to = make([]lane, len(r.g.ranks))
	if r.g.policy.limit[Host] != 0 {
		t.from = make([]lane, len(r.g.ranks))
	}
	for peer := range r.others() {
		if t.to[peer.id], err = newLane(rt, peer.dev); err != nil {
			return err
		}
		if t.from == nil {
			continue
		}
		if t.from[peer.id], err = newLane(rt, peer.dev); err != nil {
			return err
		}
	}
	return nil
}

// gatherChunks queues a call by chunks. It returns nil early when the party refuses work; the caller looks.
func (r *Rank) gatherChunks(p party, op *operation, c chunking) error {
	if err := r.publish(p, op.in, op.out); err != nil || p.refusal() != nil {
		return err
	}
	lanes := r.lanes(op.call.algorithm)
	err := r.fork(op.call.algorithm)
	for k := 0; err == nil; k++ {
		s := c.span(k, r.id)
		if s.n == 0 {
			break
		}
		err = r.queueChunk(op, s, k)
	}
	// Joined in any case: Close waits for the rank's stream alone before it frees what lanes use, and a capture would not end with
	// a lane still in it.
	if err = joined(err, r.join(lanes)); err != nil {
		return err
	}
	if err := p.meeting().arrive(r.id, "after the copies", r.g.cfg.Timeout); err != nil || p.refusal() != nil {
		return err
	}
	for peer := range r.others() {
		// What the peer does to this rank's buffers ends there: reading the input comes before the sum.
		if err := r.stream.Wait(peer.gather.to[r.id].done[0]); err != nil {
			return err
		}
	}
	return nil
}

// lanes are those that a call uses.
func (r *Rank) lanes(a Algorithm) []*lane {
	t := r.gather
	list := []*lane{&t.fetch}
	for peer := range r.others() {
		list = append(list, &t.to[peer.id])
		if a == Host {
			list = append(list, &t.from[peer.id])
		}
	}
	return list
}

// fork lets lanes begin when their work can. The parts are free behind this rank's `ready`, since its stream has waited for all that
// earlier calls did with them; and a peer's buffers are ready behind the peer's. That is also when pinned memory is free: the
// peer's stream has waited for this rank's last call, and with it for all that was read there.
func (r *Rank) fork(a Algorithm) error {
	t := r.gather
	if err := t.fetch.stream.Wait(t.ready); err != nil {
		return err
	}
	for peer := range r.others() {
		reader := &t.fetch
		if a == Host {
			reader = &t.from[peer.id]
		}
		for _, l := range [...]*lane{reader, &t.to[peer.id]} {
			if err := l.stream.Wait(peer.gather.ready); err != nil {
				return err
			}
		}
	}
	return nil
}

// join makes the rank's stream wait for the lanes, and leaves done[0] of each recorded behind all its work.
func (r *Rank) join(lanes []*lane) error {
	var errs []error
	for _, l := range lanes {
		errs = append(errs, l.stream.Record(l.done[0]), r.stream.Wait(l.done[0]))
	}
	return joined(errs...)
}

// queueChunk queues all that this rank does for its k-th chunk, which is the span s of the message.
func (r *Rank) queueChunk(op *operation, s span, k int) error {
	c := &chunk{Rank: r, op: op, span: s, slot: k % slots, again: k >= slots}
	if err := c.fetch(); err != nil {
		return err
	}
	if err := c.sum(); err != nil {
		return err
	}
	return c.deliver()
}

// chunk is one on its way.
type chunk struct {
	*Rank
	op *operation
	span
	slot  int  // the set of places
	again bool // that set has been used in this call
}

func (c *chunk) host() bool { return c.op.call.algorithm == Host }

// place is where in parts or pinned memory rank's data of the chunk is; in pinned memory, the own rank's is the sum.
func (c *chunk) place(rank int) uint64 {
	return (uint64(c.slot)*uint64(len(c.g.ranks)) + uint64(rank)) * c.gather.room
}

// part is rank's place in parts or pinned memory.
func (c *chunk) part(memory launcher.Buffer, rank int) (launcher.Buffer, error) {
	return memory.Slice(c.place(rank), c.n)
}

// fetch brings the peers' data into the parts.
func (c *chunk) fetch() error {
	t := c.gather
	if c.again { // the last to use these parts was a sum
		if err := t.fetch.stream.Wait(t.summed[c.slot]); err != nil {
			return err
		}
	}
	for peer := range c.others() {
		src, err := peer.gather.in.Slice(c.off, c.n)
		if err != nil {
			return err
		}
		if c.host() {
			if src, err = c.lower(peer, src); err != nil {
				return err
			}
		}
		dst, err := c.part(t.parts, peer.id)
		if err != nil {
			return err
		}
		if err := t.fetch.stream.Copy(dst, src); err != nil {
			return err
		}
	}
	return t.fetch.stream.Record(t.fetch.done[c.slot])
}

// lower brings a peer's data to pinned memory, and makes the lane `fetch` wait for it.
func (c *chunk) lower(peer *Rank, src launcher.Buffer) (launcher.Buffer, error) {
	t := c.gather
	dst, err := c.part(t.pinned.Buffer(), peer.id)
	if err != nil {
		return dst, err
	}
	var free *launcher.Event // when the last to use this place, a copy into the parts, has ended
	if c.again {
		free = t.fetch.done[c.slot]
	}
	from := &t.from[peer.id]
	if err := from.move(dst, src, free, c.slot); err != nil {
		return dst, err
	}
	return dst, t.fetch.stream.Wait(from.done[c.slot])
}

// sum adds the parts up into the output, and for host brings the sum to pinned memory.
func (c *chunk) sum() error {
	t := c.gather
	if err := c.stream.Wait(t.fetch.done[c.slot]); err != nil {
		return err
	}
	if err := c.launchReduce(c.op, c.span, c.place); err != nil {
		return err
	}
	if c.host() {
		if err := c.lowerSum(); err != nil {
			return err
		}
	}
	return c.stream.Record(t.summed[c.slot])
}

func (c *chunk) lowerSum() error {
	if c.again { // the last to use this place were copies into the peers' outputs
		for peer := range c.others() {
			if err := c.stream.Wait(c.gather.to[peer.id].done[c.slot]); err != nil {
				return err
			}
		}
	}
	src, err := c.op.out.Slice(c.off, c.n)
	if err != nil {
		return err
	}
	dst, err := c.part(c.gather.pinned.Buffer(), c.id)
	if err != nil {
		return err
	}
	return c.stream.Copy(dst, src)
}

// deliver has the peers' devices fetch the sum: from this rank's output, or for host from pinned memory.
func (c *chunk) deliver() error {
	t := c.gather
	src, err := c.op.out.Slice(c.off, c.n)
	if c.host() {
		src, err = c.part(t.pinned.Buffer(), c.id)
	}
	if err != nil {
		return err
	}
	for peer := range c.others() {
		dst, err := peer.gather.out.Slice(c.off, c.n)
		if err != nil {
			return err
		}
		if err := t.to[peer.id].move(dst, src, t.summed[c.slot], c.slot); err != nil {
			return err
		}
	}
	return nil
}
