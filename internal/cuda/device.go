//go:build linux && cgo

package cuda

// #include "tramp.h"
// #cgo noescape fl_p2p
// #cgo nocallback fl_p2p
// #cgo noescape fl_mem_info
// #cgo nocallback fl_mem_info
// #cgo nocallback fl_peer_enable
// #cgo nocallback fl_peer_disable
import "C"

import "github.com/fenceline/fenceline/internal/gpu"

func (d *driver) DeviceInfo(dev int) (gpu.DeviceInfo, error) {
	dv, err := d.enter("DeviceInfo", dev)
	if err != nil {
		return gpu.DeviceInfo{}, err
	}
	defer d.life.RUnlock()
	return dv.info, nil
}

func (d *driver) MemInfo(dev int) (free, total uint64, err error) {
	dv, ctx, err := d.begin("MemInfo", dev)
	if err != nil {
		return 0, 0, err
	}
	defer d.life.RUnlock()
	var f, t C.size_t
	if r := C.fl_mem_info(d.lib, ctx, &f, &t); r != 0 {
		return 0, 0, d.fail("cuMemGetInfo_v2", dv, r, "")
	}
	return uint64(f), uint64(t), nil
}

// pair checks two devices that must differ. Without an error the caller must call d.life.RUnlock.
func (d *driver) pair(op string, dev, peer int) (dv, pv *device, err error) {
	dv, err = d.enter(op, dev)
	if err != nil {
		return nil, nil, err
	}
	if dev == peer {
		err = refuse(op, dev, gpu.ErrInvalidValue, "a device is not its own peer")
	} else {
		pv, err = d.admit(op, peer)
	}
	if err != nil {
		d.life.RUnlock()
		return nil, nil, err
	}
	return dv, pv, nil
}

func (d *driver) P2P(dev, peer int) (gpu.P2PInfo, error) {
	dv, pv, err := d.pair("P2P", dev, peer)
	if err != nil {
		return gpu.P2PInfo{}, err
	}
	defer d.life.RUnlock()
	return d.p2p(dv, pv)
}

func (d *driver) p2p(dv, pv *device) (gpu.P2PInfo, error) {
	var access, atomics, rank C.int
	if r := C.fl_p2p(d.lib, dv.cu, pv.cu, &access, &atomics, &rank); r != 0 {
		return gpu.P2PInfo{}, d.fail("cuDeviceCanAccessPeer", dv, r, "")
	}
	return gpu.P2PInfo{Access: access != 0, NativeAtomics: atomics != 0, PerfRank: int(rank)}, nil
}

func (d *driver) EnablePeerAccess(dev, peer int) error {
	dv, pv, err := d.pair("EnablePeerAccess", dev, peer)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	info, err := d.p2p(dv, pv)
	if err != nil {
		return err
	}
	if !info.Access {
		return refuse("EnablePeerAccess", dev, gpu.ErrPeerAccess,
			"the driver offers no access from device %d to device %d: see nvidia-smi topo -p2p r", dev, peer)
	}
	ctx, pctx, err := d.contexts(dv, pv)
	if err != nil {
		return err
	}
	r := C.fl_peer_enable(d.lib, ctx, pctx)
	if r != 0 && r != resPeerAlreadyEnabled {
		return d.fail("cuCtxEnablePeerAccess", dv, r, "to device "+itoa(peer))
	}
	return nil
}

func (d *driver) DisablePeerAccess(dev, peer int) error {
	dv, pv, err := d.pair("DisablePeerAccess", dev, peer)
	if err != nil {
		return err
	}
	defer d.life.RUnlock()
	ctx, pctx, err := d.contexts(dv, pv)
	if err != nil {
		return err
	}
	r := C.fl_peer_disable(d.lib, ctx, pctx)
	if r != 0 && r != resPeerNotEnabled {
		return d.fail("cuCtxDisablePeerAccess", dv, r, "to device "+itoa(peer))
	}
	return nil
}

func (d *driver) contexts(a, b *device) (ca, cb C.CUcontext, err error) {
	if ca, err = d.context(a); err == nil {
		cb, err = d.context(b)
	}
	return ca, cb, err
}
