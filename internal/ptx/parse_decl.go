package ptx

import (
	"encoding/binary"
	"math"
	"strconv"
)

// params reads a parenthesised parameter list and lays it out. For entries v.pos becomes the
// offset in the parameter buffer. It returns the size of the buffer.
func (p *parser) params(entry bool) ([]*variable, int) {
	p.want("(")
	var list []*variable
	size := 0
	if p.accept(")") {
		return nil, 0
	}
	names := map[string]bool{}
	for {
		t := p.tok
		v := &variable{line: t.line, pos: t.pos}
		switch {
		case p.dot("param"):
			v.space = spParam
		case !entry && p.dot("reg"):
			v.space = spReg
		default:
			p.fail(t, "expected a parameter declaration, found `%v`", t)
		}
		p.declType(v)
		if p.dot("ptr") {
			p.ptrAttributes()
		}
		v.name = p.ident("a parameter name").text
		p.dimensions(v, false)
		if names[v.name] {
			p.fail(t, "parameter `%s` declared twice", v.name)
		}
		names[v.name] = true
		if entry {
			size = (size + v.align - 1) / v.align * v.align
			v.pos = size
			if size += v.size; size > maxParams {
				p.fail(t, "parameters of more than %d bytes", maxParams)
			}
		}
		list = append(list, v)
		if !p.accept(",") {
			break
		}
	}
	p.want(")")
	return list, size
}

// ptrAttributes reads what follows .ptr: a space and an alignment, which bind nobody here.
func (p *parser) ptrAttributes() {
	for p.tok.kind == tokDot {
		switch t := p.next(); t.text {
		case "global", "const", "shared", "local", "param":
		case "align":
			p.integer()
		default:
			p.fail(t, "unknown pointer attribute `%v`", t)
		}
	}
}

// declType reads [.align n] .type.
func (p *parser) declType(v *variable) {
	for {
		t := p.tok
		if t.kind != tokDot {
			p.fail(t, "expected a type, found `%v`", t)
		}
		p.next()
		if t.text == "align" {
			n := p.integer()
			if n == 0 || n&(n-1) != 0 || n > 1<<16 {
				p.fail(t, "alignment %d is no power of two up to 65536", n)
			}
			v.align = int(n)
			continue
		}
		ty, ok := typesByName[t.text]
		if !ok || ty.packed() || (ty == tPred && v.space != spReg) {
			p.fail(t, "type `%v` cannot be declared here", t)
		}
		if ty == tB128 {
			p.fail(t, "type `.b128` is for registers alone: declare the 16 bytes as .b8 or .b64, with .align 16")
		}
		v.typ = ty
		if v.align == 0 {
			v.align = max(ty.size(), 1)
		}
		return
	}
}

// dimensions reads [n][m]… and sets the size. An empty first dimension is allowed when open.
func (p *parser) dimensions(v *variable, open bool) {
	n := uint64(1)
	for first := true; p.tok.is("["); first = false {
		t := p.next()
		v.array = true
		if p.accept("]") {
			if !first || !open {
				p.fail(t, "array `%s` has no size", v.name)
			}
			n = 0
			continue
		}
		d := p.integer()
		if d > maxVarBytes || n*d > maxVarBytes {
			p.fail(t, "array `%s` is too large", v.name)
		}
		n *= d
		p.want("]")
	}
	v.size = int(n) * v.typ.size()
	if v.size > maxVarBytes {
		p.fail(p.tok, "array `%s` is too large", v.name)
	}
}

// variables reads one .global, .const, .shared, .local or .param declaration statement.
func (p *parser) variables(extern bool) []*variable {
	at := p.next()
	proto := variable{extern: extern}
	switch at.text {
	case "global":
		proto.space = spGlobal
	case "const":
		proto.space = spConst
	case "shared":
		proto.space = spShared
	case "local":
		proto.space = spLocal
	case "param":
		proto.space = spParam
	}
	p.declType(&proto)
	var list []*variable
	for {
		v := proto
		t := p.ident("a variable name")
		v.name, v.line, v.pos = t.text, t.line, t.pos
		p.dimensions(&v, true)
		init := p.tok
		if p.accept("=") {
			if v.space != spGlobal && v.space != spConst {
				p.fail(init, "%v variables cannot be initialised", v.space)
			}
			p.initialise(&v)
		}
		switch {
		case extern && v.space != spShared:
			p.fail(t, "`%s` is extern: linking modules is not supported, define it in this file", v.name)
		case extern && v.size != 0:
			v.extern = false // an ordinary static array, as far as layout goes
		case v.size == 0 && !extern:
			p.fail(t, "array `%s` has no size", v.name)
		}
		list = append(list, &v)
		if !p.accept(",") {
			break
		}
	}
	p.want(";")
	return list
}

