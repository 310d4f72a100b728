package ptx

import "math"

// instructions maps every known opcode to its lowering.
var instructions map[string]func(*builder)

func init() {
	instructions = map[string]func(*builder){
		"abs": lowerAbs, "activemask": lowerActivemask, "add": lowerAdd, "addc": lowerAddc,
		"and":           lowerLogic(opAnd32, opAnd64, opAndPred, func(x, y, _ uint64) uint64 { return x & y }),
		"applypriority": lowerApplyPriority, "atom": lowerAtom, "bar": lowerBar, "barrier": lowerBar,
		"bfe": lowerBfe, "bfi": lowerBfi, "bfind": lowerBfind, "bmsk": lowerBmsk, "bra": lowerBra,
		"brev": lowerBrev, "brx": lowerBrx, "call": lowerCall, "clz": lowerClz, "cnot": lowerCnot,
		"copysign": lowerCopysign, "cos": lowerApprox(math.Cos, tF32), "cvt": lowerCvt, "cvta": lowerCvta,
		"div": lowerDiv, "dp2a": lowerDp2a, "dp4a": lowerDp4a, "elect": lowerElect,
		"ex2": lowerApprox(math.Exp2, tF32, tF16, tF16x2, tBF16, tBF16x2), "exit": lowerExit, "fence": lowerFence,
		"fma": lowerFma, "griddepcontrol": lowerGriddep, "isspacep": lowerIsspacep, "ld": lowerLd, "ldu": lowerLdu,
		"lg2": lowerApprox(math.Log2, tF32), "lop3": lowerLop3, "mad": lowerMad, "mad24": lowerMad24,
		"madc": lowerMadc, "match": lowerMatch, "max": lowerMax, "membar": lowerMembar, "min": lowerMin,
		"mov": lowerMov, "mul": lowerMul, "mul24": lowerMul24, "nanosleep": lowerNanosleep, "neg": lowerNeg,
		"not":  lowerNot,
		"or":   lowerLogic(opOr32, opOr64, opOrPred, func(x, y, _ uint64) uint64 { return x | y }),
		"popc": lowerPopc, "prefetch": lowerPrefetch, "prmt": lowerPrmt, "rcp": lowerRoot(floatOp.rcp),
		"red": lowerRed, "redux": lowerRedux, "rem": lowerRem, "ret": lowerRet,
		"rsqrt": lowerApprox(rsqrt, tF32, tF64), "sad": lowerSad, "selp": lowerSelp, "set": lowerSet,
		"setp": lowerSetp, "shf": lowerShf, "shfl": lowerShfl, "shl": lowerShl, "shr": lowerShr,
		"sin": lowerApprox(math.Sin, tF32), "slct": lowerSlct, "sqrt": lowerRoot(floatOp.sqrt), "st": lowerSt,
		"sub": lowerSub, "subc": lowerSubc, "tanh": lowerApprox(math.Tanh, tF32, tF16, tF16x2, tBF16, tBF16x2),
		"testp": lowerTestp, "trap": lowerTrap, "vote": lowerVote,
		"xor": lowerLogic(opXor32, opScalar, opXorPred, func(x, y, _ uint64) uint64 { return x ^ y }),
	}
}

// refused says why a known opcode does not run here.
var refused = map[string]string{
	"alloca":       "it needs a stack",
	"brkpt":        "there is no debugger to stop in",
	"cp":           "asynchronous copies are not emulated",
	"createpolicy": "cache policies are not emulated",
	"discard":      "it leaves memory without a value; leave it out, as only speed depends on it",
	"getctarank":   "clusters are not emulated",
	"istypep":      "textures are not emulated",
	"ldmatrix":     "matrix instructions are not emulated",
	"mapa":         "clusters are not emulated",
	"mbarrier":     "asynchronous barriers are not emulated",
	"mma":          "matrix instructions are not emulated",
	"movmatrix":    "matrix instructions are not emulated",
	"multimem":     "multicast memory is not emulated",
	"pmevent":      "performance events are not emulated",
	"prefetchu":    "the uniform cache is not emulated",
	"setmaxnreg":   "register reallocation is not emulated",
	"st.async":     "asynchronous stores are not emulated",
	"stackrestore": "it needs a stack",
	"stacksave":    "it needs a stack",
	"stmatrix":     "matrix instructions are not emulated",
	"suld":         "surfaces are not emulated",
	"sust":         "surfaces are not emulated",
	"tcgen05":      "matrix instructions are not emulated",
	"tensormap":    "tensor maps are not emulated",
	"tex":          "textures are not emulated",
	"tld4":         "textures are not emulated",
	"wgmma":        "matrix instructions are not emulated",
	"wmma":         "matrix instructions are not emulated",
}
