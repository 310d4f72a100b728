package ptx

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

const segCount = 16

// segEntry is a resolved segment: addresses base ≤ a < end.
type segEntry struct {
	base, end uint64
	data      []byte
	route     Route
	write     bool // resolved for writing
}

// segment finds the segment that holds size bytes at lo, in the cache or by resolving the address.
func (b *Block) segment(lo uint64, size int, write bool) (*segEntry, error) {
	end := lo + uint64(size)
	if s := &b.segs[b.recent]; lo >= s.base && end <= s.end && end > lo && (s.write || !write) {
		return s, nil
	}
	for i := range b.segs {
		if s := &b.segs[i]; lo >= s.base && end <= s.end && end > lo && (s.write || !write) {
			b.recent = i
			return s, nil
		}
	}
	seg, err := b.launch.Memory.Resolve(lo, size, write)
	if err != nil {
		return nil, err
	}
	e := segEntry{base: seg.Base, end: seg.Base + uint64(len(seg.Data)), data: seg.Data, route: seg.Route, write: write}
	if lo < e.base || end > e.end {
		return nil, fmt.Errorf("memory resolved to [%#x, %#x), which does not hold the access", e.base, e.end)
	}
	b.victim = (b.victim + 1) % segCount
	b.recent = b.victim
	b.segs[b.victim] = e
	return &b.segs[b.victim], nil
}

// access executes a memory operation for the lanes of mask, which is not empty.
func (w *warp) access(o *op, mask uint32) *Fault {
	if o.code == opLoadParam {
		w.loadParam(o, mask)
		return nil
	}
	size := int(o.size) * max(int(o.nv), 1)
	lo, hi, low := w.addresses(o, mask)
	if low&uint64(size-1) != 0 {
		for m := mask; ; m &= m - 1 {
			if i := bits.TrailingZeros32(m); w.ea[i]&uint64(size-1) != 0 {
				return w.fault(Misaligned, 1<<i, o, w.ea[i], size, nil)
			}
		}
	}
	if o.code != opStore {
		w.polled, w.strong = o, o.sem != semWeak
	}
	// One piece of memory for the whole warp, where there is one.
	sp := o.space
	if sp == spGeneric && lo>>windowShift == hi>>windowShift {
		switch lo >> windowShift {
		case 0:
			sp = spGlobal
		case 1:
			sp = spShared
			for m := mask; m != 0; m &= m - 1 {
				w.ea[bits.TrailingZeros32(m)] -= sharedWindow
			}
			lo, hi = lo-sharedWindow, hi-sharedWindow
		}
	}
	end := hi + uint64(size)
	switch {
	case end < hi:
	case sp == spGeneric && lo >= paramWindow && end <= paramWindow+uint64(len(w.b.launch.Params)) && o.code == opLoad:
		w.move(o, mask, w.b.launch.Params, paramWindow, lo, hi)
		return nil
	case sp == spShared && end <= uint64(len(w.b.shared)):
		w.move(o, mask, w.b.shared, 0, lo, hi)
		return nil
	case sp == spGlobal || sp == spConst:
		seg, err := w.b.segment(lo, size, o.code != opLoad)
		if err == nil && end <= seg.end {
			if seg.route != (Route{}) {
				return w.misrouted(o, mask, seg)
			}
			w.move(o, mask, seg.data, seg.base, lo, hi)
			return nil
		}
	}
	return w.scattered(o, sp, mask, size)
}

