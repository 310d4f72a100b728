package check

import (
	"fmt"
	"strconv"
	"strings"
)

// place is where something stands in a spec.
type place struct{ line, col int }

// expr works out a number. It fails by a panic of *SpecError, which buildSpec and parseSpec catch.
type expr func(*env) int64

// env is what names mean while an expression is worked out.
type env struct {
	body    *specBody
	rank    int64
	call    int64
	i, peer int64
	known   uint8 // which of the four have a meaning
	address func(b *specBuffer, rank, call int64, at place) uint64
}

const (
	knowRank uint8 = 1 << iota
	knowCall
	knowI
	knowPeer
)

var builtins = map[string]uint8{"rank": knowRank, "call": knowCall, "i": knowI, "peer": knowPeer}

func (b *specBody) fail(at place, format string, args ...any) {
	panic(&SpecError{File: b.file, Line: at.line, Col: at.col, Msg: fmt.Sprintf(format, args...)})
}

// catchSpec turns a panic of *SpecError into an error; every other panic is a bug and goes on.
func catchSpec(err *error) {
	switch r := recover().(type) {
	case nil:
	case *SpecError:
		*err = r
	default:
		panic(r)
	}
}

// specToken is a word, a number or a sign of a line. The end has no text.
type specToken struct {
	text string
	col  int
}

func (t specToken) word() bool {
	return t.text != "" && (t.text[0] >= 'a' && t.text[0] <= 'z' || t.text[0] >= 'A' && t.text[0] <= 'Z' || t.text[0] == '_' || t.text[0] == '$')
}
func (t specToken) number() bool { return t.text != "" && t.text[0] >= '0' && t.text[0] <= '9' }

func (t specToken) String() string {
	if t.text == "" {
		return "the end of the line"
	}
	return strconv.Quote(t.text)
}

// line is the line that is being read.
type specLine struct {
	body *specBody
	n    int
	toks []specToken
	at   int
	cost int // of the lets that were used
}

func inWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$'
}

// scan cuts a line into tokens.
func (b *specBody) scan(n int, text string) *specLine {
	l := &specLine{body: b, n: n}
	for at := 0; at < len(text); {
		c := text[at]
		from := at
		switch {
		case c == ' ' || c == '\t' || c == '\r':
			at++
			continue
		case c == '#':
			return l
		case inWord(c):
			for at < len(text) && inWord(text[at]) {
				at++
			}
		default:
			at++
			if at < len(text) && strings.Contains(" << >> <= >= == != && || ", " "+text[from:at+1]+" ") {
				at++
			} else if !strings.ContainsRune("+-*/%<>&|^~!?:(),=", rune(c)) {
				b.fail(place{n, from + 1}, "%q has no meaning here: a comment starts with #", rune(c))
			}
		}
		l.toks = append(l.toks, specToken{text[from:at], from + 1})
	}
	return l
}

func (l *specLine) peek() specToken {
	if l.at < len(l.toks) {
		return l.toks[l.at]
	}
	col := 1
	if n := len(l.toks); n > 0 {
		col = l.toks[n-1].col + len(l.toks[n-1].text)
	}
	return specToken{"", col}
}

func (l *specLine) next() specToken {
	t := l.peek()
	l.at++
	return t
}

func (l *specLine) place(t specToken) place { return place{l.n, t.col} }

func (l *specLine) fail(t specToken, format string, args ...any) {
	l.body.fail(l.place(t), format, args...)
}

// has takes the next token if it is this one.
func (l *specLine) has(text string) bool {
	if l.peek().text != text {
		return false
	}
	l.at++
	return true
}

func (l *specLine) need(text, remedy string) {
	if t := l.peek(); !l.has(text) {
		l.fail(t, "%q is expected, found %v: %s", text, t, remedy)
	}
}

