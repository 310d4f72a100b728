package check

import (
	"maps"
	"slices"
	"strings"
)

// Limits that keep a slip of the pen from costing more than its own size.
const (
	maxSpecText     = 1 << 20
	maxSpecLine     = 2000
	maxSpecRanks    = 64
	maxSpecTasks    = 10_000
	maxSpecMemory   = 1 << 24
	maxSpecCost     = 10_000 // names and numbers that an abbreviation stands for in the end
	maxSpecThreads  = 1024
	maxSpecLaunched = 1 << 18 // threads of all launches
	maxSpecWork     = 1 << 28 // names and numbers in expressions that are worked out for every element
)

var statements = map[string]func(*specReader, *specLine){
	"world": (*specReader).world, "devices": (*specReader).devices, "param": (*specReader).param, "let": (*specReader).let,
	"buffer": (*specReader).buffer, "word": (*specReader).word, "arg": (*specReader).arg, "launch": (*specReader).launchStep,
	"write": (*specReader).write, "sync": (*specReader).sync, "repeat": (*specReader).repeat, "end": (*specReader).end,
	"expect": (*specReader).expect, "giveup": (*specReader).giveUp,
}

// specReader reads a spec with given values of its params.
type specReader struct {
	body   *specBody
	set    map[string]string
	params []SpecParam
	launch *specStep   // that args belong to
	open   []*specStep // repeats that have not ended
}

func parseSpec(name, text string, set map[string]string) (b *specBody, params []SpecParam, err error) {
	defer catchSpec(&err)
	b = &specBody{file: name, values: map[string]int64{"world": 1}, words: map[string]string{}, lets: map[string]specLet{}, world: 1}
	if len(text) > maxSpecText {
		b.fail(place{}, "%d bytes are no spec: name a text file of at most %d", len(text), maxSpecText)
	}
	r := &specReader{body: b, set: set}
	for n, line := range strings.Split(text, "\n") {
		r.line(n+1, line)
	}
	if len(r.open) > 0 {
		b.fail(r.open[0].at, "this repeat has no end: add `end` behind its last step")
	}
	if !slices.ContainsFunc(b.steps, func(s *specStep) bool { return s.launches() }) {
		b.fail(place{}, "nothing is launched: add a line such as `launch my_kernel grid 1 block 32`")
	}
	if b.devices == 0 {
		b.devices = b.world
	}
	return b, r.params, nil
}

func (s *specStep) launches() bool {
	return s.kind == stepLaunch || slices.ContainsFunc(s.body, (*specStep).launches)
}

func (r *specReader) line(n int, text string) {
	b := r.body
	if len(text) > maxSpecLine {
		b.fail(place{n, 0}, "the line has %d bytes: a statement has at most %d", len(text), maxSpecLine)
	}
	l := b.scan(n, r.substitute(n, text))
	if len(l.toks) == 0 {
		return
	}
	t := l.next()
	read, ok := statements[t.text]
	if !ok {
		l.fail(t, "%v is no statement: use one of %s", t, strings.Join(slices.Sorted(maps.Keys(statements)), ", "))
	}
	read(r, l)
	if t := l.peek(); t.text != "" {
		l.fail(t, "%v is too much here: the statement ends before it", t)
	}
}

// substitute replaces {NAME} by the value of a param. Comments stay as they are.
func (r *specReader) substitute(n int, text string) string {
	code, comment, commented := strings.Cut(text, "#")
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(code, "{")
		out.WriteString(before)
		if !found {
			break
		}
		at := place{n, len(text) - len(comment) - len(rest)}
		if commented {
			at.col--
		}
		name, after, closed := strings.Cut(rest, "}")
		word, ok := r.body.words[name]
		switch {
		case !closed:
			r.body.fail(at, "{ without }: close it, {NAME}")
		case !ok:
			r.body.fail(at, "{%s} is no param that is a word: declare it above, `param %s = f32 | f16`", name, name)
		}
		out.WriteString(word)
		code = after
	}
	if commented {
		out.WriteString("#" + comment)
	}
	return out.String()
}

