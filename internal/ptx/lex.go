package ptx

import (
	"fmt"
	"strings"
)

// Limits that keep hostile text from costing more than its own size.
const (
	maxSource    = 64 << 20 // bytes of PTX text
	maxRegisters = 1 << 20  // virtual registers a function may declare
	maxOps       = 1 << 20  // operations of one kernel after inlining
	maxVarBytes  = 1 << 30  // bytes of one variable
	maxInitBytes = 16 << 20 // bytes of all initialised variables
	maxParams    = 32764    // bytes of kernel parameters (PTX 8.1, sm_70)
)

type tokKind uint8

const (
	tokEOF   tokKind = iota
	tokIdent         // name, %reg, $label
	tokDot           // .word, without the dot; may hold ::
	tokNum           // number, as written
	tokStr           // string, without quotes
	tokPunct         // one character
	tokBad           // anything else; refused by strict parsing, skipped by Signatures
)

type token struct {
	kind tokKind
	text string
	line int
	pos  int // byte offset in the source
}

func (t token) is(s string) bool { return t.kind == tokPunct && t.text == s }

func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "end of file"
	case tokDot:
		return "." + t.text
	case tokStr:
		return fmt.Sprintf("%q", t.text)
	}
	return t.text
}

func isLetter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$' || c == '%'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWord(c byte) bool { return isLetter(c) && c != '%' || isDigit(c) }

// lexer hands out tokens with one token of lookahead.
type lexer struct {
	src  string
	pos  int
	line int
	tok  token // the current token
	end  int   // offset behind the token before it
}

func newLexer(src string) *lexer {
	l := &lexer{src: src, line: 1}
	l.next()
	return l
}

// skipSpace passes blanks and comments; an unclosed comment ends the file.
func (l *lexer) skipSpace() {
	for l.pos < len(l.src) {
		c := l.src[l.pos]
		switch {
		case c == '\n':
			l.line++
			l.pos++
		case c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v' || c == 0:
			l.pos++
		case strings.HasPrefix(l.src[l.pos:], "//"):
			if n := strings.IndexByte(l.src[l.pos:], '\n'); n >= 0 {
				l.pos += n
			} else {
				l.pos = len(l.src)
			}
		case strings.HasPrefix(l.src[l.pos:], "/*"):
			n := strings.Index(l.src[l.pos+2:], "*/")
			if n < 0 {
				l.pos = len(l.src)
				return
			}
			l.line += strings.Count(l.src[l.pos:l.pos+2+n], "\n")
			l.pos += n + 4
		default:
			return
		}
	}
}

func (l *lexer) next() token {
	prev := l.tok
	l.end = l.pos
	l.skipSpace()
	start, line := l.pos, l.line
	if start >= len(l.src) {
		l.tok = token{kind: tokEOF, line: line, pos: len(l.src)}
		return prev
	}
	c := l.src[start]
	end := start + 1
	kind := tokPunct
	from := start
	switch {
	case isLetter(c):
		kind = tokIdent
		for end < len(l.src) && isWord(l.src[end]) {
			end++
		}
	case isDigit(c):
		kind = tokNum
		end = l.number(start)
	case c == '.' && end < len(l.src) && isDigit(l.src[end]) && !l.dotWord(end):
		kind = tokNum
		end = l.number(start)
	case c == '.' && end < len(l.src) && isWord(l.src[end]):
		kind, from = tokDot, start+1
		for end < len(l.src) {
			if isWord(l.src[end]) {
				end++
			} else if strings.HasPrefix(l.src[end:], "::") && end+2 < len(l.src) && isWord(l.src[end+2]) {
				end += 2
			} else {
				break
			}
		}
	case c == '"':
		kind, from = tokStr, start+1
		for end < len(l.src) && l.src[end] != '"' && l.src[end] != '\n' {
			if l.src[end] == '\\' && end+1 < len(l.src) && l.src[end+1] != '\n' {
				end++
			}
			end++
		}
		if end >= len(l.src) || l.src[end] != '"' {
			l.tok = token{kind: tokBad, text: l.src[start:end], line: line, pos: start}
			l.pos = end
			return prev
		}
		l.tok = token{kind: tokStr, text: l.src[from:end], line: line, pos: start}
		l.pos = end + 1
		return prev
	case strings.IndexByte(",;:[]{}()<>+-|@!=*", c) >= 0:
	default:
		kind = tokBad
	}
	l.tok = token{kind: kind, text: l.src[from:end], line: line, pos: start}
	l.pos = end
	return prev
}

// dotWord tells a modifier that starts with a digit (.1d) from a number (.5): it has a letter
// other than an exponent.
func (l *lexer) dotWord(at int) bool {
	for at < len(l.src) && isDigit(l.src[at]) {
		at++
	}
	return at < len(l.src) && isLetter(l.src[at]) && l.src[at] != 'e' && l.src[at] != 'E'
}

// number finds the end of a numeric literal: 12, 0x1F, 0b1, 017U, 0f3F800000, 0d…, 1.5, 1e-3.
func (l *lexer) number(start int) int {
	s := l.src
	end := start
	hex := len(s) > start+1 && s[start] == '0' && strings.IndexByte("xXfFdD", s[start+1]) >= 0
	for end < len(s) {
		c := s[end]
		switch {
		case isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		case c == '.' && !hex && end+1 < len(s) && (isDigit(s[end+1]) || !isWord(s[end+1])):
		case (c == '+' || c == '-') && !hex && end > start && (s[end-1] == 'e' || s[end-1] == 'E'):
		default:
			return end
		}
		end++
	}
	return end
}

// excerpt is the source between two offsets, on one line and not too long, for messages.
func excerpt(src string, from, to int) string {
	if to > len(src) {
		to = len(src)
	}
	if from > to {
		from = to
	}
	cut := to-from > 400
	if cut {
		to = from + 400
	}
	s := strings.ToValidUTF8(strings.Join(strings.Fields(src[from:to]), " "), "?")
	if len(s) > 120 {
		s, cut = strings.ToValidUTF8(s[:120], ""), true
	}
	if cut {
		s += "…"
	}
	return s
}

// lineText is the trimmed source line that holds offset pos.
func lineText(src string, pos int) string {
	if pos > len(src) {
		pos = len(src)
	}
	from := strings.LastIndexByte(src[:pos], '\n') + 1
	to := len(src)
	if n := strings.IndexByte(src[pos:], '\n'); n >= 0 {
		to = pos + n
	}
	return excerpt(src, from, to)
}
