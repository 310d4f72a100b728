package check

import (
	"bytes"
	"slices"
	"strings"
)

// instruction is one instruction in PTX text. It spans text[from:to], its semicolon included.
type instruction struct {
	line     int
	from, to int
	guard    string   // "@%p1 ", as written; or empty
	op       string   // "st.relaxed.sys.global.u32"
	mods     []string // the same, cut at the dots
	args     string   // up to the semicolon
}

func (n *instruction) has(mods ...string) bool {
	return slices.ContainsFunc(n.mods[1:], func(m string) bool { return slices.Contains(mods, m) })
}

// String is the instruction as it stands, without blanks around it.
func (n *instruction) String() string {
	return strings.Join(strings.Fields(n.guard+n.op+" "+n.args+";"), " ")
}

// span is a part of PTX text.
type span struct{ from, to int }

// entries finds the bodies of all entries, from behind their opening brace to their closing one.
func entries(text []byte) map[string]span {
	all := map[string]span{}
	code := blank(text)
	for at := 0; ; {
		i := bytes.Index(code[at:], []byte(".entry"))
		if i < 0 {
			return all
		}
		at += i + len(".entry")
		rest := bytes.TrimLeft(code[at:], " \t\r\n")
		end := bytes.IndexFunc(rest, func(c rune) bool { return !strings.ContainsRune("_$%", c) && !inWord(byte(c)) })
		open := bytes.IndexByte(code[at:], '{')
		semi := bytes.IndexByte(code[at:], ';')
		if end <= 0 || open < 0 || semi >= 0 && semi < open { // no body: a declaration
			continue
		}
		name := string(rest[:end])
		from := at + open + 1
		depth, to := 1, from
		for ; to < len(code) && depth > 0; to++ {
			switch code[to] {
			case '{':
				depth++
			case '}':
				depth--
			}
		}
		all[name] = span{from, to - 1}
		at = to
	}
}

// blank is text with comments and strings turned into spaces; lines and offsets stay.
func blank(text []byte) []byte {
	out := bytes.Clone(text)
	wipe := func(from, to int) int {
		for i := from; i < to; i++ {
			if out[i] != '\n' {
				out[i] = ' '
			}
		}
		return to
	}
	until := func(from int, mark string) int {
		if n := bytes.Index(text[from:], []byte(mark)); n >= 0 {
			return from + n + len(mark)
		}
		return len(text)
	}
	for at := 0; at < len(text); {
		switch {
		case bytes.HasPrefix(text[at:], []byte("//")):
			at = wipe(at, until(at, "\n"))
		case bytes.HasPrefix(text[at:], []byte("/*")):
			at = wipe(at, until(at+2, "*/"))
		case text[at] == '"':
			at = wipe(at, until(at+1, "\""))
		default:
			at++
		}
	}
	return out
}

// scan lists the instructions of an entry; of all entries when it has no name.
func scan(text []byte, entry string) []instruction {
	bodies := entries(text)
	var spans []span
	for name, s := range bodies {
		if entry == "" || name == entry {
			spans = append(spans, s)
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
	code := blank(text)
	var list []instruction
	line, counted := 1, 0
	for _, s := range spans {
		for at := s.from; at < s.to; {
			end := statement(code, at, s.to)
			if n, ok := decode(code, at, end); ok {
				line += bytes.Count(code[counted:n.from], []byte("\n"))
				counted = n.from
				n.line = line
				list = append(list, n)
			}
			at = end
		}
	}
	return list
}

// statement is the end of the statement at an offset: behind its semicolon, or behind a brace or label that stands alone, or at
// the end of the line of a directive for debuggers.
func statement(code []byte, at, limit int) int {
	for at < limit && strings.IndexByte(" \t\r\n", code[at]) >= 0 {
		at++
	}
	if rest := code[at:limit]; bytes.HasPrefix(rest, []byte(".loc")) || bytes.HasPrefix(rest, []byte(".file")) {
		if end := bytes.IndexByte(rest, '\n'); end >= 0 {
			return at + end
		}
		return limit
	}
	start := true
	for i := at; i < limit; i++ {
		switch c := code[i]; {
		case c == ';':
			return i + 1
		case (c == '{' || c == '}') && start:
			return i + 1
		case c == ':' && i+1 < limit && code[i+1] != ':' && code[i-1] != ':' && label(code[at:i]):
			return i + 1
		case c != ' ' && c != '\t' && c != '\n' && c != '\r':
			start = false
		}
	}
	return limit
}

// label is whether text is one word.
func label(text []byte) bool {
	word := strings.TrimSpace(string(text))
	return word != "" && !strings.ContainsAny(word, " \t\n.,[")
}

// decode cuts a statement into guard, opcode and operands. Directives and labels are no instructions.
func decode(code []byte, from, to int) (n instruction, ok bool) {
	for from < to && strings.IndexByte(" \t\r\n", code[from]) >= 0 {
		from++
	}
	if to <= from || code[to-1] != ';' {
		return n, false
	}
	s := string(code[from : to-1])
	n.from, n.to = from, to
	if strings.HasPrefix(s, "@") {
		cut := strings.IndexAny(s, " \t")
		if cut < 0 {
			return n, false
		}
		n.guard = s[:cut] + " "
		s = strings.TrimLeft(s[cut:], " \t")
	}
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return n, false
	}
	n.op = s
	if cut := strings.IndexAny(s, " \t\n"); cut >= 0 {
		n.op, n.args = s[:cut], strings.TrimSpace(s[cut:])
	}
	n.mods = strings.Split(n.op, ".")
	return n, true
}

// Isolate empties every entry but these, and keeps all lines where they are: what is left parses faster.
func Isolate(text []byte, keep []string) []byte {
	out := bytes.Clone(text)
	for name, s := range entries(text) {
		if slices.Contains(keep, name) {
			continue
		}
		for i := s.from; i < s.to; i++ {
			if out[i] != '\n' {
				out[i] = ' '
			}
		}
	}
	return out
}
