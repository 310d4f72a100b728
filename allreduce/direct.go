package allreduce

import (
	"context"
	"encoding/binary"

	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/launcher"
)

// scratch is the memory of one rank's direct kernels. What protocols share they use alike: the kernels that post flags share
// the pad, the staging and one count of calls; those that send packets have a box and a count each, so that no call can take
// for its own what another protocol left. All share the poison mark, so that behind a failure none waits.
type scratch struct {
	control launcher.Buffer                // the counts of calls, and the poison mark
	pad     launcher.Buffer                // flags, written by peers
	stage   launcher.Buffer                // two halves, read by peers
	result  launcher.Buffer                // the sums of this rank's chunk, read by peers
	box     [numAlgorithms]launcher.Buffer // packets, written by peers
	slots   [numAlgorithms]uint64          // packets of one source in one part of a box
}

func (s *scratch) release() error {
	var errs []error
	for _, b := range append([]launcher.Buffer{s.pad, s.stage, s.result, s.control}, s.box[:]...) {
		if b.Ptr() != 0 {
			errs = append(errs, b.Free())
		}
	}
	return joined(errs...)
}

// stageBytes is the distance of the two staging halves: one piece, and room to shift its body to a 16-byte boundary.
func (g *Group) stageBytes() uint64 {
	return max(g.policy.limit[OneshotPull], g.policy.limit[TwoshotPull]) + 16
}

// buildDirect allocates the scratch, and sets flags, packets and counts before any peer learns where they are.
func (r *Rank) buildDirect() (err error) {
	rt, s, limit, world := r.g.rt, &r.scratch, &r.g.policy.limit, r.g.cfg.Ranks
	if s.control, err = rt.Alloc(r.dev, flags.PacketControlBytes); err != nil {
		return err
	}
	if limit[OneshotPull] != 0 || limit[TwoshotPull] != 0 {
		if s.pad, err = rt.Alloc(r.dev, flags.PadBytes); err != nil {
			return err
		}
		if s.stage, err = rt.Alloc(r.dev, 2*r.g.stageBytes()); err != nil {
			return err
		}
	}
	if limit[TwoshotPull] != 0 {
		chunk := (packsOf(limit[TwoshotPull]) + uint64(world) - 1) / uint64(world)
		if s.result, err = rt.Alloc(r.dev, 16*chunk); err != nil {
			return err
		}
	}
	for a, most := range limit {
		a := Algorithm(a)
		if most == 0 || !a.pushes() {
			continue
		}
		s.slots[a] = slotsOf(a, most, world)
		if s.box[a], err = rt.Alloc(r.dev, boxParts*uint64(world)*s.slots[a]*packetBytes); err != nil {
			return err
		}
	}
	return r.setEpochs()
}

const (
	packetBytes = 16
	boxParts    = 2 // places that a box has for the packets of each rank: two halves, or with two-shot one for parts and one for sums
)

// setEpochs makes all flags, packets and counts those of the call before the first. It does so on a stream of its own, as the caller's may be
// busy, and waits longer than ranks do for each other, for it is freed where that fails.
func (r *Rank) setEpochs() (err error) {
	s, first := &r.scratch, r.g.cfg.FirstEpoch
	stream, err := r.g.rt.NewStream(r.dev)
	if err != nil {
		return err
	}
	defer func() { err = joined(err, stream.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), max(r.g.cfg.Timeout, defaultTimeout))
	defer cancel()
	for _, b := range append([]launcher.Buffer{s.pad}, s.box[:]...) {
		var err error
		switch {
		case b.Ptr() == 0:
		case first == 0:
			err = stream.Memset(b, 0)
		default:
			err = stream.CopyIn(ctx, b, repeat(first, int(b.Size())))
		}
		if err != nil {
			return err
		}
	}
	control := repeat(first, flags.PacketControlBytes)
	put32(control, flags.PoisonedOffset, 0)
	return stream.CopyIn(ctx, s.control, control) // which waits for all of it
}

func repeat(word uint32, n int) []byte {
	b := make([]byte, 0, n)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint32(b, word)
	}
	return b
}

