package litmus

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// parser reads one file. Errors are thrown as *Error and caught in Parse.
type parser struct {
	file  string
	line  int
	t     *Test
	tests []*Test
	names map[string]int // tests by name, where they begin
}

// Parse reads the tests of a file. name is for errors.
func Parse(name string, text []byte) (tests []*Test, err error) {
	p := &parser{file: name, names: map[string]int{}}
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *Error:
			tests, err = nil, e
		default:
			panic(e)
		}
	}()
	for i, line := range strings.Split(string(text), "\n") {
		p.line = i + 1
		line, _, _ = strings.Cut(strings.TrimSuffix(line, "\r"), "#")
		if strings.TrimSpace(line) != "" {
			p.parseLine(line)
		}
	}
	p.finish()
	if len(p.tests) == 0 {
		p.fail(0, "begin a test with `test: its name`", "no test in this file")
	}
	return p.tests, nil
}

func (p *parser) fail(column int, remedy, format string, args ...any) {
	panic(&Error{p.file, p.line, column + 1, fmt.Sprintf(format, args...), remedy})
}

var (
	keyed    = regexp.MustCompile(`^\s*(test|why|forbidden|allowed|always|permitted|race):\s*`)
	location = regexp.MustCompile(`^([a-z][a-z0-9_]*)(?:\.(u8|u16|u32|u64))?(?:\[(\d+)\])?\s*=\s*([^@]*?)\s*(?:@(\d|host))?$`)
	where    = regexp.MustCompile(`^d(\d)\.b(\d+)\.t(\d+)$`)
	register = regexp.MustCompile(`^(r|rd|q|h|p)\d+$`)
	ident    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
)

func (p *parser) parseLine(line string) {
	m := keyed.FindStringSubmatchIndex(line)
	if m == nil {
		p.body(line)
		return
	}
	key, col := line[m[2]:m[3]], m[1]
	value := strings.TrimSpace(line[col:])
	if value == "" {
		p.fail(col, "write it behind the colon", "`%s:` says nothing", key)
	}
	if key == "test" {
		p.finish()
		if at, ok := p.names[value]; ok {
			p.fail(col, "give each test its own name", "the test of line %d has this name too", at)
		}
		p.names[value] = p.line
		p.t = &Test{File: p.file, Line: p.line, Name: value}
		return
	}
	p.inTest()
	switch key {
	case "why":
		p.t.Why = strings.TrimSpace(p.t.Why + " " + value)
	case "race":
		races := map[string]Racy{"no": No, "yes": Yes, "mixed size": Mixed}
		if p.t.Race = races[value]; p.t.Race == Unsaid {
			p.fail(col, "write yes, no or mixed size", "`race: %s` is no answer", value)
		}
	default:
		modes := map[string]Mode{"forbidden": Forbidden, "allowed": Allowed, "always": Always, "permitted": Permitted}
		p.condition(modes[key], line, col)
	}
}

func (p *parser) inTest() {
	if p.t == nil {
		p.fail(0, "begin a test with `test: its name`", "this line belongs to no test")
	}
}

// body is a line of locations, the line of places, or a line of instructions.
func (p *parser) body(line string) {
	p.inTest()
	if len(p.t.Expect) > 0 || p.t.Race != Unsaid {
		p.fail(0, "begin the next test with `test: its name`", "instructions after the expectations")
	}
	first := strings.TrimSpace(strings.SplitN(line, "|", 2)[0])
	switch {
	case len(p.t.Threads) > 0:
		p.row(line)
	case where.MatchString(first):
		p.places(line)
	default:
		p.locations(line)
	}
}

// pieces calls f with each part of line and the column where it begins.
func pieces(line, sep string, f func(text string, column int)) {
	at := 0
	for part := range strings.SplitSeq(line, sep) {
		trimmed := strings.TrimLeft(part, " \t")
		f(strings.TrimSpace(part), at+len(part)-len(trimmed))
		at += len(part) + len(sep)
	}
}

func (p *parser) locations(line string) {
	pieces(line, ";", func(text string, col int) {
		if text == "" {
			return
		}
		m := location.FindStringSubmatch(text)
		if m == nil {
			p.fail(col, "write `x = 0`, `x.u64 = 0`, `a[2] = 0`, or `x = 0 @1`; places of threads look like d0.b0.t0",
				"`%s` declares no location", text)
		}
		l := Location{Name: m[1], Size: 4}
		if register.MatchString(l.Name) || p.find(l.Name) >= 0 {
			p.fail(col, "give it another name", "`%s` is a register or already a location", l.Name)
		}
		if m[2] != "" {
			l.Size = typeSize(m[2])
		}
		n := 1
		if m[3] != "" {
			n, _ = strconv.Atoi(m[3])
		}
		if n < 1 || n > 64 {
			p.fail(col, "use 1 to 64", "%d elements", n)
		}
		for v := range strings.SplitSeq(m[4], ",") {
			l.Init = append(l.Init, p.value(strings.TrimSpace(v), col, l.Size))
		}
		if len(l.Init) == 1 {
			for len(l.Init) < n {
				l.Init = append(l.Init, l.Init[0])
			}
		}
		if len(l.Init) != n {
			p.fail(col, "give one value, or one for each", "%d values for %d elements", len(l.Init), n)
		}
		switch m[5] {
		case "", "0":
		case "host":
			l.Device = Host
		default:
			l.Device, _ = strconv.Atoi(m[5])
		}
		p.t.Locations = append(p.t.Locations, l)
	})
}

func (p *parser) find(name string) int {
	for i := range p.t.Locations {
		if p.t.Locations[i].Name == name {
			return i
		}
	}
	return -1
}

