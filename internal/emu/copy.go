package emu

import (
	"github.com/fenceline/fenceline/internal/gpu"
)

func (d *driver) Memset(dev int, h gpu.Stream, p gpu.Ptr, value byte, n uint64) error {
	const name = "Memset"
	return d.transfer(name, dev, h, op{kind: opMemset, dst: p, n: n, value: value}, func(v *device) error {
		return d.reachable(name, v, p, n)
	})
}

func (d *driver) Copy(dev int, h gpu.Stream, dst, src gpu.Ptr, n uint64) error {
	const name = "Copy"
	return d.transfer(name, dev, h, op{kind: opCopy, dst: dst, src: src, n: n}, func(v *device) error {
		if err := d.reachable(name, v, dst, n); err != nil {
			return err
		}
		return d.reachable(name, v, src, n)
	})
}

func (d *driver) CopyPeer(dev int, h gpu.Stream, dst gpu.Ptr, dstDev int, src gpu.Ptr, srcDev int, n uint64) error {
	const name = "CopyPeer"
	return d.transfer(name, dev, h, op{kind: opCopy, dst: dst, src: src, n: n, peer: true}, func(*device) error {
		if err := d.belongs(name, dev, dst, dstDev, n); err != nil {
			return err
		}
		return d.belongs(name, dev, src, srcDev, n)
	})
}

// transfer queues work, which the copy engine does, once check has let it pass. Nothing is queued for no bytes.
func (d *driver) transfer(name string, dev int, h gpu.Stream, work op, check func(v *device) error) error {
	d.lock()
	defer d.mu.Unlock()
	s, err := d.stream(name, dev, h)
	if err != nil {
		return err
	}
	if err := check(s.dev); err != nil || work.n == 0 {
		return err
	}
	work.dev = s.dev
	o := d.newOp(work.kind, s.dev)
	work.copyInto(o)
	return d.submit(name, s, o)
}

// belongs refuses an end of a peer copy that is not memory of a working device owner.
func (d *driver) belongs(op string, dev int, p gpu.Ptr, owner int, n uint64) error {
	if _, err := d.healthy(op, owner); err != nil || n == 0 {
		return err
	}
	a, err := d.whole(op, dev, p, n)
	if err == nil && a.owner != owner {
		err = fail(op, dev, gpu.ErrInvalidValue, "%#x belongs to a %v, not to device %d", uint64(p), a, owner)
	}
	return err
}

// whole finds the live area that holds all of [p, p+n).
func (d *driver) whole(op string, dev int, p gpu.Ptr, n uint64) (*area, error) {
	_, a, why := d.slice(p, n)
	if why != "" {
		return nil, fail(op, dev, gpu.ErrInvalidValue, "%s", why)
	}
	return a, nil
}

// reachable is whole, for memory that the device itself must reach. No bytes are reached anywhere.
func (d *driver) reachable(op string, dev *device, p gpu.Ptr, n uint64) error {
	if n == 0 {
		return nil
	}
	a, err := d.whole(op, dev.ordinal, p, n)
	if err != nil || a.owner == hostOwner || a.owner == dev.ordinal {
		return err
	}
	if err := dev.view.reach(a.owner, a); err != nil {
		return fail(op, dev.ordinal, gpu.ErrPeerAccess, "%v; or use Stream.Copy, which needs none", err)
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