// addresses computes the address of every lane of mask into w.ea, and their least, greatest and union of bits.
func (w *warp) addresses(o *op, mask uint32) (lo, hi, low uint64) {
	ea := &w.ea
	lo = ^uint64(0)
	switch o.ka {
	case k64:
		a := &w.r64[o.a]
		if mask == ^uint32(0) {
			for i := range ea {
				v := a[i] + o.imm
				ea[i] = v
				lo, hi, low = min(lo, v), max(hi, v), low|v
			}
			return lo, hi, low
		}
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			ea[i] = a[i] + o.imm
		}
	case k32:
		a := &w.r32[o.a]
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			ea[i] = uint64(a[i] + uint32(o.imm))
		}
	default:
		for m := mask; m != 0; m &= m - 1 {
			ea[bits.TrailingZeros32(m)] = o.imm
		}
	}
	for m := mask; m != 0; m &= m - 1 {
		v := ea[bits.TrailingZeros32(m)]
		lo, hi, low = min(lo, v), max(hi, v), low|v
	}
	return lo, hi, low
}

// scattered does an access lane by lane, each finding its own memory.
func (w *warp) scattered(o *op, sp space, mask uint32, size int) *Fault {
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		s, err := w.place(sp, w.ea[i], size, i, o.code != opLoad)
		if err != nil {
			return w.fault(BadAddress, 1<<i, o, w.ea[i], size, err)
		}
		if s.route != (Route{}) {
			if f := w.misrouted(o, 1<<i, &s); f != nil {
				return f
			}
			continue
		}
		w.move(o, 1<<i, s.data, s.base, w.ea[i], w.ea[i])
	}
	return nil
}

// place finds the memory of one lane's access. The address keeps its meaning: data[addr-base] is the first byte.
func (w *warp) place(sp space, addr uint64, size, lane int, write bool) (segEntry, error) {
	var data []byte
	var base uint64
	if sp == spGeneric {
		switch addr >> windowShift {
		case 1:
			sp, base = spShared, sharedWindow
		case 2:
			sp, base = spLocal, localWindow
		case 3:
			sp, base = spParam, paramWindow
		}
	}
	switch sp {
	case spShared:
		data = w.b.shared
	case spLocal:
		n := w.b.k.Local
		data = w.local[lane*n : (lane+1)*n]
	case spParam:
		data = w.b.launch.Params
		if write {
			return segEntry{}, fmt.Errorf("kernel parameters are read-only")
		}
	default:
		seg, err := w.b.segment(addr, size, write)
		if err != nil {
			return segEntry{}, err
		}
		return *seg, nil
	}
	if off := addr - base; off > uint64(len(data)) || uint64(size) > uint64(len(data))-off {
		return segEntry{}, fmt.Errorf("outside the %d bytes of .%v memory", len(data), sp)
	}
	return segEntry{base: base, data: data}, nil
}

// move transfers between registers and data, which holds all the accesses.
func (w *warp) move(o *op, mask uint32, data []byte, base, lo, hi uint64) {
	switch {
	case o.code == opAtomic:
		w.atomic(o, mask, data, base)
	case o.sem != semWeak && o.size >= 4:
		w.moveStrong(o, mask, data, base)
	case o.code == opStore:
		w.store(o, mask, data, base)
	case lo == hi && mask&(mask-1) != 0:
		w.broadcast(o, mask, data[lo-base:])
	case o.size == 4 && o.kv == k32 && mask == ^uint32(0):
		w.load32(o, data, base)
	default:
		w.load(o, mask, data, base)
	}
}

// load32 loads 32-bit elements in all lanes.
func (w *warp) load32(o *op, data []byte, base uint64) {
	ea := &w.ea
	if o.nv == 4 && o.v[0] >= 0 && o.v[1] >= 0 && o.v[2] >= 0 && o.v[3] >= 0 {
		d0, d1, d2, d3 := &w.r32[o.v[0]], &w.r32[o.v[1]], &w.r32[o.v[2]], &w.r32[o.v[3]]
		for i := range ea {
			p := data[ea[i]-base:][:16]
			d0[i] = binary.LittleEndian.Uint32(p)
			d1[i] = binary.LittleEndian.Uint32(p[4:])
			d2[i] = binary.LittleEndian.Uint32(p[8:])
			d3[i] = binary.LittleEndian.Uint32(p[12:])
		}
		return
	}
	for k := range int(o.nv) {
		if o.v[k] < 0 {
			continue
		}
		d := &w.r32[o.v[k]]
		off := uint64(4*k) - base
		for i := range ea {
			d[i] = binary.LittleEndian.Uint32(data[ea[i]+off:])
		}
	}
}