func (p *parser) places(line string) {
	pieces(line, "|", func(text string, col int) {
		m := where.FindStringSubmatch(text)
		if m == nil {
			p.fail(col, "write device, block and thread, like d0.b0.t0", "`%s` is no place", text)
		}
		var th Thread
		th.Device, _ = strconv.Atoi(m[1])
		th.Block, _ = strconv.Atoi(m[2])
		th.Thread, _ = strconv.Atoi(m[3])
		if th.Block > 15 || th.Thread > 127 {
			p.fail(col, "use at most 16 blocks of 128 threads", "`%s` is too far", text)
		}
		for _, o := range p.t.Threads {
			if o.Device == th.Device && o.Block == th.Block && o.Thread == th.Thread {
				p.fail(col, "give each column its own place", "two columns at %s", text)
			}
		}
		th.Labels = map[string]int{}
		p.t.Threads = append(p.t.Threads, th)
	})
}

func (p *parser) row(line string) {
	column := 0
	pieces(line, "|", func(text string, col int) {
		if column >= len(p.t.Threads) {
			p.fail(col, "place one more thread, or drop the cell", "more cells than the %d columns", len(p.t.Threads))
		}
		th := &p.t.Threads[column]
		column++
		if label, rest, ok := strings.Cut(text, ":"); ok {
			if !ident.MatchString(label) {
				p.fail(col, "a label is a word and a colon", "`%s` is no label", label)
			}
			if _, twice := th.Labels[label]; twice {
				p.fail(col, "give it another name", "the label `%s` is there twice", label)
			}
			th.Labels[label] = len(th.Code)
			trimmed := strings.TrimLeft(rest, " ")
			col += len(text) - len(trimmed)
			text = trimmed
		}
		if text != "" {
			c := cell{parser: p, th: th, col: col}
			c.in.Line, c.in.Column = p.line, col+1
			c.parse(text)
			th.Code = append(th.Code, c.in)
		}
	})
}

// condition reads the parts behind forbidden: and its like.
func (p *parser) condition(mode Mode, line string, start int) {
	if len(p.t.Threads) == 0 {
		p.fail(0, "put the columns before what is expected of them", "there are no columns yet")
	}
	e := Expectation{Mode: mode, Text: strings.TrimSpace(line[start:]), Line: p.line}
	pieces(line[start:], "&", func(text string, col int) {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			p.fail(start+col, "write `r0 = 1`, `1:r0 = 1` or `[x] = 1`, joined by &", "`%s` compares nothing", text)
		}
		o := p.observed(strings.TrimSpace(name), start+col)
		v := p.value(strings.TrimSpace(value), start+col, o.Size)
		index := -1
		for i := range p.t.Observed {
			if p.t.Observed[i] == o {
				index = i
			}
		}
		if index < 0 {
			index = len(p.t.Observed)
			p.t.Observed = append(p.t.Observed, o)
		}
		e.Want = append(e.Want, Want{index, v})
	})
	p.t.Expect = append(p.t.Expect, e)
}

func (p *parser) observed(name string, col int) Observed {
	if strings.HasPrefix(name, "[") {
		loc, off, reg := p.address(name, col)
		l := &p.t.Locations[loc]
		if reg != "" || off%l.Size != 0 || off >= l.Bytes() {
			p.fail(col, "use the location, plus whole elements in bytes", "`%s` is no element", name)
		}
		return Observed{Column: -1, Loc: loc, Off: off, Size: l.Size}
	}
	reg, column := name, -1
	if c, r, ok := strings.Cut(name, ":"); ok {
		n, err := strconv.Atoi(c)
		if reg, column = r, n; err != nil || n < 0 || n >= len(p.t.Threads) {
			p.fail(col, fmt.Sprintf("columns are 0 to %d", len(p.t.Threads)-1), "no column `%s`", c)
		}
	}
	if !register.MatchString(reg) {
		p.fail(col, "write a register, or a location in brackets", "`%s` cannot be observed", name)
	}
	found := -1
	for i := range p.t.Threads {
		for _, r := range p.t.Threads[i].Registers {
			if r != reg || column >= 0 && column != i {
				continue
			}
			if found >= 0 {
				p.fail(col, fmt.Sprintf("write %d:%s or %d:%s", found, reg, i, reg), "two columns use `%s`", reg)
			}
			found = i
		}
	}
	if found < 0 {
		p.fail(col, "use a register that is loaded there", "no such register `%s`", name)
	}
	if registerSize(reg) > 8 {
		p.fail(col, "observe its halves: `mov.b128 {rd0, rd1}, "+reg+"`", "`%s` has 128 bits", reg)
	}
	return Observed{Column: found, Register: reg, Size: registerSize(reg)}
}

// finish checks the test that ends here.
func (p *parser) finish() {
	if p.t == nil {
		return
	}
	t, line := p.t, p.line
	p.line = t.Line
	switch {
	case t.Why == "":
		p.fail(0, "give the reason behind `why:`", "the test `%s` has no reason", t.Name)
	case len(t.Threads) == 0:
		p.fail(0, "place threads in columns, like `d0.b0.t0 | d1.b0.t0`", "the test `%s` has no columns", t.Name)
	case len(t.Expect) == 0 && t.Race == Unsaid:
		p.fail(0, "add forbidden:, allowed:, always: or race:", "the test `%s` expects nothing", t.Name)
	}
	for i := range t.Threads {
		for _, in := range t.Threads[i].Code {
			if _, ok := t.Threads[i].Labels[in.Label]; in.Op == Branch && !ok {
				p.line = in.Line
				p.fail(in.Column-1, "label an instruction of this column", "no label `%s`", in.Label)
			}
		}
	}
	p.tests, p.t, p.line = append(p.tests, t), nil, line
}
