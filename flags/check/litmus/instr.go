package litmus

import (
	"regexp"
	"strconv"
	"strings"
)

// cell reads one instruction.
type cell struct {
	*parser
	th   *Thread
	col  int
	in   Instr
	mods []string
	args []string
	cols []int // of args
}

func typeSize(t string) int {
	switch strings.TrimLeft(t, "busf") {
	case "8":
		return 1
	case "16":
		return 2
	case "32":
		return 4
	case "64":
		return 8
	}
	return 0
}

func registerSize(r string) int {
	switch {
	case strings.HasPrefix(r, "q"):
		return 16
	case strings.HasPrefix(r, "rd"):
		return 8
	case strings.HasPrefix(r, "h"):
		return 2
	case strings.HasPrefix(r, "p"):
		return 1
	}
	return 4
}

func (p *parser) number(s string, col int) uint64 {
	v, err := strconv.ParseUint(s, 0, 64)
	if n, nerr := strconv.ParseInt(s, 0, 64); err != nil && nerr == nil {
		v, err = uint64(n), nil
	}
	if err != nil {
		p.fail(col, "write a decimal or 0x number", "`%s` is no number", s)
	}
	return v
}

// value is a number that fits into so many bytes, with or without a sign.
func (p *parser) value(s string, col, size int) uint64 {
	v := p.number(s, col)
	if size == 8 {
		return v
	}
	mask := uint64(1)<<(8*size) - 1
	if v&mask != v && v|mask>>1 != ^uint64(0) {
		p.fail(col, "use one that fits", "%s does not fit into %d bytes", s, size)
	}
	return v & mask
}

var addressForm = regexp.MustCompile(`^\[\s*([a-z][a-z0-9_]*)\s*(?:\+\s*([a-z0-9]+)\s*)?\]$`)

// address reads [x], [x+4] and [x+r0].
func (p *parser) address(s string, col int) (loc, off int, reg string) {
	m := addressForm.FindStringSubmatch(s)
	if m == nil {
		p.fail(col, "write [x], [x+4] or [x+r0]", "`%s` is no address", s)
	}
	if loc = p.find(m[1]); loc < 0 {
		p.fail(col, "declare it before the columns, like `x = 0`", "no location `%s`", m[1])
	}
	if register.MatchString(m[2]) {
		return loc, 0, m[2]
	}
	if m[2] != "" {
		off = int(p.number(m[2], col))
	}
	return loc, off, ""
}

var opcode = map[string]func(*cell){
	"ld": (*cell).load, "st": (*cell).store, "atom": (*cell).atomic, "red": (*cell).atomic,
	"fence": (*cell).fence, "membar": (*cell).fence, "bar": (*cell).barrier, "bra": (*cell).branch, "exit": (*cell).exit,
	"setp": (*cell).setp, "selp": (*cell).selp, "mov": (*cell).alu, "add": (*cell).alu, "sub": (*cell).alu,
	"mul": (*cell).alu, "xor": (*cell).alu, "and": (*cell).alu, "or": (*cell).alu, "shl": (*cell).alu, "shr": (*cell).alu,
	"min": (*cell).alu, "max": (*cell).alu, "cvt": (*cell).alu,
}

func (c *cell) parse(text string) {
	if strings.HasPrefix(text, "@") {
		guard, rest, _ := strings.Cut(text[1:], " ")
		c.in.GuardNot = strings.HasPrefix(guard, "!")
		guard = strings.TrimPrefix(guard, "!")
		c.in.Guard = c.reg(guard, c.col+1, 1)
		trimmed := strings.TrimLeft(rest, " ")
		c.col += len(text) - len(trimmed)
		text = trimmed
	}
	mnemonic, rest, _ := strings.Cut(text, " ")
	c.in.Mnemonic = mnemonic
	c.mods = strings.Split(mnemonic, ".")
	f := opcode[c.mods[0]]
	if f == nil {
		c.fail(c.col, "the package comment lists what there is; a new one needs its meaning here and in the axioms",
			"unknown instruction `%s`", mnemonic)
	}
	c.split(rest, c.col+len(mnemonic)+1)
	c.in.Fn, c.mods = c.mods[0], c.mods[1:]
	f(c)
	if len(c.mods) > 0 {
		c.fail(c.col, "drop it, or see the package comment for what `"+c.in.Fn+"` takes", "`.%s` does not belong in `%s`",
			c.mods[0], mnemonic)
	}
}

