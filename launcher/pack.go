package launcher

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"strings"
)

// set packs one argument of any supported type.
func (a *Args) set(i int, arg any) error {
	p := &a.k.sig.Params[i]
	switch v := arg.(type) {
	case nil:
		return a.refuse(i, "nil")
	case Buffer:
		return a.SetBuffer(i, v)
	case *HostBuffer:
		if v.null() {
			return a.refuse(i, "a null *HostBuffer")
		}
		return a.SetBuffer(i, v.Buffer())
	case []byte:
		if !p.Array {
			return a.refuse(i, fmt.Sprintf("[]byte of %d", len(v)))
		}
		return a.SetBytes(i, v)
	}
	v := reflect.ValueOf(arg)
	if p.Array {
		return a.setFixed(i, arg)
	}
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		return a.setFloat(i, v)
	case reflect.Bool:
		if !isInt(p) {
			return a.refuse(i, "a bool")
		}
		if v.Bool() {
			a.put(i, 1)
		} else {
			a.put(i, 0)
		}
		return nil
	}
	switch {
	case v.CanInt():
		return a.setInt(i, v, v.Int() < 0, uint64(v.Int()))
	case v.CanUint():
		return a.setInt(i, v, false, v.Uint())
	}
	return a.refuse(i, fmt.Sprintf("%T", arg))
}

// setInt packs a Go integer whose 64-bit two's complement is raw.
func (a *Args) setInt(i int, v reflect.Value, negative bool, raw uint64) error {
	p := &a.k.sig.Params[i]
	got := func() string { return fmt.Sprintf("%s %v", v.Type(), v) }
	sized := v.Kind() != reflect.Int && v.Kind() != reflect.Uint
	switch {
	case isFloat(p) && p.Size == 2 && v.Kind() == reflect.Uint16: // the bits of a half
	case !isInt(p):
		return a.refuse(i, got())
	case sized && int(v.Type().Size()) > p.Size:
		return a.refuse(i, got()+", a wider type")
	case !holds(p, negative, raw):
		return a.refuse(i, got()+", out of range")
	}
	a.put(i, raw)
	return nil
}

// holds says whether an integer parameter can represent a value. Unsigned and untyped ones take
// the signed range too, as compilers use them for both.
func holds(p *Param, negative bool, raw uint64) bool {
	width := 8 * p.Size
	if negative {
		return bits.Len64(^raw) < width
	}
	if p.Type[0] == 's' {
		width--
	}
	return bits.Len64(raw) <= width
}

func (a *Args) setFloat(i int, v reflect.Value) error {
	p := &a.k.sig.Params[i]
	if int(v.Type().Size()) != p.Size || !isFloat(p) && p.Type[0] != 'b' {
		return a.refuse(i, fmt.Sprintf("%s %v", v.Type(), v))
	}
	if p.Size == 4 {
		a.put(i, uint64(math.Float32bits(float32(v.Float()))))
	} else {
		a.put(i, math.Float64bits(v.Float()))
	}
	return nil
}

// setFixed packs a struct or array parameter from a Go value of fixed size.
func (a *Args) setFixed(i int, arg any) error {
	p := &a.k.sig.Params[i]
	switch n := binary.Size(arg); {
	case n < 0:
		return a.refuse(i, fmt.Sprintf("%T, which has no fixed size", arg))
	case n != p.Size:
		return a.refuse(i, fmt.Sprintf("%T of %d bytes without padding", arg, n))
	}
	b, err := binary.Append(make([]byte, 0, p.Size), binary.LittleEndian, arg)
	if err != nil {
		return a.refuse(i, fmt.Sprintf("%T: %v", arg, err))
	}
	return a.SetBytes(i, b)
}

// put writes the low bytes of raw into scalar parameter i.
func (a *Args) put(i int, raw uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], raw)
	copy(a.at(i), b[:])
	a.bufs[i] = nil
}

func isFloat(p *Param) bool {
	return strings.HasPrefix(p.Type, "f") || strings.HasPrefix(p.Type, "bf")
}

func isInt(p *Param) bool {
	return !p.Array && !isFloat(p) && p.Size <= 8 && strings.Contains("usb", p.Type[:1])
}

// wanted describes a parameter for messages.
func wanted(p *Param) string {
	switch {
	case p.Array:
		return fmt.Sprintf("[]byte or a fixed-size value of %d bytes (struct or array)", p.Size)
	case isFloat(p) && p.Size == 2:
		return fmt.Sprintf("%s (uint16 bits)", p.Type)
	case p.Size == 8 && !isFloat(p):
		return fmt.Sprintf("%s (64-bit integer or buffer)", p.Type)
	}
	return fmt.Sprintf("%s (%d bytes)", p.Type, p.Size)
}

// declared lists the parameters for messages: "u64 add_peer_param_0, u32 add_peer_param_1".
func (k *Kernel) declared() string {
	var parts []string
	for i := range k.sig.Params {
		p := &k.sig.Params[i]
		if p.Array {
			parts = append(parts, fmt.Sprintf("%s[%d] %s", p.Type, p.Size, p.Name))
		} else {
			parts = append(parts, p.Type+" "+p.Name)
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
