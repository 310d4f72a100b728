package allreduce

import (
	"fmt"
	"slices"

	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/launcher"
)

// Registration is a buffer on every rank that peers may read directly, which saves the algorithms that pull the copy
// into staging.
type Registration struct {
	g    *Group
	id   uint32
	size uint64
	base [flags.MaxRanks]uint64
}

// Register lets every rank read bufs[r] directly: one buffer per rank, memory of rank r's device, all of one size. In
// a later call whose input lies in it, at the same offset on every rank, peers read the input where it is: with two-shot
// pull always, with one-shot pull if the output lies apart from it and the call is large enough (Config.DirectBytes); all ranks
// must make that call so. The buffers must outlive the registration. With the other algorithms it has no effect. The error
// is an *ArgumentError, or ErrClosed.
func (g *Group) Register(bufs []launcher.Buffer) (*Registration, error) {
	if g.closed.Load() {
		return nil, ErrClosed
	}
	if len(bufs) != len(g.ranks) {
		return nil, bad("register", "%d buffers for %d ranks", len(bufs), len(g.ranks))
	}
	reg := &Registration{g: g, size: bufs[0].Size()}
	for r, b := range bufs {
		if err := b.Check(); err != nil {
			return nil, &ArgumentError{Rank: r, Arg: "register", Detail: "not usable memory", Err: err}
		}
		if !g.rt.Owns(b) {
			return nil, &ArgumentError{Rank: r, Arg: "register", Detail: "memory of another runtime"}
		}
		if b.Device() != g.ranks[r].dev {
			return nil, &ArgumentError{Rank: r, Arg: "register", Detail: fmt.Sprintf("memory of device %d, the rank is on device %d", b.Device(), g.ranks[r].dev)}
		}
		if b.Size() != reg.size {
			return nil, &ArgumentError{Rank: r, Arg: "register", Detail: fmt.Sprintf("%d bytes, rank 0 has %d", b.Size(), reg.size)}
		}
		reg.base[r] = b.Ptr()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range *g.registrations.Load() {
		for r := range g.ranks {
			if overlap(reg.base[r], reg.size, o.base[r], o.size) {
				return nil, &ArgumentError{Rank: r, Arg: "register", Detail: fmt.Sprintf(
					"%d bytes at %#x overlap a registered buffer at %#x: close that registration first", reg.size, reg.base[r], o.base[r])}
			}
		}
	}
	g.registered++
	reg.id = g.registered
	list := append(slices.Clone(*g.registrations.Load()), reg)
	g.registrations.Store(&list)
	return reg, nil
}

// Close ends the registration. Calls queued before stay valid as long as the buffers do. The error is always nil.
func (reg *Registration) Close() error {
	g := reg.g
	g.mu.Lock()
	defer g.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(*g.registrations.Load()), func(o *Registration) bool { return o == reg })
	g.registrations.Store(&list)
	return nil
}

// findRegistration marks op for direct reads if its input is registered, they pay, and nothing stands against them. One-shot
// pull needs a second flag exchange for them, and writes its output while peers still read: the two must be apart on
// every rank. Two-shot pull has that exchange in any case, and writes behind it, so that the sum may replace the rank's own
// input. Both read packs of 16 bytes: the inputs must be equally aligned.
func (g *Group) findRegistration(rank int, op *operation, n uint64) {
	twoshot := op.call.algorithm == TwoshotPull
	if !twoshot && n < g.cfg.DirectBytes {
		return
	}
	in, out := op.in.Ptr(), op.out.Ptr()
	for _, reg := range *g.registrations.Load() {
		base := reg.base[rank]
		if in < base || in+n > base+reg.size {
			continue
		}
		off := in - base
		for p := range g.ranks {
			at := reg.base[p] + off
			replaced := twoshot && p == rank && at == out
			if at%16 != in%16 || overlap(at, n, out, n) && !replaced {
				return
			}
		}
		op.registration = reg
		op.call.registration, op.call.offset = reg.id, off
		op.call.head = headOf(in%16, op.call.dtype)
		return
	}
}