// split cuts the operands at commas outside braces and brackets.
func (c *cell) split(s string, col int) {
	depth, start := 0, 0
	add := func(end int) {
		part := s[start:end]
		if t := strings.TrimSpace(part); t != "" {
			c.args = append(c.args, t)
			c.cols = append(c.cols, col+start+len(part)-len(strings.TrimLeft(part, " ")))
		} else if start > 0 || end < len(s) {
			c.fail(col+start, "write an operand between the commas", "an operand is missing")
		}
		start = end + 1
	}
	for i, r := range s {
		switch r {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				add(i)
			}
		}
	}
	add(len(s))
}

// take removes the first modifier that is among names.
func (c *cell) take(names ...string) string {
	for i, m := range c.mods {
		for _, n := range names {
			if m == n {
				c.mods = append(c.mods[:i:i], c.mods[i+1:]...)
				return m
			}
		}
	}
	return ""
}

func (c *cell) need(names ...string) string {
	m := c.take(names...)
	if m == "" {
		c.fail(c.col, "add one of ."+strings.Join(names, " ."), "`%s` lacks a modifier", c.in.Mnemonic)
	}
	return m
}

func (c *cell) nargs(least, most int) {
	if n := len(c.args); n < least || n > most {
		c.fail(c.col, "see the PTX reference", "`%s` has %d operands, not %d", c.in.Mnemonic, n, most)
	}
}

func (c *cell) typ(least int) {
	all := []string{"b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64"}
	var fit []string
	for _, t := range all {
		if typeSize(t) >= least {
			fit = append(fit, t)
		}
	}
	c.in.Type = c.need(fit...)
	c.in.Size = typeSize(c.in.Type)
}

// reg checks a register of size bytes and notes it. Loads and stores of bytes may use wider ones.
func (c *cell) reg(name string, col, size int) string {
	have := registerSize(name)
	if !register.MatchString(name) {
		c.fail(col, "registers are r0, rd0, q0, h0 and p0", "`%s` is no register", name)
	}
	if have != size {
		want := map[int]string{1: "p0", 2: "h0", 4: "r0", 8: "rd0", 16: "q0"}[size]
		c.fail(col, "use one like "+want, "the register `%s` has the wrong size", name)
	}
	for _, r := range c.th.Registers {
		if r == name {
			return name
		}
	}
	c.th.Registers = append(c.th.Registers, name)
	return name
}

// word is the register size for a value of the instruction's type.
func (c *cell) word() int {
	if c.in.Op <= Store && c.in.Size < 4 {
		return 4
	}
	return c.in.Size
}

func (c *cell) dst(i int) { c.in.Dst = append(c.in.Dst, c.reg(c.args[i], c.cols[i], c.word())) }

func (c *cell) src(s string, col, size int) {
	if s[0] == '-' || s[0] >= '0' && s[0] <= '9' {
		if size == 16 {
			c.fail(col, "make a register of it: `mov.b128 q0, {1, 2}`", "a constant of 128 bits")
		}
		c.in.Src = append(c.in.Src, Arg{Value: c.value(s, col, size)})
		return
	}
	c.in.Src = append(c.in.Src, Arg{Reg: c.reg(s, col, size)})
}

func (c *cell) sources(from int) {
	for i := from; i < len(c.args); i++ {
		c.src(c.args[i], c.cols[i], c.word())
	}
}

func (c *cell) place(i int) {
	c.in.Loc, c.in.Off, c.in.OffReg = c.address(c.args[i], c.cols[i])
	if c.in.OffReg != "" {
		c.reg(c.in.OffReg, c.cols[i], 4)
		return
	}
	l := &c.t.Locations[c.in.Loc]
	if n := c.in.Size * max(1, c.in.Vec); c.in.Off < 0 || c.in.Off%n != 0 || c.in.Off+n > l.Bytes() {
		c.fail(c.cols[i], "stay within the location, at a multiple of the access's size",
			"%d bytes at %s+%d, which has %d", n, l.Name, c.in.Off, l.Bytes())
	}
}

var sems = map[string]Sem{"weak": Weak, "relaxed": Relaxed, "acquire": Acquire, "release": Release, "acq_rel": AcqRel, "sc": SC}

var scopes = map[string]Scope{"cta": CTA, "gpu": GPU, "gl": GPU, "sys": Sys}

func (c *cell) order(allowed ...string) {
	s := c.take(append(allowed, "weak", "volatile")...)
	if s == "volatile" {
		c.in.Sem, c.in.Scope = Relaxed, Sys
		return
	}
	if c.in.Sem = sems[s]; c.in.Sem != Weak {
		c.in.Scope = scopes[c.need("cta", "gpu", "sys")]
	}
}

