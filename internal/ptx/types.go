package ptx

// typ is a PTX scalar type.
type typ uint8

const (
	tNone typ = iota
	tPred
	tB8
	tU8
	tS8
	tB16
	tU16
	tS16
	tF16
	tBF16
	tB32
	tU32
	tS32
	tF32
	tF16x2
	tBF16x2
	tU16x2
	tS16x2
	tB64
	tU64
	tS64
	tF64
	tB128 // in two 64-bit registers, the low half first
	tCount
)

var typeNames = [tCount]string{
	"", "pred", "b8", "u8", "s8", "b16", "u16", "s16", "f16", "bf16", "b32", "u32", "s32", "f32",
	"f16x2", "bf16x2", "u16x2", "s16x2", "b64", "u64", "s64", "f64", "b128",
}

var typesByName = func() map[string]typ {
	m := make(map[string]typ, len(typeNames))
	for t := tPred; t < tCount; t++ {
		m[typeNames[t]] = t
	}
	return m
}()

func (t typ) String() string { return "." + typeNames[t] }

// size is the width in bytes; 0 for predicates.
func (t typ) size() int {
	switch t {
	case tB8, tU8, tS8:
		return 1
	case tB16, tU16, tS16, tF16, tBF16:
		return 2
	case tB64, tU64, tS64, tF64:
		return 8
	case tB128:
		return 16
	case tPred, tNone:
		return 0
	}
	return 4
}

func (t typ) signed() bool { return t == tS8 || t == tS16 || t == tS32 || t == tS64 }

func (t typ) float() bool {
	switch t {
	case tF16, tBF16, tF32, tF64, tF16x2, tBF16x2:
		return true
	}
	return false
}

// bits is true of untyped bits, which fit integers and floats alike.
func (t typ) bits() bool { return t == tB8 || t == tB16 || t == tB32 || t == tB64 }

func (t typ) packed() bool { return t == tF16x2 || t == tBF16x2 || t == tU16x2 || t == tS16x2 }

// mask covers the bits of the type.
func (t typ) mask() uint64 {
	switch t.size() {
	case 1:
		return 0xff
	case 2:
		return 0xffff
	case 4:
		return 0xffffffff
	}
	return ^uint64(0)
}

// kind is the class of vector that holds a register of this type, or half of one of 128 bits.
func (t typ) kind() kind {
	switch t.size() {
	case 0:
		return kPred
	case 8, 16:
		return k64
	}
	return k32
}

// registers is how many of its kind hold one register of this type.
func (t typ) registers() int32 {
	if t == tB128 {
		return 2
	}
	return 1
}

// kind is a class of registers. Types narrower than 32 bits live in 32-bit vectors with the upper bits zero.
type kind uint8

const (
	kNone kind = iota
	k32
	k64
	kPred
)

// space is a state space.
type space uint8

const (
	spGeneric space = iota
	spGlobal
	spConst
	spShared
	spLocal
	spParam
	spReg
)

var spaceNames = []string{"generic", "global", "const", "shared", "local", "param", "reg"}

func (s space) String() string { return spaceNames[s] }

// Generic addresses carry the state space in their top byte. Global, constant and pinned host
// memory are one space, numbered by the caller, and must stay below 1<<56; the other spaces are
// windows, and an address within its own space is the offset from the start of its window.
const (
	windowShift  = 56
	sharedWindow = uint64(1) << windowShift
	localWindow  = uint64(2) << windowShift
	paramWindow  = uint64(3) << windowShift
)