// initialise reads a scalar or a (nested) brace list into v.init. The rest stays zero.
func (p *parser) initialise(v *variable) {
	var vals []byte
	depth := 0
	open := p.tok
	for {
		switch {
		case p.accept("{"):
			if !v.array {
				p.fail(open, "`%s` is no array", v.name)
			}
			depth++
			continue
		case p.tok.is("}"):
		default:
			vals = p.initValue(v, vals)
		}
		for depth > 0 && p.accept("}") {
			depth--
		}
		if depth == 0 {
			break
		}
		p.want(",")
	}
	if v.size == 0 {
		v.size = len(vals)
	}
	if len(vals) > v.size {
		p.fail(open, "`%s` has more initialisers than room", v.name)
	}
	if p.inits += v.size; p.inits > maxInitBytes {
		p.fail(open, "initialised variables of more than %d bytes", maxInitBytes)
	}
	v.init = make([]byte, v.size)
	copy(v.init, vals)
}

// initValue appends one constant as the type's bytes.
func (p *parser) initValue(v *variable, vals []byte) []byte {
	t := p.tok
	if t.kind == tokIdent || t.kind == tokDot {
		p.fail(t, "initialiser of `%s` is no number; addresses as initialisers are not supported", v.name)
	}
	o := p.number()
	bits := o.val
	switch {
	case o.kind == argFloat && v.typ == tF32 && !o.single:
		bits = uint64(math.Float32bits(float32(math.Float64frombits(o.val))))
	case o.kind == argFloat && v.typ == tF64 && o.single:
		bits = math.Float64bits(float64(math.Float32frombits(uint32(o.val))))
	case o.kind == argFloat && !v.typ.float():
		p.fail(t, "floating-point initialiser of `%s`, which is %v", v.name, v.typ)
	case o.kind == argInt && v.typ == tF32:
		bits = uint64(math.Float32bits(float32(int64(o.val))))
	case o.kind == argInt && v.typ == tF64:
		bits = math.Float64bits(float64(int64(o.val)))
	}
	return binary.LittleEndian.AppendUint64(vals, bits)[:len(vals)+v.typ.size()]
}

// number reads a signed integer or floating constant.
func (p *parser) number() operand {
	neg := false
	for p.tok.is("-") || p.tok.is("+") {
		neg = neg != p.tok.is("-")
		p.next()
	}
	t := p.tok
	if t.kind != tokNum {
		p.fail(t, "expected a number, found `%v`", t)
	}
	p.next()
	s := t.text
	if len(s) > 2 && s[0] == '0' && (s[1]|0x20 == 'f' || s[1]|0x20 == 'd') {
		single := s[1]|0x20 == 'f'
		digits := 16
		if single {
			digits = 8
		}
		v, err := strconv.ParseUint(s[2:], 16, 64)
		if err != nil || len(s) != digits+2 {
			p.fail(t, "`%s` needs %d hexadecimal digits", s, digits)
		}
		if neg {
			v ^= 1 << (digits*4 - 1)
		}
		return operand{kind: argFloat, val: v, single: single}
	}
	if v, err := parseInt(s); err == nil {
		if neg {
			v = -v
		}
		return operand{kind: argInt, val: v}
	}
	if isDecimal(s) {
		if f, err := strconv.ParseFloat(s, 64); err == nil {
			if neg {
				f = -f
			}
			return operand{kind: argFloat, val: math.Float64bits(f)}
		}
	}
	p.fail(t, "`%s` is no number", s)
	panic("unreachable")
}

// isDecimal keeps strconv's own extensions (underscores, hexadecimal floats, "inf") out.
func isDecimal(s string) bool {
	dot := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case isDigit(c):
		case c == '.', c == 'e', c == 'E':
			dot = true
		case c == '+' || c == '-':
		default:
			return false
		}
	}
	return dot
}
