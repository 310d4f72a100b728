package emu

import (
	"github.com/fenceline/fenceline/internal/gpu"
)

func (d *driver) Memset(dev int, h gpu.Stream, p gpu.Ptr, value byte, n uint64) error {
	const op = "Memset"
	d.lock()
	defer d.mu.Unlock()
	s, err := d.stream(op, dev, h)
	if err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	if err := d.reachable(op, s.dev, p, n); err != nil {
		return err
	}
	o := d.newOp(opMemset, s.dev)
	o.dst, o.n, o.value = p, n, value
	return d.submit(op, s, o)
}

func (d *driver) Copy(dev int, h gpu.Stream, dst, src gpu.Ptr, n uint64) error {
	const op = "Copy"
	d.lock()
	defer d.mu.Unlock()
	s, err := d.stream(op, dev, h)
	if err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	if err := d.reachable(op, s.dev, dst, n); err != nil {
		return err
	}
	if err := d.reachable(op, s.dev, src, n); err != nil {
		return err
	}
	o := d.newOp(opCopy, s.dev)
	o.dst, o.src, o.n = dst, src, n
	return d.submit(op, s, o)
}

func (d *driver) CopyPeer(dev int, h gpu.Stream, dst gpu.Ptr, dstDev int, src gpu.Ptr, srcDev int, n uint64) error {
	const op = "CopyPeer"
	d.lock()
	defer d.mu.Unlock()
	s, err := d.stream(op, dev, h)
	if err != nil {
		return err
	}
	for _, end := range []struct {
		p   gpu.Ptr
		dev int
	}{{dst, dstDev}, {src, srcDev}} {
		if _, err := d.healthy(op, end.dev); err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		a, err := d.whole(op, dev, end.p, n)
		if err != nil {
			return err
		}
		if a.owner != end.dev {
			return fail(op, dev, gpu.ErrInvalidValue, "%#x belongs to a %v, not to device %d", uint64(end.p), a, end.dev)
		}
	}
	if n == 0 {
		return nil
	}
	o := d.newOp(opCopy, s.dev)
	o.dst, o.src, o.n, o.peer = dst, src, n, true
	return d.submit(op, s, o)
}

// whole finds the live area that holds all of [p, p+n).
func (d *driver) whole(op string, dev int, p gpu.Ptr, n uint64) (*area, error) {
	_, a, why := d.slice(p, n)
	if why != "" {
		return nil, fail(op, dev, gpu.ErrInvalidValue, "%s", why)
	}
	return a, nil
}

// reachable is whole, for memory that the device itself must reach.
func (d *driver) reachable(op string, dev *device, p gpu.Ptr, n uint64) error {
	a, err := d.whole(op, dev.ordinal, p, n)
	if err != nil || a.owner == hostOwner || a.owner == dev.ordinal {
		return err
	}
	if err := dev.view.reach(a.owner, a); err != nil {
		return fail(op, dev.ordinal, gpu.ErrPeerAccess, "%v; or use CopyPeer, which needs none", err)
	}
	return nil
}

func (d *driver) CopyIn(dev int, h gpu.Stream, dst gpu.Ptr, src []byte) error {
	return d.copyGo("CopyIn", dev, h, opIn, dst, src)
}

func (d *driver) CopyOut(dev int, h gpu.Stream, dst []byte, src gpu.Ptr) error {
	return d.copyGo("CopyOut", dev, h, opOut, src, dst)
}

// copyGo queues a copy between p and Go memory, and waits for it.
func (d *driver) copyGo(op string, dev int, h gpu.Stream, kind opKind, p gpu.Ptr, mem []byte) error {
	d.lock()
	defer d.mu.Unlock()
	s, err := d.stream(op, dev, h)
	if err != nil {
		return err
	}
	if s.capture != nil {
		return s.capture.spoil(op, dev, "the stream is capturing, and this copy has to wait for its end; use Copy from pinned memory")
	}
	if len(mem) == 0 {
		return nil
	}
	n := uint64(len(mem))
	if err := d.reachable(op, s.dev, p, n); err != nil {
		return err
	}
	o := d.newOp(kind, s.dev)
	o.dst, o.src, o.n, o.mem = p, p, n, mem
	if err := d.submit(op, s, o); err != nil {
		return err
	}
	_, err = d.settle(op, &goal{dev: s.dev, queue: s, ticket: s.submitted}, forever)
	return err
}