// Operators by how strongly they bind, the weakest first.
var precedence = [][]string{{"||"}, {"&&"}, {"|"}, {"^"}, {"&"}, {"==", "!="}, {"<", "<=", ">", ">="}, {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"}}

// expr reads an expression with C's precedence.
func (l *specLine) expr() expr {
	cond := l.binary(0)
	if !l.has("?") {
		return cond
	}
	yes := l.expr()
	l.need(":", "a condition has three parts, c ? x : y")
	no := l.expr()
	return func(e *env) int64 {
		if cond(e) != 0 {
			return yes(e)
		}
		return no(e)
	}
}

func (l *specLine) binary(level int) expr {
	if level == len(precedence) {
		return l.unary()
	}
	x := l.binary(level + 1)
	for {
		t := l.peek()
		found := false
		for _, op := range precedence[level] {
			found = found || t.text == op
		}
		if !found {
			return x
		}
		l.next()
		x = l.apply(t, x, l.binary(level+1))
	}
}

func (l *specLine) apply(t specToken, x, y expr) expr {
	b, at := l.body, l.place(t)
	switch t.text {
	case "&&":
		return func(e *env) int64 { return truth64(x(e) != 0 && y(e) != 0) }
	case "||":
		return func(e *env) int64 { return truth64(x(e) != 0 || y(e) != 0) }
	case "/", "%":
		return func(e *env) int64 {
			p, q := x(e), y(e)
			switch {
			case q == 0:
				b.fail(at, "division by zero: see that the right side is not 0")
			case q == -1: // the one quotient that does not fit wraps
				return map[string]int64{"/": -p, "%": 0}[t.text]
			case t.text == "/":
				return p / q
			}
			return p % q
		}
	}
	f := map[string]func(p, q int64) int64{
		"|": func(p, q int64) int64 { return p | q }, "^": func(p, q int64) int64 { return p ^ q },
		"&": func(p, q int64) int64 { return p & q }, "+": func(p, q int64) int64 { return p + q },
		"-": func(p, q int64) int64 { return p - q }, "*": func(p, q int64) int64 { return p * q },
		"<<": func(p, q int64) int64 { return p << (uint64(q) & 63) }, ">>": func(p, q int64) int64 { return p >> (uint64(q) & 63) },
		"==": func(p, q int64) int64 { return truth64(p == q) }, "!=": func(p, q int64) int64 { return truth64(p != q) },
		"<": func(p, q int64) int64 { return truth64(p < q) }, "<=": func(p, q int64) int64 { return truth64(p <= q) },
		">": func(p, q int64) int64 { return truth64(p > q) }, ">=": func(p, q int64) int64 { return truth64(p >= q) },
	}[t.text]
	return func(e *env) int64 { return f(x(e), y(e)) }
}

func (l *specLine) unary() expr {
	t := l.next()
	switch {
	case t.text == "(":
		x := l.expr()
		l.need(")", "close the parenthesis")
		return x
	case t.text == "-":
		x := l.unary()
		return func(e *env) int64 { return -x(e) }
	case t.text == "~":
		x := l.unary()
		return func(e *env) int64 { return ^x(e) }
	case t.text == "!":
		x := l.unary()
		return func(e *env) int64 { return truth64(x(e) == 0) }
	case t.number():
		v, err := strconv.ParseUint(t.text, 0, 64)
		if err != nil {
			l.fail(t, "%q is no number: use 10, 0x1f or 0b11, of at most 64 bits", t.text)
		}
		return constant(int64(v))
	case t.word() && l.has("("):
		return l.function(t)
	case t.word():
		return l.name(t)
	}
	l.fail(t, "a number is expected, found %v", t)
	return nil
}

func truth64(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func constant(v int64) expr { return func(*env) int64 { return v } }

// name is a param, a let or a builtin.
func (l *specLine) name(t specToken) expr {
	b, at := l.body, l.place(t)
	if bit, ok := builtins[t.text]; ok {
		return func(e *env) int64 {
			if e.known&bit == 0 {
				b.fail(at, "%s has no meaning here: use it in %s", t.text, map[uint8]string{
					knowRank: "sizes, contents, arguments and expectations", knowCall: "arguments, and in buffers of each call",
					knowI: "contents and expectations", knowPeer: "arguments of a type that ends with s"}[bit])
			}
			return map[uint8]int64{knowRank: e.rank, knowCall: e.call, knowI: e.i, knowPeer: e.peer}[bit]
		}
	}
	if v, ok := b.values[t.text]; ok {
		return constant(v)
	}
	if x, ok := b.lets[t.text]; ok {
		l.cost += x.cost
		return x.x // only earlier lets are seen, so none holds itself
	}
	if _, ok := b.words[t.text]; ok {
		l.fail(t, "%s is a word and not a number: write {%s} where its text is meant", t.text, t.text)
	}
	l.fail(t, "%s is neither a param nor a let: declare it above, `param %s = 1`", t.text, t.text)
	return nil
}

// function is a call; its parenthesis has been read.
func (l *specLine) function(t specToken) expr {
	switch t.text {
	case "bytes":
		typ := l.typ()
		l.need(")", "close the parenthesis")
		return constant(int64(typ.size))
	case "addr":
		return l.addr(t)
	}
	var args []expr
	for !l.has(")") {
		if len(args) > 0 {
			l.need(",", "separate arguments by commas, and close the parenthesis")
		}
		args = append(args, l.expr())
	}
	wrong := func(n int) {
		if len(args) != n {
			l.fail(t, "%s takes %d arguments, found %d", t.text, n, len(args))
		}
	}
	b, at := l.body, l.place(t)
	switch t.text {
	case "min":
		wrong(2)
		return func(e *env) int64 { return min(args[0](e), args[1](e)) }
	case "max":
		wrong(2)
		return func(e *env) int64 { return max(args[0](e), args[1](e)) }
	case "align":
		wrong(2)
		return func(e *env) int64 {
			x, a := args[0](e), args[1](e)
			if a <= 0 {
				b.fail(at, "align to %d: use a number above 0", a)
			}
			return (x + a - 1) / a * a
		}
	case "pick":
		if len(args) < 2 {
			l.fail(t, "pick takes a number and what to pick from: pick(call, 1, 7)")
		}
		return func(e *env) int64 {
			k := args[0](e)
			if k < 0 || k >= int64(len(args)-1) {
				b.fail(at, "pick number %d of %d: add the missing ones, or count with %%", k, len(args)-1)
			}
			return args[1+k](e)
		}
	}
	l.fail(t, "there is no function %s: use min, max, align, bytes, pick or addr", t.text)
	return nil
}

// addr is addr(NAME) or addr(NAME, RANK); its parenthesis has been read.
func (l *specLine) addr(t specToken) expr {
	buffer := l.buffer()
	rank := expr(func(e *env) int64 { return e.rank })
	if l.has(",") {
		rank = l.expr()
	}
	l.need(")", "close the parenthesis")
	b, at := l.body, l.place(t)
	return func(e *env) int64 {
		if e.address == nil {
			b.fail(at, "addresses are known in arguments only: use addr in arg lines")
		}
		return int64(e.address(buffer, rank(e), e.call, at))
	}
}
