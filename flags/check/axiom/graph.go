package axiom

import (
	"fmt"

	"github.com/fenceline/fenceline/flags/check/litmus"
)

// graph is a set of traces, one for each thread, and what may be chosen about them.
type graph struct {
	s      *search
	ev     []event
	po     relation
	strong relation // morally strong pairs
	over   relation // overlapping accesses
	fixed  relation // synchronisation by barriers
	reads  []take
	from   [][]int // write, or -1 for the initial value, by event and cell of its range
	deps   [][]int // between halves of events: 2i reads, 2i+1 writes
	plain  uint64  // events that are no barriers
	sc     []int   // SC fences
}

// take is a cell of a read, and the writes that have its value.
type take struct {
	event, cell int
	writes      []int
}

func newGraph(s *search) (*graph, error) {
	g := &graph{s: s}
	first := make([]int, len(s.chosen))
	for i, tr := range s.chosen {
		first[i] = len(g.ev)
		g.ev = append(g.ev, tr.events...)
	}
	n := len(g.ev)
	if n > 64 {
		return nil, fmt.Errorf("%s: %d events; 64 are the most", s.t.Name, n)
	}
	g.po, g.strong, g.over, g.fixed = newRelation(n), newRelation(n), newRelation(n), newRelation(n)
	g.deps = make([][]int, 2*n)
	g.from = make([][]int, n)
	for i := range g.ev {
		a := &g.ev[i]
		g.from[i] = make([]int, len(a.got))
		if a.op != litmus.Barrier {
			g.plain |= 1 << i
		}
		if a.op == litmus.Fence && a.sem == litmus.SC {
			g.sc = append(g.sc, i)
		}
		for k := range g.ev {
			b := &g.ev[k]
			if a.thread == b.thread && a.instr < b.instr {
				g.po.add(i, k)
			}
			if i != k && a.memory() && b.memory() && a.cell < b.cell+b.cells && b.cell < a.cell+a.cells {
				g.over.add(i, k)
			}
			if i != k && g.morallyStrong(a, b) {
				g.strong.add(i, k)
			}
		}
		g.depend(i, first[a.thread])
		g.sources(i)
	}
	return g, g.barriers()
}

// morallyStrong: of one thread, or strong towards each other; and if both access memory, the same memory.
func (g *graph) morallyStrong(a, b *event) bool {
	if a.op == litmus.Barrier || b.op == litmus.Barrier {
		return false
	}
	if a.memory() && b.memory() && (a.cell != b.cell || a.cells != b.cells) {
		return false
	}
	return a.thread == b.thread || a.strong() && b.strong() && g.includes(a, b) && g.includes(b, a)
}

// includes says whether a's scope holds the thread of b.
func (g *graph) includes(a, b *event) bool {
	x, y := &g.s.t.Threads[a.thread], &g.s.t.Threads[b.thread]
	switch a.scope {
	case litmus.Sys:
		return true
	case litmus.GPU:
		return x.Device == y.Device
	}
	return x.Device == y.Device && x.Block == y.Block
}

// depend notes what event i depends on in its thread, whose events begin at first.
func (g *graph) depend(i, first int) {
	e := &g.ev[i]
	note := func(set uint64, half int) {
		each(set, func(k int) { g.deps[2*(first+k)] = append(g.deps[2*(first+k)], half) })
	}
	if e.read {
		note(e.address, 2*i)
	}
	if e.write {
		note(e.value, 2*i+1)
	}
	if e.rmw() {
		g.deps[2*i] = append(g.deps[2*i], 2*i+1)
	}
}

func (g *graph) sources(i int) {
	e := &g.ev[i]
	for c, v := range e.got {
		t := take{event: i, cell: c}
		if g.s.c.init[e.cell+c] == v {
			t.writes = append(t.writes, -1)
		}
		for k := range g.ev {
			w := &g.ev[k]
			if at := e.cell + c - w.cell; k != i && w.write && at >= 0 && at < w.cells && w.put[at] == v {
				t.writes = append(t.writes, k)
			}
		}
		g.reads = append(g.reads, t)
	}
}

// barriers relates the operations of each round of a barrier.
func (g *graph) barriers() error {
	type key struct {
		device, block int
		id            uint64
	}
	rounds := map[key][][]int{} // by round
	count := map[key]map[int]int{}
	for i := range g.ev {
		e := &g.ev[i]
		if e.op != litmus.Barrier {
			continue
		}
		th := &g.s.t.Threads[e.thread]
		k := key{th.Device, th.Block, e.barrier}
		if count[k] == nil {
			count[k] = map[int]int{}
		}
		r := count[k][e.thread]
		count[k][e.thread]++
		for len(rounds[k]) <= r {
			rounds[k] = append(rounds[k], nil)
		}
		rounds[k][r] = append(rounds[k][r], i)
	}
	for k, list := range rounds {
		for _, n := range count[k] {
			if n != len(list) {
				return fmt.Errorf("%s: threads differ in how often they come to barrier %d", g.s.t.Name, k.id)
			}
		}
		for _, round := range list {
			for _, a := range round {
				for _, b := range round {
					if a != b && !g.ev[b].arrive {
						g.fixed.add(a, b)
					}
				}
			}
		}
	}
	return nil
}

// take chooses writes for the reads from i on.
func (g *graph) take(i int) {
	if g.s.interrupted(1) {
		return
	}
	if i == len(g.reads) {
		if g.s.budget++; g.s.budget > budget {
			g.s.err = fmt.Errorf("%s: more than %d candidates", g.s.t.Name, budget)
		}
		if !g.thinAir() {
			g.order(0, make([]int, 0, len(g.sc)), map[string]bool{})
		}
		return
	}
	for _, w := range g.reads[i].writes {
		g.from[g.reads[i].event][g.reads[i].cell] = w
		g.take(i + 1)
	}
}

// thinAir says whether some value depends on itself.
func (g *graph) thinAir() bool {
	next := make([][]int, len(g.deps))
	for i := range g.deps {
		next[i] = append(next[i], g.deps[i]...)
	}
	for i := range g.from {
		for _, w := range g.from[i] {
			if w >= 0 {
				next[2*w+1] = append(next[2*w+1], 2*i)
			}
		}
	}
	state := make([]int8, len(next))
	var visit func(int) bool
	visit = func(i int) bool {
		state[i] = 1
		for _, k := range next[i] {
			if state[k] == 1 || state[k] == 0 && visit(k) {
				return true
			}
		}
		state[i] = 2
		return false
	}
	for i := range next {
		if state[i] == 0 && visit(i) {
			return true
		}
	}
	return false
}

// order tries the orders of SC fences, each set of relations between morally strong ones once.
func (g *graph) order(used uint64, fences []int, seen map[string]bool) {
	if len(fences) == len(g.sc) {
		fsc := newRelation(len(g.ev))
		for i, a := range fences {
			for _, b := range fences[i+1:] {
				if g.strong.has(a, b) {
					fsc.add(a, b)
				}
			}
		}
		if key := fmt.Sprint(fsc); !seen[key] {
			seen[key] = true
			g.judge(fsc)
		}
		return
	}
	for i, f := range g.sc {
		if used>>i&1 == 0 {
			g.order(used|1<<i, append(fences, f), seen)
		}
	}
}
