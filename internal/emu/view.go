package emu

import (
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/internal/ptx"
)

// view is the memory that one device sees: its own, the pinned memory of the host, and peers' where
// access is enabled in that direction. It is used only with the driver's mutex held.
type view struct {
	d   *driver
	dev *device
}

// Generation moves when anything is freed, or peer access is taken away.
func (v *view) Generation() uint64 { return v.d.generation }

// Resolve implements ptx.Memory.
func (v *view) Resolve(addr uint64, size int, _ bool) (ptx.Segment, error) {
	if addr < guard {
		return ptx.Segment{}, errors.New("null pointer, or an offset from one")
	}
	owner, ok := ownerOf(addr, len(v.d.devices))
	if !ok {
		return ptx.Segment{}, errors.New("no memory of this machine is there")
	}
	s := v.d.space(owner)
	a := s.at(addr)
	if a == nil || uint64(size) > a.end()-addr {
		return ptx.Segment{}, errors.New(s.explain(addr, uint64(size)))
	}
	seg := ptx.Segment{Base: a.base, Data: a.data}
	if owner != hostOwner && owner != v.dev.ordinal {
		if err := v.reach(owner, a); err != nil {
			return ptx.Segment{}, err
		}
		l := &v.dev.links[owner]
		seg.Route = ptx.Route{Loads: l.Loads, Stores: l.Stores}
	}
	return seg, nil
}

// reach says why this device can't touch an area of a peer, or nil.
func (v *view) reach(peer int, a *area) error {
	from := v.dev.ordinal
	switch {
	case !v.dev.links[peer].Claim.Access:
		return fmt.Errorf("device %d has no peer access to device %d (%v), and this machine (%s) can't give it", from, peer, a, v.d.machine.Name)
	case !v.dev.peers[peer]:
		return fmt.Errorf("device %d has no peer access to device %d (%v); call Runtime.EnablePeer(%d, %d)", from, peer, a, from, peer)
	}
	return nil
}
