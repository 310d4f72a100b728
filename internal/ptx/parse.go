package ptx

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Parse reads and lowers a whole module. The error is always an *Error.
func Parse(name string, src []byte) (*Module, error) {
	f, err := parseFile(name, src, false)
	if err != nil {
		return nil, err
	}
	return lowerFile(f, name, string(src), false)
}

// Signatures reads the entry declarations only and skips everything else unseen, so that it
// works on PTX the interpreter would refuse. The error is always an *Error.
func Signatures(name string, src []byte) (*Info, error) {
	f, err := parseFile(name, src, true)
	if err != nil {
		return nil, err
	}
	return &f.info, nil
}

type parser struct {
	*lexer
	name  string
	loose bool // skip what is not an entry declaration
	file  file
	seen  map[string]bool
	inits int // bytes of initialisers so far
	depth int

	waiting waiting
}

// next passes a token.
func (p *parser) next() token {
	t := p.lexer.next()
	p.waiting.pass(t, p.tok)
	return t
}

// parseFile reads a module. Errors travel as panics of *Error within the package and stop here.
func parseFile(name string, src []byte, loose bool) (f *file, err error) {
	if len(src) > maxSource {
		return nil, &Error{File: name, Line: 1, Msg: fmt.Sprintf("PTX text of %d bytes is over the limit of %d", len(src), maxSource)}
	}
	defer catch(&err)
	p := &parser{lexer: newLexer(string(src)), name: name, loose: loose, seen: map[string]bool{}}
	p.module()
	return &p.file, nil
}

// catch turns a panic of *Error into an error; every other panic is a bug and goes on.
func catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case *Error:
		*err = r
	default:
		panic(r)
	}
}

func (p *parser) fail(t token, format string, args ...any) {
	panic(&Error{File: p.name, Line: t.line, Text: lineText(p.src, t.pos), Msg: message(format, args)})
}

// message formats, and cuts what a hostile name makes too long.
func message(format string, args []any) string {
	s := fmt.Sprintf(format, args...)
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}

func (p *parser) want(s string) token {
	if !p.tok.is(s) {
		p.fail(p.tok, "expected `%s`, found `%v`", s, p.tok)
	}
	return p.next()
}

func (p *parser) ident(what string) token {
	if p.tok.kind != tokIdent {
		p.fail(p.tok, "expected %s, found `%v`", what, p.tok)
	}
	return p.next()
}

func (p *parser) accept(s string) bool {
	if p.tok.is(s) {
		p.next()
		return true
	}
	return false
}

func (p *parser) dot(s string) bool {
	if p.tok.kind == tokDot && p.tok.text == s {
		p.next()
		return true
	}
	return false
}

func (p *parser) module() {
	if p.tok.kind != tokDot || p.tok.text != "version" {
		p.fail(p.tok, "PTX begins with .version, found `%v`", p.tok)
	}
	p.version()
	if p.tok.kind != tokDot || p.tok.text != "target" {
		p.fail(p.tok, "expected .target after .version, found `%v`", p.tok)
	}
	p.target()
	for p.tok.kind != tokEOF {
		entries := len(p.file.info.Entries)
		p.toplevel()
		p.waiting.end(len(p.file.info.Entries) > entries)
	}
	for i, b := range p.waiting.entries {
		p.file.info.Entries[i].Waits = p.waiting.reaches(b, map[string]bool{})
	}
	p.file.info.File = p.name
}

