package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// systematically makes all choices, one execution after the other, depth first. Which thread goes next is no choice: the
// first that can. What a read could have seen had it come later is found afterwards: each write adds itself to the
// choices of earlier reads that do not come before it, as a write to wait for. So reads are tried with each write that
// could reach them, and executions that differ only in the order of independent operations are run once.
type systematically struct {
	path   []decision
	at     int
	script []decision // to replay
	misfit int        // the first part of the script that is no choice there was, from 1; 0: none
}

type decision struct {
	n     int      // alternatives there were at once
	waits []target // writes that came later
	next  int      // the one that is tried: at first all there were, then the others
}

func (d *decision) wait() target {
	if d.next < d.n {
		return noTarget
	}
	return d.waits[d.next-d.n]
}

func (s *systematically) begin(*exec) { s.at = 0 }

// advance moves to the next execution; false: there is none.
func (s *systematically) advance() bool {
	for n := len(s.path); n > 0; n = len(s.path) {
		d := &s.path[n-1]
		if d.next++; d.next < d.n+len(d.waits) {
			return true
		}
		s.path = s.path[:n-1]
	}
	return false
}

func (s *systematically) decide(x *exec, n int) (*decision, int32) {
	x.decisions++
	if s.at == len(s.path) {
		d := decision{n: n}
		if s.at < len(s.script) {
			d = s.script[s.at]
			if w := d.wait(); w != noTarget {
				d = decision{n: n, waits: []target{w}, next: n}
			} else {
				if d.next >= n {
					s.wrong(s.at)
				}
				d.n = n
				d.next = min(d.next, n-1)
			}
		}
		s.path = append(s.path, d)
	}
	s.at++
	return &s.path[s.at-1], int32(s.at - 1)
}

// wrong notes that a part of the script does not fit.
func (s *systematically) wrong(at int) {
	if s.misfit == 0 {
		s.misfit = at + 1
	}
}

func (s *systematically) thread(x *exec) *thread {
	for _, i := range x.ready {
		if t := x.threads[i]; t.state == ready {
			return t
		}
	}
	return nil
}

func (s *systematically) read(x *exec, t *thread, n int, mayDefer bool) (int, target, bool) {
	if t.forced != nil && n == 1 {
		return 0, noTarget, false
	}
	d, at := s.decide(x, n)
	if t.forced == nil {
		t.choice = at
	}
	if w := d.wait(); w != noTarget {
		if w.nth < 0 {
			s.wrong(int(at))
			return 0, noTarget, false
		}
		return 0, w, mayDefer
	}
	return d.next, noTarget, false
}

func (s *systematically) place(x *exec, n int) int {
	if n == 1 {
		return 0
	}
	d, at := s.decide(x, n)
	if d.next >= n {
		s.wrong(int(at))
		return 0
	}
	return d.next
}

func (s *systematically) block(int) int { return 0 }

// late is always so, as whoever is to see what the dependent does has it start. Those that would give up instead are not exhausted
// in any case.
func (s *systematically) late(x *exec) bool { return !x.p.GiveUp }

func (s *systematically) fence(x *exec, t *thread, a *actor) target {
	for i := range x.scs {
		if f := &x.scs[i]; f.id != t.id && f.choice >= 0 && morallyStrong(&f.actor, a) && !t.clocks.has(f.id, f.n) {
			s.path[f.choice].later(target{thread: t.index, nth: -(t.scs + 1)})
		}
	}
	d, at := s.decide(x, 1)
	t.choice = at
	w := d.wait()
	if w.nth > 0 {
		s.wrong(int(at))
		return noTarget
	}
	return w
}

func (s *systematically) wrote(x *exec, t *thread, l *location, before clocks, id int32) {
	for _, v := range l.order {
		for i := range v.readers {
			if r := &v.readers[i]; r.choice >= 0 && r.id != id && !before.has(r.id, r.n) {
				d := &s.path[r.choice]
				n := len(d.waits)
				d.later(target{thread: t.index, nth: t.writes, at: l.address})
				x.decisions += len(d.waits) - n
			}
		}
	}
}

func (s *systematically) passes(p *pending) {
	w := p.want
	w.pass = true
	s.path[p.choice].later(w)
}

func (d *decision) later(w target) {
	if !slices.Contains(d.waits, w) {
		d.waits = append(d.waits, w)
	}
}

// token is the path, without the zeroes at its end.
func (s *systematically) token() string {
	path := s.path[:s.at]
	for len(path) > 0 && path[len(path)-1].next == 0 {
		path = path[:len(path)-1]
	}
	var b strings.Builder
	b.WriteString("x")
	for i := range path {
		b.WriteByte(':')
		switch w := path[i].wait(); {
		case w != noTarget:
			fmt.Fprintf(&b, "%d.%d", w.thread, w.nth)
			if w.pass {
				b.WriteByte('!')
			}
		case path[i].next > 0:
			b.WriteString(strconv.Itoa(path[i].next))
		}
	}
	return b.String()
}

// parsePath reads a token.
func parsePath(token string) ([]decision, error) {
	parts := strings.Split(token, ":")[1:]
	path := make([]decision, len(parts))
	for i, p := range parts {
		if p == "" {
			path[i] = decision{n: 1}
			continue
		}
		p, pass := strings.CutSuffix(p, "!")
		if a, b, ok := strings.Cut(p, "."); ok {
			t, err1 := strconv.ParseInt(a, 10, 32)
			n, err2 := strconv.ParseInt(b, 10, 32)
			if err1 != nil || err2 != nil || t < 0 || n == 0 || pass && n < 0 {
				return nil, fmt.Errorf("part %d is %q", i+1, p)
			}
			path[i] = decision{n: 1, waits: []target{{thread: int32(t), nth: int32(n), pass: pass}}, next: 1}
			continue
		}
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || pass {
			return nil, fmt.Errorf("part %d is %q", i+1, p)
		}
		path[i] = decision{n: int(n) + 1, next: int(n)}
	}
	return path, nil
}