// name takes a new name.
func (r *specReader) name(l *specLine) (specToken, string) {
	t := l.next()
	if !t.word() {
		l.fail(t, "a name is expected, found %v: use letters, digits and _", t)
	}
	_, reserved := builtins[t.text]
	_, value := r.body.values[t.text]
	_, word := r.body.words[t.text]
	_, let := r.body.lets[t.text]
	if reserved || value || word || let || slices.ContainsFunc(r.body.buffers, func(b *specBuffer) bool { return b.name == t.text }) {
		l.fail(t, "%s has a meaning already: choose another name", t.text)
	}
	return t, t.text
}

// given is what --set says of a param, as an expression's value.
func (r *specReader) given(name string) (v int64, ok bool) {
	text, ok := r.set[name]
	if !ok {
		return 0, false
	}
	l := (&specBody{file: "--set " + name + "=" + text, values: r.body.values, lets: r.body.lets}).scan(0, text)
	v = l.expr()(&env{body: r.body})
	if t := l.peek(); t.text != "" {
		l.fail(t, "%v is too much here: give one number", t)
	}
	return v, true
}

func (r *specReader) world(l *specLine) {
	t := l.peek()
	v := l.expr()(&env{body: r.body})
	if len(r.body.buffers) > 0 || len(r.body.steps) > 0 || len(r.params) > 0 {
		l.fail(specToken{col: 1}, "world comes too late: make it the first statement")
	}
	r.params = append(r.params, SpecParam{Name: "world", Default: textOf(l, t)})
	if g, ok := r.given("world"); ok {
		v = g
	}
	if v < 1 || v > maxSpecRanks {
		l.fail(t, "%d ranks: use 1 to %d", v, maxSpecRanks)
	}
	r.body.world, r.body.values["world"] = int(v), v
}

// textOf is what stands from a token to the end of its line.
func textOf(l *specLine, from specToken) string {
	var parts []string
	for _, t := range l.toks {
		if t.col >= from.col {
			parts = append(parts, t.text)
		}
	}
	return strings.Join(parts, " ")
}

func (r *specReader) devices(l *specLine) {
	t := l.peek()
	v := l.expr()(&env{body: r.body})
	if v < 1 || v > int64(r.body.world) {
		l.fail(t, "%d devices for %d ranks: use 1 to %d", v, r.body.world, r.body.world)
	}
	r.body.devices = int(v)
}

func (r *specReader) giveUp(*specLine) { r.body.giveUp = true }

func (r *specReader) param(l *specLine) {
	_, name := r.name(l)
	l.need("=", "a param has a value, `param count = 37`")
	first := l.peek()
	p := SpecParam{Name: name, Default: textOf(l, first)}
	if _, let := r.body.lets[first.text]; first.word() && r.body.values[first.text] == 0 && !let && !(len(l.toks) > l.at+1 && l.toks[l.at+1].text == "(") {
		p.Default = first.text
		for {
			t := l.next()
			if !t.word() {
				l.fail(t, "a word is expected, found %v: list them as `f32 | f16`", t)
			}
			p.Choices = append(p.Choices, t.text)
			if !l.has("|") {
				break
			}
		}
		r.body.words[name] = p.Default
		if w, ok := r.set[name]; ok {
			r.body.words[name] = w
		}
	} else {
		v := l.expr()(&env{body: r.body})
		if g, ok := r.given(name); ok {
			v = g
		}
		r.body.values[name] = v
	}
	r.params = append(r.params, p)
}

func (r *specReader) let(l *specLine) {
	_, name := r.name(l)
	l.need("=", "an abbreviation has a meaning, `let bytes = 4*count`")
	x := l.expr()
	if l.cost = l.spent(); l.cost > maxSpecCost {
		l.fail(specToken{col: 1}, "%s stands for %d names and numbers once its own are written out: use at most %d", name, l.cost, maxSpecCost)
	}
	r.body.lets[name] = specLet{x, l.cost}
}

