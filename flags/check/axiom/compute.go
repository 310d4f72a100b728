package axiom

import "github.com/fenceline/fenceline/flags/check/litmus"

// signed widens v, of the instruction's type, with its sign.
func signed(in *litmus.Instr, v uint64) int64 {
	shift := 64 - 8*in.Size
	return int64(v<<shift) >> shift
}

func less(in *litmus.Instr, x, y uint64) bool {
	if in.Type[0] == 's' {
		return signed(in, x) < signed(in, y)
	}
	return x < y
}

func compute(in *litmus.Instr, f *frame) (value, deps uint64) {
	var v [3]uint64
	for i, s := range in.Src {
		var d uint64
		v[i], d = f.arg(s)
		deps |= d
	}
	if pointless(in) {
		deps = 0
	}
	switch in.Op {
	case litmus.Setp:
		return b2u(compare(in, v[0], v[1])), deps
	case litmus.Select:
		if v[2] != 0 {
			return v[0], deps
		}
		return v[1], deps
	}
	return binary(in, v[0], v[1]) & mask(in.Size), deps
}

// pointless is whether the result is the same whatever is put in. Assemblers see that, and hardware then does what a
// dependency would forbid, so it is none.
func pointless(in *litmus.Instr) bool {
	if in.Op != litmus.Alu || len(in.Src) < 2 {
		return false
	}
	x, y := in.Src[0], in.Src[1]
	switch in.Fn {
	case "xor", "sub":
		return x.Reg != "" && x.Reg == y.Reg
	case "and", "mul":
		return x.Reg == "" && x.Value == 0 || y.Reg == "" && y.Value == 0
	}
	return false
}

// keeps is whether a guarded instruction would leave its destination as it is: then nothing depends on the guard.
func (f *frame) keeps(in *litmus.Instr) bool {
	return in.Op == litmus.Alu && in.Fn == "mov" && in.Src[0].Reg == "" && f.deps[in.Dst[0]] == 0 &&
		f.regs[in.Dst[0]] == in.Src[0].Value&mask(in.Size)
}

func b2u(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func compare(in *litmus.Instr, x, y uint64) bool {
	switch in.Fn {
	case "eq":
		return x == y
	case "ne":
		return x != y
	case "lt":
		return less(in, x, y)
	case "ge":
		return !less(in, x, y)
	case "gt":
		return less(in, y, x)
	}
	return !less(in, y, x)
}

// binary is arithmetic, and what an RMW makes of the old value x.
func binary(in *litmus.Instr, x, y uint64) uint64 {
	switch in.Fn {
	case "add":
		return x + y
	case "sub":
		return x - y
	case "mul":
		return x * y
	case "and":
		return x & y
	case "or":
		return x | y
	case "xor":
		return x ^ y
	case "shl":
		if y >= uint64(8*in.Size) {
			return 0
		}
		return x << y
	case "shr":
		if in.Type[0] == 's' {
			return uint64(signed(in, x) >> min(y, 63))
		}
		if y >= uint64(8*in.Size) {
			return 0
		}
		return x >> y
	case "min":
		if less(in, y, x) {
			return y
		}
	case "max":
		if less(in, x, y) {
			return y
		}
	case "exch":
		return y
	case "inc":
		if x >= y {
			return 0
		}
		return x + 1
	case "dec":
		if x == 0 || x > y {
			return y
		}
		return x - 1
	}
	return x // mov, and what min and max leave
}

// written is what element k of a store writes, or an RMW in place of old.
func written(in *litmus.Instr, f *frame, k int, old uint64) (value [2]uint64, deps uint64) {
	switch {
	case in.Size == 16:
		low, deps := f.arg(in.Src[0])
		high, more := f.arg(litmus.Arg{Reg: litmus.Upper(in.Src[0].Reg)})
		return [2]uint64{low, high}, deps | more
	case in.Op == litmus.Store:
		value[0], deps = f.arg(in.Src[k])
		value[0] &= mask(in.Size)
		return value, deps
	}
	v, deps := f.arg(in.Src[0])
	if in.Fn == "cas" {
		swap, more := f.arg(in.Src[1])
		if old == v {
			return [2]uint64{swap}, deps | more
		}
		return [2]uint64{old}, deps | more
	}
	return [2]uint64{binary(in, old, v) & mask(in.Size)}, deps
}

// moveWide does a mov of 128 bits. What depends on what is kept for each half.
func (f *frame) moveWide(in *litmus.Instr, guard uint64) {
	var v, deps [2]uint64
	if in.Fn == "pack" {
		for i, s := range in.Src {
			part, d := f.arg(s)
			half, bytes := 2*i/in.Vec, 16/in.Vec
			v[half] |= part & mask(bytes) << (8 * (i * bytes % 8))
			deps[half] |= d
		}
	} else {
		v[0], deps[0] = f.arg(in.Src[0])
		v[1], deps[1] = f.arg(litmus.Arg{Reg: litmus.Upper(in.Src[0].Reg)})
	}
	dst, each := []string{in.Dst[0], litmus.Upper(in.Dst[0])}, 8
	if in.Fn == "unpack" {
		dst, each = in.Dst, 16/in.Vec
	}
	for i, d := range dst {
		f.regs[d], f.deps[d] = v[i*each/8]>>(8*(i*each%8))&mask(each), deps[i*each/8]|guard
	}
}
