package allreduce

import (
	"context"
	"encoding/binary"

	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/launcher"
)

// halfBytes is the distance of the two staging halves: one piece, and room to shift its body to a 16-byte boundary.
func (g *Group) halfBytes() uint64 { return g.cfg.MaxBytes + 16 }

// buildPull allocates pad, control and staging, and sets the pad and the epochs before any peer learns where they are.
func (r *Rank) buildPull() (err error) {
	rt := r.g.rt
	if r.pad, err = rt.Alloc(r.dev, flags.PadBytes); err != nil {
		return err
	}
	if r.control, err = rt.Alloc(r.dev, flags.ControlBytes); err != nil {
		return err
	}
	if r.stage, err = rt.Alloc(r.dev, 2*r.g.halfBytes()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.g.cfg.Timeout)
	defer cancel()
	if err = r.stream.CopyIn(ctx, r.pad, repeat(r.g.cfg.FirstEpoch, flags.PadBytes)); err != nil {
		return err
	}
	control := repeat(r.g.cfg.FirstEpoch, flags.ControlBytes)
	put32(control, flags.PoisonedOffset, 0)
	return r.stream.CopyIn(ctx, r.control, control)
}

func repeat(word uint32, n int) []byte {
	b := make([]byte, 0, n)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint32(b, word)
	}
	return b
}

// connectPull writes the arguments that never change.
func (r *Rank) connectPull() {
	a := r.packed[:pullBytes]
	for p, peer := range r.g.ranks {
		put64(a, pullPad+8*p, peer.pad.Ptr())
	}
	put64(a, pullControl, r.control.Ptr())
	put64(a, pullStatus, r.status.Ptr())
	put64(a, pullHalf, r.g.halfBytes())
	put64(a, pullTimeout, uint64(r.g.cfg.Timeout.Nanoseconds()))
	put32(a, pullRank, uint32(r.id))
	put32(a, pullWorld, uint32(len(r.g.ranks)))
}

// enqueuePull launches the one-shot kernel, once for each piece. It allocates nothing.
func (r *Rank) enqueuePull(op *operation) error {
	dt := op.call.dtype
	k, args, a := r.kernels[dt], r.args[dt], r.packed[:pullBytes]
	stage := r.stage.Ptr()
	if op.registration != nil {
		stage = 0
	}
	total := op.call.count * dt.Size()
	for off := uint64(0); off < total; off += r.g.cfg.MaxBytes {
		n := min(r.g.cfg.MaxBytes, total-off)
		for p, peer := range r.g.ranks {
			at := peer.stage.Ptr()
			if op.registration != nil {
				at = op.registration.base[p] + op.call.offset + off
			}
			put64(a, pullPeer+8*p, at)
		}
		put64(a, pullIn, op.in.Ptr()+off)
		put64(a, pullOut, op.out.Ptr()+off)
		put64(a, pullStage, stage)
		put64(a, pullCount, n/dt.Size())
		put32(a, pullHead, op.call.head)
		if err := args.SetBytes(0, a); err != nil {
			return err
		}
		blocks, threads := r.g.shape(n)
		cfg := launcher.Linear(uint32(blocks), uint32(threads))
		cfg.Dependent = r.dependent
		if err := k.Launch(r.stream, cfg, args); err != nil {
			return err
		}
	}
	return nil
}
