package ptx

const maxNesting = 100 // of { } in a body, and of operands

// block reads a braced function body or scope.
func (p *parser) block() []stmt {
	open := p.want("{")
	if p.depth++; p.depth > maxNesting {
		p.fail(open, "scopes nested deeper than %d", maxNesting)
	}
	var list []stmt
	for !p.tok.is("}") {
		if p.tok.kind == tokEOF {
			p.fail(open, "`{` is never closed")
		}
		list = p.statement(list)
	}
	p.next()
	p.depth--
	return list
}

// statement reads one statement of a body and appends it.
func (p *parser) statement(list []stmt) []stmt {
	t := p.tok
	s := stmt{line: t.line, pos: t.pos}
	switch {
	case t.is("{"):
		s.kind, s.body = stBlock, p.block()
	case t.is(";"):
		p.next()
		return list
	case t.kind == tokDot:
		return p.bodyDirective(list)
	case t.is("@"):
		p.next()
		s.inst = &inst{guardNot: p.accept("!")}
		s.inst.guard = p.ident("a predicate").text
		p.instruction(s.inst)
	case t.kind == tokIdent:
		p.next()
		if p.tok.is(":") {
			p.next()
			if p.tok.kind == tokDot && (p.tok.text == "branchtargets" || p.tok.text == "callprototype" || p.tok.text == "calltargets") {
				return append(list, p.targets(t))
			}
			s.kind, s.label = stLabel, t.text
			break
		}
		s.inst = &inst{}
		p.opcode(s.inst, t)
	default:
		p.fail(t, "expected an instruction, found `%v`", t)
	}
	s.end = p.end
	return append(list, s)
}

func (p *parser) instruction(in *inst) {
	p.opcode(in, p.ident("an instruction"))
}

// opcode reads modifiers, operands and the semicolon after the opcode's name.
func (p *parser) opcode(in *inst, name token) {
	in.name = name.text
	for p.tok.kind == tokDot {
		in.mods = append(in.mods, p.next().text)
	}
	for !p.tok.is(";") {
		in.args = append(in.args, p.operand(0))
		if !p.accept(",") {
			break
		}
	}
	if !p.tok.is(";") {
		p.fail(p.tok, "expected `;` after `%s`, found `%v`", name.text, p.tok)
	}
	p.next()
}

// operand reads one operand, with `a|b` and `a+1`.
func (p *parser) operand(depth int) operand {
	if depth > maxNesting {
		p.fail(p.tok, "operands nested deeper than %d", maxNesting)
	}
	t := p.tok
	switch {
	case t.is("["):
		return p.address()
	case t.is("{"):
		return operand{kind: argVec, sub: p.operands("}", depth)}
	case t.is("("):
		return operand{kind: argList, sub: p.operands(")", depth)}
	}
	o := p.simple()
	if p.accept("|") {
		return operand{kind: argPair, sub: []operand{o, p.simple()}}
	}
	return o
}

func (p *parser) operands(end string, depth int) []operand {
	p.next()
	var list []operand
	if p.accept(end) {
		return nil
	}
	for {
		list = append(list, p.operand(depth+1))
		if !p.accept(",") {
			break
		}
	}
	p.want(end)
	return list
}

// simple reads a name, a constant, `!p`, `-a` or `_`.
func (p *parser) simple() operand {
	t := p.tok
	switch {
	case t.is("!"):
		p.next()
		return operand{kind: argName, name: p.ident("a predicate").text, not: true}
	case t.kind == tokIdent:
		p.next()
		if t.text == "_" {
			return operand{kind: argSink}
		}
		o := operand{kind: argName, name: t.text}
		if p.tok.kind == tokDot {
			o.suffix = p.next().text
		}
		if p.tok.is("+") || p.tok.is("-") {
			o.off = p.offset()
		}
		return o
	}
	if t.kind != tokNum && !t.is("-") && !t.is("+") {
		p.fail(t, "expected an operand, found `%v`", t)
	}
	return p.number()
}

// offset reads the constant after an address or name, with its sign.
func (p *parser) offset() int64 {
	t := p.tok
	o := p.number()
	if o.kind != argInt {
		p.fail(t, "offset is no integer")
	}
	return int64(o.val)
}

// address reads [base], [base+offset] or [constant].
func (p *parser) address() operand {
	p.next()
	t := p.tok
	base := p.simple()
	if base.kind != argName && base.kind != argInt || base.not {
		p.fail(t, "`%v` is no address", t)
	}
	o := operand{kind: argAddr, off: base.off}
	if base.kind == argInt && (p.tok.is("+") || p.tok.is("-")) {
		base.val += uint64(p.offset())
	}
	base.off = 0
	o.sub = []operand{base}
	if p.tok.is(",") {
		p.fail(p.tok, "tensor and multi-part addresses are not supported")
	}
	p.want("]")
	return o
}

// bodyDirective reads a directive within a body.
func (p *parser) bodyDirective(list []stmt) []stmt {
	t := p.tok
	s := stmt{line: t.line, pos: t.pos}
	switch t.text {
	case "reg":
		s.kind, s.regs = stReg, p.registers()
	case "shared", "local", "param", "global", "const":
		for _, v := range p.variables(false) {
			list = append(list, stmt{kind: stVar, line: v.line, pos: v.pos, end: p.end, v: v})
		}
		return list
	case "loc":
		p.restOfLine()
		return list
	case "pragma":
		p.next()
		p.skipStatement()
		return list
	default:
		p.fail(t, "unknown directive `%v`", t)
	}
	s.end = p.end
	return append(list, s)
}

func (p *parser) registers() []regDecl {
	p.next()
	t := p.tok
	if t.kind == tokDot && (t.text == "v2" || t.text == "v4") {
		p.fail(t, "vector registers are not supported")
	}
	ty, ok := typesByName[t.text]
	if t.kind != tokDot || !ok || ty == tU16x2 || ty == tS16x2 {
		p.fail(t, "type `%v` cannot be a register", t)
	}
	p.next()
	var list []regDecl
	for {
		d := regDecl{typ: ty, count: -1, name: p.ident("a register name").text}
		if open := p.tok; p.accept("<") {
			n := p.integer()
			if n > maxRegisters {
				p.fail(open, "more than %d registers", maxRegisters)
			}
			d.count = int(n)
			p.want(">")
		}
		list = append(list, d)
		if !p.accept(",") {
			break
		}
	}
	p.want(";")
	return list
}

// targets reads what follows `label:` when it is a list of branch or call targets.
func (p *parser) targets(label token) stmt {
	t := p.next()
	if t.text != "branchtargets" {
		p.fail(t, "indirect calls are not supported")
	}
	s := stmt{kind: stTargets, line: label.line, pos: label.pos, label: label.text}
	for {
		s.names = append(s.names, p.ident("a label").text)
		if !p.accept(",") {
			break
		}
	}
	p.want(";")
	s.end = p.end
	return s
}