func (p *parser) version() {
	p.next()
	t := p.tok
	if t.kind != tokNum {
		p.fail(t, "expected a version such as 7.0, found `%v`", t)
	}
	p.next()
	major, minor, ok := strings.Cut(t.text, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if !ok || err1 != nil || err2 != nil || a < 1 || a > 99 || b < 0 || b > 9 {
		p.fail(t, "`%s` is no PTX version", t.text)
	}
	p.file.info.Version = a*10 + b
}

func (p *parser) target() {
	p.next()
	for {
		t := p.ident("a target such as sm_70")
		switch {
		case strings.HasPrefix(t.text, "sm_"):
			n, err := strconv.Atoi(strings.TrimRight(t.text[3:], "abcdefghijklmnopqrstuvwxyz"))
			if err != nil || n < 1 || n > 999 || p.file.info.SM != 0 {
				p.fail(t, "`%s` is no target", t.text)
			}
			p.file.info.Target, p.file.info.SM = t.text, n
		case t.text == "texmode_unified" || t.text == "texmode_independent" || t.text == "debug":
		default:
			p.fail(t, "unknown target `%s`", t.text)
		}
		if !p.accept(",") {
			break
		}
	}
	if p.file.info.SM == 0 {
		p.fail(p.tok, ".target names no sm_XX")
	}
}

// toplevel reads one module-scope item.
func (p *parser) toplevel() {
	start := p.tok
	if start.kind != tokDot {
		if p.loose {
			p.skip()
			return
		}
		p.fail(start, "expected a directive, found `%v`", start)
	}
	linkage := map[string]bool{}
	for p.tok.kind == tokDot {
		switch p.tok.text {
		case "visible", "weak", "extern", "common":
			if linkage[p.tok.text] {
				p.fail(p.tok, "`%v` given twice", p.tok)
			}
			linkage[p.tok.text] = true
			p.next()
			continue
		}
		break
	}
	t := p.tok
	if t.kind != tokDot {
		p.fail(t, "expected a directive, found `%v`", t)
	}
	switch t.text {
	case "entry":
		p.function(true, start)
		return
	case "address_size":
		p.next()
		if p.tok.kind != tokNum || p.tok.text != "64" {
			p.fail(p.tok, "only .address_size 64 is supported")
		}
		p.next()
		return
	}
	if p.loose {
		p.skip()
		return
	}
	switch t.text {
	case "func":
		p.function(false, start)
	case "global", "const", "shared":
		p.file.vars = append(p.file.vars, p.variables(linkage["extern"])...)
	case "file":
		p.restOfLine()
	case "section":
		p.section()
	case "pragma":
		p.next()
		p.skipStatement()
	case "version", "target":
		p.fail(t, "`%v` given twice", t)
	default:
		p.fail(t, "unknown directive `%v`", t)
	}
}

// skip passes one item of unknown shape: up to a semicolon, or a whole braced body.
func (p *parser) skip() {
	for first := true; ; first = false {
		switch {
		case p.tok.kind == tokEOF:
			return
		case p.tok.is("{"):
			p.braces()
			p.accept(";")
			return
		case p.accept(";"):
			return
		case !first && p.tok.kind == tokDot && (p.tok.text == "entry" || p.tok.text == "visible" || p.tok.text == "weak"):
			return // .file and .loc have no end of their own
		}
		p.next()
	}
}

// braces passes a balanced { … }.
func (p *parser) braces() {
	open := p.tok
	for depth := 0; ; p.next() {
		switch {
		case p.tok.kind == tokEOF:
			p.fail(open, "`{` is never closed")
		case p.tok.is("{"):
			depth++
		case p.tok.is("}"):
			if depth--; depth == 0 {
				p.next()
				return
			}
		}
	}
}

func (p *parser) skipStatement() {
	for !p.tok.is(";") {
		if p.tok.kind == tokEOF {
			p.fail(p.tok, "expected `;`")
		}
		p.next()
	}
	p.next()
}

// restOfLine passes a directive that ends with its line (.file, .loc).
func (p *parser) restOfLine() {
	line := p.tok.line
	for p.tok.kind != tokEOF && p.tok.line == line {
		p.next()
	}
}

// section passes debug information.
func (p *parser) section() {
	p.next()
	for !p.tok.is("{") {
		if p.tok.kind != tokDot && p.tok.kind != tokIdent {
			p.fail(p.tok, "expected `{` after .section")
		}
		p.next()
	}
	p.braces()
}

// function reads an .entry or .func from its keyword on.
func (p *parser) function(entry bool, start token) {
	p.next()
	f := &function{entry: entry, line: start.line, pos: start.pos}
	if !entry && p.tok.is("(") {
		f.rets, _ = p.params(false)
	}
	name := p.ident("a name")
	f.name = name.text
	size := 0
	if p.tok.is("(") {
		f.params, size = p.params(entry)
	}
	sig := Signature{Name: f.name, Line: name.line, ParamBytes: size}
	p.attributes(&sig)
	if entry {
		for _, v := range f.params {
			q := Param{Name: v.name, Type: typeNames[v.typ], Array: v.array, Size: v.size, Align: v.align}
			q.Offset = v.pos
			sig.Params = append(sig.Params, q)
		}
	}
	switch {
	case p.accept(";"):
		if entry {
			return // a declaration; the definition is elsewhere
		}
	case p.tok.is("{"):
		if p.seen[f.name] {
			p.fail(name, "`%s` is defined twice", f.name)
		}
		p.seen[f.name] = true
		f.hasBody = true
		if p.loose {
			p.braces()
		} else {
			f.body = p.block()
		}
	default:
		p.fail(p.tok, "expected the body of `%s`, found `%v`", f.name, p.tok)
	}
	if entry {
		f.sig = len(p.file.info.Entries)
		p.file.info.Entries = append(p.file.info.Entries, sig)
	}
	p.file.funcs = append(p.file.funcs, f)
}

// attributes reads the performance directives between the parameters and the body.
func (p *parser) attributes(s *Signature) {
	for p.tok.kind == tokDot {
		t := p.next()
		switch t.text {
		case "maxntid", "reqntid":
			n := p.numbers(3)
			threads := uint64(1)
			for _, v := range n {
				threads *= uint64(v)
			}
			if threads == 0 || threads > math.MaxUint32 {
				p.fail(t, "`%v` of %d threads", t, threads)
			}
			s.MaxThreads = uint32(threads)
		case "minnctapersm", "maxnctapersm", "maxnreg":
			p.numbers(1)
		case "noreturn":
		case "pragma":
			p.skipStatement()
		default:
			if !p.loose { // else the numbers and names after it are passed below
				p.fail(t, "unknown directive `%v`", t)
			}
		}
		for p.loose && !p.tok.is("{") && !p.tok.is(";") && p.tok.kind != tokDot && p.tok.kind != tokEOF {
			p.next()
		}
	}
}

// numbers reads up to max small integers.
func (p *parser) numbers(max int) []uint32 {
	var list []uint32
	for {
		t := p.tok
		v := p.integer()
		if v > math.MaxInt16*32 {
			p.fail(t, "`%v` is too large", t)
		}
		list = append(list, uint32(v))
		if len(list) == max || !p.accept(",") {
			return list
		}
	}
}

// integer reads an unsigned integer constant.
func (p *parser) integer() uint64 {
	t := p.tok
	if t.kind != tokNum {
		p.fail(t, "expected a number, found `%v`", t)
	}
	v, err := parseInt(t.text)
	if err != nil {
		p.fail(t, "`%s` is no integer: %v", t.text, err)
	}
	p.next()
	return v
}

var errNumber = errors.New("malformed number")

func parseInt(s string) (uint64, error) {
	if n := len(s); n > 1 && (s[n-1] == 'U' || s[n-1] == 'u') {
		s = s[:n-1]
	}
	base := 10
	switch {
	case len(s) > 2 && (s[:2] == "0x" || s[:2] == "0X"):
		base, s = 16, s[2:]
	case len(s) > 2 && (s[:2] == "0b" || s[:2] == "0B"):
		base, s = 2, s[2:]
	case len(s) > 1 && s[0] == '0':
		base, s = 8, s[1:]
	}
	v, err := strconv.ParseUint(s, base, 64)
	if err != nil {
		return 0, errNumber
	}
	return v, nil
}
