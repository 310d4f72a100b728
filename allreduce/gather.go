package allreduce

import "github.com/fenceline/fenceline/launcher"

// gather is what the copy and host algorithms need on one rank.
//
// A piece goes like this. The rank publishes its data: the input itself, or, for host, a copy in pinned
// memory. It records `ready`; the ranks meet on the host, so that every `ready` is recorded; its stream waits for all
// of them and copies the peers' data into its parts. It records `copied`; the ranks meet again; its stream waits for
// all of those and sums. So no input, and no output that is an input, changes while a peer still copies it, and no
// event is recorded anew while a peer has yet to wait on it.
type gather struct {
	parts         launcher.Buffer      // one part per rank, each partBytes long
	pinned        *launcher.HostBuffer // host: this rank's data
	source        launcher.Buffer      // what peers copy in this piece
	part          uint64               // bytes from one part to the next
	ready, copied *launcher.Event
}

func (r *Rank) buildGather() (err error) {
	limit := &r.g.policy.limit
	part := (max(limit[Copy], limit[Host]) + 255) / 256 * 256 // parts are apart and aligned
	rt, t := r.g.rt, &gather{part: part}
	r.gather = t
	if t.parts, err = rt.Alloc(r.dev, uint64(r.g.cfg.Ranks)*part); err != nil {
		return err
	}
	if limit[Host] != 0 {
		if t.pinned, err = rt.AllocHost(part); err != nil {
			return err
		}
	}
	if t.ready, err = rt.NewEvent(r.dev, false); err != nil {
		return err
	}
	t.copied, err = rt.NewEvent(r.dev, false)
	return err
}

func (t *gather) release() error {
	var errs []error
	if t.parts.Ptr() != 0 {
		errs = append(errs, t.parts.Free())
	}
	if t.pinned != nil {
		errs = append(errs, t.pinned.Free())
	}
	for _, e := range []*launcher.Event{t.ready, t.copied} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	return joined(errs...)
}

func (r *Rank) enqueueGather(p party, op *operation) error {
	total := op.call.count * op.call.dtype.Size()
	most := r.g.policy.limit[op.call.algorithm]
	for off := uint64(0); off < total; off += most {
		n := min(most, total-off)
		in, err := op.in.Slice(off, n)
		if err != nil {
			return err
		}
		if err := r.gatherPiece(p, op, in, op.out.Ptr()+off); err != nil {
			return err
		}
	}
	return nil
}

// gatherPiece queues one piece. It returns nil early when the party refuses work; the caller looks.
func (r *Rank) gatherPiece(p party, op *operation, in launcher.Buffer, out uint64) error {
	g, t := r.g, r.gather
	t.source = in
	if op.call.algorithm == Host {
		own, err := t.pinned.Buffer().Slice(0, in.Size())
		if err != nil {
			return err
		}
		if err := r.stream.Copy(own, in); err != nil {
			return err
		}
		t.source = own
	}
	if err := r.stream.Record(t.ready); err != nil {
		return err
	}
	if err := p.meeting().arrive(r.id, "before the copies", g.cfg.Timeout); err != nil || p.refusal() != nil {
		return err
	}
	if err := r.copyPeers(in.Size()); err != nil {
		return err
	}
	if err := r.stream.Record(t.copied); err != nil {
		return err
	}
	if err := p.meeting().arrive(r.id, "after the copies", g.cfg.Timeout); err != nil || p.refusal() != nil {
		return err
	}
	for _, peer := range g.ranks {
		if peer != r {
			if err := r.stream.Wait(peer.gather.copied); err != nil {
				return err
			}
		}
	}
	return r.launchReduce(op, in, out)
}

// copyPeers queues the copies of n bytes from every peer into this rank's parts.
func (r *Rank) copyPeers(n uint64) error {
	for _, p := range r.g.ranks {
		if p == r {
			continue
		}
		if err := r.stream.Wait(p.gather.ready); err != nil {
			return err
		}
		part, err := r.gather.parts.Slice(uint64(p.id)*r.gather.part, n)
		if err != nil {
			return err
		}
		if err := r.stream.Copy(part, p.gather.source); err != nil {
			return err
		}
	}
	return nil
}

// launchReduce sums the parts, with this rank's own data read where it is.
func (r *Rank) launchReduce(op *operation, in launcher.Buffer, out uint64) error {
	k, dt := r.kits[op.call.algorithm], op.call.dtype
	a := k.packed[:reduceBytes]
	for p := range r.g.ranks {
		at := r.gather.parts.Ptr() + uint64(p)*r.gather.part
		if p == r.id {
			at = in.Ptr()
		}
		put64(a, reducePart+8*p, at)
	}
	put64(a, reduceOut, out)
	put64(a, reduceCount, in.Size()/dt.Size())
	put32(a, reduceWorld, uint32(len(r.g.ranks)))
	put32(a, reduceHead, 0) // parts are aligned; where in or out is not, the kernel goes element by element
	return k.launch(r, op.call.algorithm, dt, in.Size(), op.grid)
}