// load is the general weak load.
func (w *warp) load(o *op, mask uint32, data []byte, base uint64) {
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		p := data[w.ea[i]-base:]
		for k := range int(o.nv) {
			w.setElement(o, k, i, loadBytes(p[k*int(o.size):], o.size))
		}
	}
}

// setElement writes one loaded element to its register, extended to the register's width.
func (w *warp) setElement(o *op, k, lane int, v uint64) {
	r := o.v[k]
	if r < 0 {
		return
	}
	if o.sx {
		shift := 64 - 8*uint(o.size)
		v = uint64(int64(v<<shift) >> shift)
		if o.sub == 2 {
			v &= 0xffff
		}
	}
	if o.kv == k64 {
		w.r64[r][lane] = v
	} else {
		w.r32[r][lane] = uint32(v)
	}
}

func loadBytes(p []byte, size uint8) uint64 {
	switch size {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(p))
	case 4:
		return uint64(binary.LittleEndian.Uint32(p))
	}
	return binary.LittleEndian.Uint64(p)
}

func storeBytes(p []byte, size uint8, v uint64) {
	switch size {
	case 1:
		p[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(p, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(p, uint32(v))
	default:
		binary.LittleEndian.PutUint64(p, v)
	}
}

// store is the weak store. Of lanes that write the same place the highest wins.
func (w *warp) store(o *op, mask uint32, data []byte, base uint64) {
	if o.nv == 4 && o.size == 4 && o.kv == k32 {
		s0, s1, s2, s3 := &w.r32[o.v[0]], &w.r32[o.v[1]], &w.r32[o.v[2]], &w.r32[o.v[3]]
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			p := data[w.ea[i]-base:][:16]
			binary.LittleEndian.PutUint32(p, s0[i])
			binary.LittleEndian.PutUint32(p[4:], s1[i])
			binary.LittleEndian.PutUint32(p[8:], s2[i])
			binary.LittleEndian.PutUint32(p[12:], s3[i])
		}
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		p := data[w.ea[i]-base:]
		for k := range int(o.nv) {
			storeBytes(p[k*int(o.size):], o.size, w.element(o, k, i))
		}
	}
}

func (w *warp) element(o *op, k, lane int) uint64 {
	if o.kv == k64 {
		return w.r64[o.v[k]][lane]
	}
	return uint64(w.r32[o.v[k]][lane])
}

// moveStrong is the load or store of words that the host or others may be using at the same time. A .b128 is one access all the
// same: only the host runs beside a warp, and it uses words of 64 bits at most.
func (w *warp) moveStrong(o *op, mask uint32, data []byte, base uint64) {
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		p := data[w.ea[i]-base:]
		for k := range int(o.nv) {
			q := p[k*int(o.size):]
			if o.code == opStore {
				storeAtomic(q, o.size, w.element(o, k, i))
			} else {
				w.setElement(o, k, i, loadAtomic(q, o.size))
			}
		}
	}
}

// loadParam reads a parameter at a fixed place.
func (w *warp) loadParam(o *op, mask uint32) { w.broadcast(o, mask, w.b.launch.Params[o.imm:]) }

// broadcast loads the same memory into all lanes of mask.
func (w *warp) broadcast(o *op, mask uint32, p []byte) {
	lane := bits.TrailingZeros32(mask) & 31
	for k := range int(o.nv) {
		r := o.v[k]
		if r < 0 {
			continue
		}
		w.setElement(o, k, lane, loadBytes(p[k*int(o.size):], o.size))
		if o.kv == k64 {
			w.fill64(r, mask, w.r64[r][lane])
		} else {
			w.fill32(r, mask, w.r32[r][lane])
		}
	}
}
