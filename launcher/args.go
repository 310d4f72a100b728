package launcher

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

// Args are packed kernel arguments: the parameter buffer of one kernel. They may be launched any
// number of times and changed between launches; each launch takes them as they are then. To keep
// concurrent streams apart, pack once for each.
type Args struct {
	k    *Kernel
	buf  []byte
	bufs []*allocation // per parameter: the memory it points to, if packed from a buffer
}

// Pack lays out args, one for each parameter in order, as the kernel declares them.
//
//   - A 64-bit integer parameter takes a Buffer or *HostBuffer, as its address.
//   - An integer parameter takes Go integers and bool. The types int and uint must hold a value that
//     fits; sized types must not be wider than the parameter, and narrower ones are extended.
//     Negative values suit unsigned parameters as well, because compilers declare C's int so.
//   - An f32 or f64 parameter takes the Go float of that size. 16-bit floats are given as uint16 bits.
//   - A struct or array takes []byte, or any fixed-size Go value of exactly its size, such as a
//     struct of sized fields. Go adds no padding here: write C's padding as blank fields.
//
// Anything else is an *ArgError that names the parameter, and nothing is packed.
func (k *Kernel) Pack(args ...any) (*Args, error) {
	ps := k.sig.Params
	if len(args) != len(ps) {
		return nil, &ArgError{Kernel: k.name, Index: -1,
			Want: fmt.Sprintf("%d arguments (%s)", len(ps), k.declared()), Got: fmt.Sprintf("%d", len(args))}
	}
	a := &Args{k: k, buf: make([]byte, k.sig.ParamBytes), bufs: make([]*allocation, len(ps))}
	for i := range args {
		if err := a.set(i, args[i]); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Kernel is the kernel the arguments are for.
func (a *Args) Kernel() *Kernel { return a.k }

// Bytes is a copy of the parameter buffer.
func (a *Args) Bytes() []byte { return bytes.Clone(a.buf) }

// SetBuffer changes parameter i, a 64-bit integer, to the address of b.
func (a *Args) SetBuffer(i int, b Buffer) error {
	if !a.is(i, 8, false) {
		return a.refuse(i, "a Buffer")
	}
	if err := a.usable(i, b); err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(a.at(i), b.Ptr())
	a.bufs[i] = b.a
	return nil
}

// SetU64 changes parameter i, a 64-bit integer.
func (a *Args) SetU64(i int, v uint64) error {
	if !a.is(i, 8, false) {
		return a.refuse(i, "a uint64")
	}
	binary.LittleEndian.PutUint64(a.at(i), v)
	a.bufs[i] = nil
	return nil
}

// SetU32 changes parameter i, a 32-bit integer.
func (a *Args) SetU32(i int, v uint32) error {
	if !a.is(i, 4, false) {
		return a.refuse(i, "a uint32")
	}
	binary.LittleEndian.PutUint32(a.at(i), v)
	return nil
}

// SetF32 changes parameter i, a 32-bit float.
func (a *Args) SetF32(i int, v float32) error {
	if !a.is(i, 4, true) {
		return a.refuse(i, "a float32")
	}
	binary.LittleEndian.PutUint32(a.at(i), math.Float32bits(v))
	return nil
}

// SetBytes changes parameter i, of any type, to raw bytes of exactly its size.
func (a *Args) SetBytes(i int, v []byte) error {
	if i < 0 || i >= len(a.bufs) || len(v) != a.k.sig.Params[i].Size {
		return a.refuse(i, fmt.Sprintf("%d bytes", len(v)))
	}
	copy(a.at(i), v)
	a.bufs[i] = nil
	return nil
}

// is says whether parameter i exists and is a scalar of size bytes, float or integer. Untyped bits
// ("b32") are both.
func (a *Args) is(i, size int, float bool) bool {
	if i < 0 || i >= len(a.bufs) {
		return false
	}
	p := &a.k.sig.Params[i]
	return !p.Array && p.Size == size && (p.Type[0] == 'b' && p.Type[1] != 'f' || isFloat(p) == float)
}

func (a *Args) at(i int) []byte {
	p := &a.k.sig.Params[i]
	return a.buf[p.Offset : p.Offset+p.Size]
}

func (a *Args) usable(i int, b Buffer) error {
	p := &a.k.sig.Params[i]
	if err := b.Check(); err != nil {
		return fmt.Errorf("kernel %s: argument %d (%s): %w", a.k.name, i, p.Name, err)
	}
	if b.a.rt != a.k.m.rt {
		return a.refuse(i, "a buffer of another runtime")
	}
	return nil
}

// refuse is the ArgError for parameter i.
func (a *Args) refuse(i int, got string) error {
	ps := a.k.sig.Params
	if i < 0 || i >= len(ps) {
		return &ArgError{Kernel: a.k.name, Index: i, Param: "none",
			Want: fmt.Sprintf("an index below %d", len(ps)), Got: got}
	}
	return &ArgError{Kernel: a.k.name, Index: i, Param: ps[i].Name, Want: wanted(&ps[i]), Got: got}
}