func (r *specReader) buffer(l *specLine) {
	t, name := r.name(l)
	b := &specBuffer{name: name, at: l.place(t)}
	for l.peek().text != "" {
		switch t := l.next(); t.text {
		case "size":
			b.size = l.expr()
		case "align":
			b.align = l.expr()
		case "guard":
			b.guard = l.expr()
		case "on":
			b.on = l.expr()
		case "host":
			b.host = true
		case "each":
			l.need("call", "a buffer exists once, or `each call`")
			b.calls = true
		case "fill":
			b.fill = l.fill()
		default:
			l.fail(t, "%v says nothing of a buffer: use size, align, guard, on, host, each call or fill", t)
		}
	}
	if b.size == nil {
		l.fail(l.peek(), "%s has no size: add `size 4*count`", name)
	}
	r.body.buffers = append(r.body.buffers, b)
}

func (r *specReader) word(l *specLine) {
	w := &specWord{at: l.place(l.peek()), buffer: l.buffer(), count: constant(1)}
	l.need("at", "say where, in bytes: `word control at 4*i = 7 for i < 64`")
	w.offset = l.expr()
	l.need("=", "say what the word is, `word control at 0 = 7`")
	w.value = l.expr()
	if l.has("for") {
		l.need("i", "say how many, `for i < 64`")
		l.need("<", "say how many, `for i < 64`")
		w.count = l.expr()
	}
	w.cost = l.spent()
	r.body.inits = append(r.body.inits, w)
}

func (r *specReader) arg(l *specLine) {
	a := &specArg{number: -1}
	t := l.peek()
	a.at = l.place(t)
	switch {
	case l.has("at"):
		a.offset = l.expr()
	case t.number():
		n := l.unary()(&env{body: r.body})
		if n < 0 || n > 4096 {
			l.fail(t, "parameter %d: count parameters from 0", n)
		}
		a.number = int(n)
	default:
		l.fail(t, "which argument is meant, found %v: use `arg 0 …` for the first, or `arg at 8 …` for bytes", t)
	}
	switch k := l.next(); k.text {
	case "ptr", "ptrs":
		a.peers, a.typ = k.text == "ptrs", typeNamed("u64")
		a.value = l.pointer(a.peers)
	default:
		a.typ = typeNamed(k.text)
		if a.typ == nil {
			a.typ, a.peers = typeNamed(strings.TrimSuffix(k.text, "s")), true
		}
		if a.typ == nil {
			l.fail(k, "%v is no kind of argument: use ptr, ptrs, or a type, %s", k, typeNames)
		}
		a.value = l.expr()
	}
	if r.launch != nil {
		r.launch.args = append(r.launch.args, a)
	} else {
		r.body.args = append(r.body.args, a)
	}
}

// pointer is NAME [+ EXPR], the rank's own buffer or each peer's.
func (l *specLine) pointer(peers bool) expr {
	t := l.peek()
	buffer, at, b := l.buffer(), l.place(t), l.body
	plus := constant(0)
	if l.has("+") {
		plus = l.expr()
	}
	return func(e *env) int64 {
		rank := e.rank
		if peers {
			rank = e.peer
		}
		if e.address == nil {
			b.fail(at, "addresses are known in arguments only")
		}
		return int64(e.address(buffer, rank, e.call, at)) + plus(e)
	}
}

// buffer takes the name of a buffer.
func (l *specLine) buffer() *specBuffer {
	t := l.next()
	for _, b := range l.body.buffers {
		if b.name == t.text {
			return b
		}
	}
	l.fail(t, "%v is no buffer: declare it above, `buffer %s size 4*count`", t, t.text)
	return nil
}

// typ takes the name of a type.
func (l *specLine) typ() *elemType {
	t := l.next()
	typ := typeNamed(t.text)
	if typ == nil {
		l.fail(t, "%v is no type: use %s", t, typeNames)
	}
	return typ
}

// spent is what stands in the line, with its abbreviations written out.
func (l *specLine) spent() int { return l.cost + len(l.toks) }

func (l *specLine) filled(typ *elemType) *specFill {
	f := &specFill{typ: typ, at: l.place(l.peek()), value: l.expr()}
	f.cost = l.spent()
	return f
}

func (l *specLine) fill() *specFill {
	if l.has("payload") {
		return &specFill{typ: l.typ()}
	}
	if typ := typeNamed(l.peek().text); typ != nil {
		l.next()
		l.need("=", "say what the elements are, `fill u32 = i`, or `fill payload u32`")
		return l.filled(typ)
	}
	return l.filled(typeNamed("u8"))
}