// vector reads .v2 and .v4 and gives the registers or values in braces, with their columns.
func (c *cell) vector(arg int) (parts []string, cols []int) {
	c.in.Vec = 1
	switch c.take("v2", "v4") {
	case "v2":
		c.in.Vec = 2
	case "v4":
		c.in.Vec = 4
	}
	s := c.args[arg]
	inner := strings.TrimSuffix(strings.TrimPrefix(s, "{"), "}")
	if (len(s)-len(inner) == 2) != (c.in.Vec > 1) {
		c.fail(c.cols[arg], "write .v2 or .v4, and so many registers in braces", "`%s` does not fit `%s`", s, c.in.Mnemonic)
	}
	pieces(inner, ",", func(text string, col int) {
		parts, cols = append(parts, text), append(cols, c.cols[arg]+col+(len(s)-len(inner))/2)
	})
	if len(parts) != c.in.Vec || c.in.Vec*c.in.Size > 16 {
		c.fail(c.cols[arg], "use 2 or 4 elements of at most 16 bytes together", "%d elements", len(parts))
	}
	return parts, cols
}

// accessed is the type of a load or store.
func (c *cell) accessed() {
	if c.take("b128") == "" {
		c.typ(1)
		return
	}
	c.in.Type, c.in.Size = "b128", 16
}

func (c *cell) load() {
	c.in.Op = Load
	c.order("relaxed", "acquire")
	c.accessed()
	c.nargs(2, 2)
	parts, cols := c.vector(0)
	for i, r := range parts {
		c.in.Dst = append(c.in.Dst, c.reg(r, cols[i], c.word()))
	}
	c.place(1)
}

func (c *cell) store() {
	c.in.Op = Store
	c.order("relaxed", "release")
	c.accessed()
	c.nargs(2, 2)
	parts, cols := c.vector(1)
	for i, s := range parts {
		if s == "" {
			c.fail(cols[i], "give each element a value", "an element is missing")
		}
		c.src(s, cols[i], c.word())
	}
	c.place(0)
}

func (c *cell) atomic() {
	c.in.Op, c.in.Vec = Atom, 1
	strong := []string{"relaxed", "acquire", "release", "acq_rel"}
	fns := []string{"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"}
	first, n := 1, 3
	if c.in.Fn == "red" {
		c.in.Op, first, n = Red, 0, 2
		strong, fns = []string{"relaxed", "release"}, fns[:8]
	}
	c.in.Sem, c.in.Scope = Relaxed, GPU
	if s := c.take(strong...); s != "" {
		c.in.Sem, c.in.Scope = sems[s], scopes[c.need("cta", "gpu", "sys")]
	} else if s := c.take("cta", "gpu", "sys"); s != "" {
		c.in.Scope = scopes[s]
	}
	c.in.Fn = c.need(fns...)
	c.typ(4)
	if c.in.Fn == "cas" {
		n++
	}
	c.nargs(n, n)
	if c.in.Op == Atom {
		c.dst(0)
	}
	c.place(first)
	c.sources(first + 1)
}

func (c *cell) fence() {
	c.in.Op = Fence
	if c.in.Fn == "membar" {
		c.in.Sem, c.in.Scope = SC, scopes[c.need("cta", "gl", "sys")]
	} else {
		c.in.Sem = AcqRel
		if s := c.take("sc", "acq_rel", "acquire", "release"); s != "" {
			c.in.Sem = sems[s]
		}
		c.in.Scope = scopes[c.need("cta", "gpu", "sys")]
	}
	c.nargs(0, 0)
}

func (c *cell) barrier() {
	c.in.Op, c.in.Size = Barrier, 4
	switch c.in.Fn = c.need("sync", "arrive", "red"); c.in.Fn {
	case "sync":
		c.nargs(1, 2)
		c.sources(0)
	case "arrive":
		c.nargs(2, 2)
		c.sources(0)
	case "red":
		c.need("popc")
		c.need("u32")
		c.nargs(3, 3)
		c.dst(0)
		c.src(c.args[1], c.cols[1], 4)
		c.src(c.args[2], c.cols[2], 1)
	}
	if c.in.Src[0].Reg != "" || c.in.Src[0].Value > 15 {
		c.fail(c.cols[0], "use a constant from 0 to 15", "which barrier?")
	}
}
