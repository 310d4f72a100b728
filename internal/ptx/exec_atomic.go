package ptx

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// bigEndian hosts keep words the other way round than PTX does.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// aligned tells whether sync/atomic may touch the word. Memory that the host shares with kernels is.
func aligned(p []byte, size uint8) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(p)))%uintptr(size) == 0
}

func loadAtomic(p []byte, size uint8) uint64 {
	p = p[:size] // checks the bounds without touching the memory
	switch {
	case !aligned(p, size) || size < 4:
		return loadBytes(p, size)
	case size == 4:
		v := atomic.LoadUint32((*uint32)(unsafe.Pointer(&p[0])))
		if bigEndian {
			v = bits.ReverseBytes32(v)
		}
		return uint64(v)
	}
	v := atomic.LoadUint64((*uint64)(unsafe.Pointer(&p[0])))
	if bigEndian {
		v = bits.ReverseBytes64(v)
	}
	return v
}

func storeAtomic(p []byte, size uint8, v uint64) {
	p = p[:size] // checks the bounds without touching the memory
	switch {
	case !aligned(p, size) || size < 4:
		storeBytes(p, size, v)
	case size == 4:
		if bigEndian {
			v = uint64(bits.ReverseBytes32(uint32(v)))
		}
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&p[0])), uint32(v))
	default:
		if bigEndian {
			v = bits.ReverseBytes64(v)
		}
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&p[0])), v)
	}
}

// swapAtomic replaces old by v and tells whether old was still there.
func swapAtomic(p []byte, size uint8, old, v uint64) bool {
	switch {
	case !aligned(p, size) || size < 4:
		storeBytes(p, size, v)
		return true
	case size == 4:
		if bigEndian {
			old, v = uint64(bits.ReverseBytes32(uint32(old))), uint64(bits.ReverseBytes32(uint32(v)))
		}
		return atomic.CompareAndSwapUint32((*uint32)(unsafe.Pointer(&p[0])), uint32(old), uint32(v))
	}
	if bigEndian {
		old, v = bits.ReverseBytes64(old), bits.ReverseBytes64(v)
	}
	return atomic.CompareAndSwapUint64((*uint64)(unsafe.Pointer(&p[0])), old, v)
}

// atomic executes atom and red, lowest lane first.
func (w *warp) atomic(o *op, mask uint32, data []byte, base uint64) {
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		p := data[w.ea[i]-base:]
		var y, z uint64
		if o.kb == k64 {
			y = w.r64[o.b][i]
		} else {
			y = uint64(w.r32[o.b][i])
		}
		switch o.kc {
		case k32:
			z = uint64(w.r32[o.c][i])
		case k64:
			z = w.r64[o.c][i]
		}
		var old uint64
		for {
			old = loadAtomic(p, o.size)
			v := o.fn(old, y, z)
			if v == old && o.sub == atomCas || swapAtomic(p, o.size, old, v) {
				break
			}
		}
		switch o.kd {
		case k32:
			w.r32[o.d][i] = uint32(old)
		case k64:
			w.r64[o.d][i] = old
		}
	}
}