// connect writes the arguments that never change. It needs every rank's memory to be there.
func (r *Rank) connect() {
	for a, k := range r.kits {
		switch {
		case k == nil:
		case Algorithm(a).pulls():
			r.connectPull(k)
		case Algorithm(a).pushes():
			r.connectPush(k, Algorithm(a))
		}
	}
}

// connectPull is for both kernels that pull: what one-shot does not know lies beyond its arguments.
func (r *Rank) connectPull(k *kit) {
	b := k.packed[:]
	for p, peer := range r.g.ranks {
		put64(b, pullPad+8*p, peer.scratch.pad.Ptr())
		put64(b, twoshotResult+8*p, peer.scratch.result.Ptr())
	}
	put64(b, pullControl, r.scratch.control.Ptr())
	put64(b, pullStatus, r.status.Ptr())
	put64(b, pullHalf, r.g.stageBytes())
	put64(b, pullTimeout, uint64(r.g.cfg.Timeout.Nanoseconds()))
	put32(b, pullRank, uint32(r.id))
	put32(b, pullWorld, uint32(len(r.g.ranks)))
}

func (r *Rank) connectPush(k *kit, a Algorithm) {
	b := k.packed[:]
	for p, peer := range r.g.ranks {
		put64(b, pushBox+8*p, peer.scratch.box[a].Ptr())
	}
	put64(b, pushControl, r.scratch.control.Ptr())
	put64(b, pushStatus, r.status.Ptr())
	put64(b, pushSlots, r.scratch.slots[a])
	put64(b, pushTimeout, uint64(r.g.cfg.Timeout.Nanoseconds()))
	put32(b, pushRank, uint32(r.id))
	put32(b, pushWorld, uint32(len(r.g.ranks)))
	put64(b, pushEarly, lateFrom(a, len(r.g.ranks)))
}

// enqueueDirect launches the call's kernel, once for each piece. It allocates nothing.
func (r *Rank) enqueueDirect(op *operation) error {
	for off, piece := uint64(0), pieceOf(op.bytes(), r.g.policy.limit[op.call.algorithm]); off < op.bytes(); off += piece {
		if err := r.launchPiece(op, off, piece); err != nil {
			return err
		}
	}
	return nil
}

// launchPiece launches the call's kernel for the piece that begins at byte off, and is so many bytes or what is left.
func (r *Rank) launchPiece(op *operation, off, piece uint64) error {
	a, dt := op.call.algorithm, op.call.dtype
	k, n := r.kits[a], min(piece, op.bytes()-off)
	if a.pulls() {
		r.packPull(k.packed[:], op, off, n)
	} else {
		b := k.packed[:]
		put64(b, pushIn, op.in.Ptr()+off)
		put64(b, pushOut, op.out.Ptr()+off)
		put64(b, pushCount, n/dt.Size())
	}
	return k.launch(r, a, dt, n, op.grid)
}

// enqueuePieces queues a direct call on all ranks, piece by piece: a launch on a stream that is full waits until some of it
// has run, and that may need the piece ahead on the ranks that come later.
func (g *Group) enqueuePieces(ops []operation) error {
	return g.together(ops, func(party) error {
		for off, piece := uint64(0), pieceOf(ops[0].bytes(), g.policy.limit[ops[0].call.algorithm]); off < ops[0].bytes(); off += piece {
			for i, r := range g.ranks {
				if err := r.launchPiece(&ops[i], off, piece); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// packPull writes the arguments of n bytes of op, from off.
func (r *Rank) packPull(b []byte, op *operation, off, n uint64) {
	stage := r.scratch.stage.Ptr()
	if op.registration != nil {
		stage = 0
	}
	for p, peer := range r.g.ranks {
		at := peer.scratch.stage.Ptr()
		if op.registration != nil {
			at = op.registration.base[p] + op.call.offset + off
		}
		put64(b, pullPeer+8*p, at)
	}
	put64(b, pullIn, op.in.Ptr()+off)
	put64(b, pullOut, op.out.Ptr()+off)
	put64(b, pullStage, stage)
	put64(b, pullCount, n/op.call.dtype.Size())
	put32(b, pullHead, op.call.head)
}
