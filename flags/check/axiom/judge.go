package axiom

import "github.com/fenceline/fenceline/flags/check/litmus"

// judge applies the axioms, given what is read and the order of SC fences; coherence is still open.
func (g *graph) judge(fsc relation) {
	n := len(g.ev)
	// Observation: a write to a morally strong read of it, and on through RMWs.
	obs := newRelation(n)
	for i := range g.from {
		for _, w := range g.from[i] {
			if w >= 0 && g.strong.has(w, i) {
				obs.add(w, i)
			}
		}
	}
	obs.closure() // what is in between reads and writes: RMWs alone do both
	base := g.po.union(g.fixed).union(fsc).union(g.synchronizes(obs)).closure()
	cause := base.union(obs.then(base))
	if base.reflexive(g.plain) || cause.reflexive(g.plain) {
		return
	}
	// Causality, first half: nothing reads what it precedes.
	for i := range g.from {
		for _, w := range g.from[i] {
			if w >= 0 && cause.has(i, w) {
				return
			}
		}
	}
	// Coherence: writes that causality orders. The others that are morally strong can be either way.
	co := newRelation(n)
	var open [][2]int
	for i := range g.ev {
		if !g.ev[i].write {
			continue
		}
		each(g.over[i], func(k int) {
			if !g.ev[k].write {
				return
			}
			if cause.has(i, k) {
				co.add(i, k)
			} else if i < k && !cause.has(k, i) && g.strong.has(i, k) {
				open = append(open, [2]int{i, k})
			}
		})
	}
	g.coherence(co.closure(), open, cause)
}

// synchronizes: a release pattern's first operation and an acquire pattern's last, when the one's write precedes the
// other's read in observation order and the two are morally strong.
func (g *graph) synchronizes(obs relation) relation {
	sync := newRelation(len(g.ev))
	for w := range g.ev {
		each(obs[w], func(r int) {
			if g.ev[r].op == litmus.Red { // its read makes no acquire pattern
				return
			}
			for a := range g.ev {
				if !g.beginsRelease(a, w) {
					continue
				}
				for b := range g.ev {
					if g.ev[a].thread != g.ev[b].thread && g.endsAcquire(r, b) && g.strong.has(a, b) {
						sync.add(a, b)
					}
				}
			}
		})
	}
	return sync
}

func (g *graph) beginsRelease(a, w int) bool {
	e := &g.ev[a]
	if !e.releases() {
		return false
	}
	return a == w || g.po.has(a, w) && g.ev[w].strong() && (e.op == litmus.Fence || g.same(a, w))
}

func (g *graph) endsAcquire(r, b int) bool {
	e := &g.ev[b]
	if !e.acquires() {
		return false
	}
	return b == r || g.po.has(r, b) && g.ev[r].strong() && (e.op == litmus.Fence || g.same(r, b))
}

func (g *graph) same(a, b int) bool {
	return g.ev[a].cell == g.ev[b].cell && g.ev[a].cells == g.ev[b].cells
}

// coherence orders the open pairs each way, and applies the axioms about coherence order.
func (g *graph) coherence(co relation, open [][2]int, cause relation) {
	if co.reflexive(everything) || g.s.interrupted(1) {
		return
	}
	for i, p := range open {
		if co.has(p[0], p[1]) || co.has(p[1], p[0]) {
			continue
		}
		for _, q := range [][2]int{p, {p[1], p[0]}} {
			next := co.clone()
			next.add(q[0], q[1])
			g.coherence(next.closure(), open[i+1:], cause)
		}
		return
	}
	if g.consistent(co, cause) {
		g.allow(co, cause)
	}
}

// before says whether w, which may be the initial value, precedes the write k in coherence order.
func before(co relation, w, k int) bool { return w != k && (w < 0 || co.has(w, k)) }

func (g *graph) consistent(co, cause relation) bool {
	// Communication between morally strong operations, and program order between overlapping ones.
	loc := newRelation(len(g.ev))
	for i := range g.ev {
		loc[i] |= g.po[i] & g.over[i]
		if g.ev[i].write {
			loc[i] |= co[i] & g.over[i] & g.strong[i]
		}
	}
	for i := range g.ev {
		r := &g.ev[i]
		for c, w := range g.from[i] {
			if w >= 0 && g.strong.has(w, i) {
				loc.add(w, i)
			}
			ok := eachUntil(g.over[i], func(k int) bool {
				e := &g.ev[k]
				at := r.cell + c - e.cell
				if !e.write || at < 0 || at >= e.cells || !before(co, w, k) {
					return true
				}
				// i reads w, which k overwrites.
				if cause.has(k, i) {
					return false // causality, second half
				}
				if g.strong.has(i, k) {
					loc.add(i, k)
					if r.rmw() && co.has(k, i) {
						return false // k came between an RMW's read and its write
					}
					for _, other := range g.from[i] {
						if other == k {
							return false // a part of k is seen and another is not
						}
					}
				}
				return true
			})
			if !ok {
				return false
			}
		}
	}
	return !loc.closure().reflexive(everything)
}

// allow notes an execution that the axioms allow.
func (g *graph) allow(co, cause relation) {
	a := g.s.a
	a.Executions++
	for i := range g.ev {
		each(g.over[i], func(k int) {
			conflict := g.ev[i].write || g.ev[k].write
			if k <= i || !conflict || g.strong.has(i, k) || cause.has(i, k) || cause.has(k, i) {
				return
			}
			if g.same(i, k) {
				a.Race = max(a.Race, litmus.Yes)
			} else {
				a.Race = litmus.Mixed
			}
		})
	}
	g.finals(co, 0, map[int]uint64{})
}

// finals notes the outcomes: one for each choice of last writes to the observed cells.
func (g *graph) finals(co relation, from int, value map[int]uint64) {
	s := g.s
	for o := from; o < len(s.t.Observed); o++ {
		seen := s.t.Observed[o]
		if seen.Column >= 0 {
			continue
		}
		size := s.c.granule[seen.Loc]
		for k := 0; k < seen.Size; k += size {
			cell := s.c.base[seen.Loc] + (seen.Off+k)/size
			if _, done := value[cell]; done {
				continue
			}
			for _, v := range g.last(co, cell) {
				value[cell] = v
				g.finals(co, o, value)
			}
			delete(value, cell)
			return
		}
	}
	s.a.Outcomes[s.outcome(func(cell int) uint64 { return value[cell] })] = true
}

// last is the values of writes to a cell that no other follows.
func (g *graph) last(co relation, cell int) []uint64 {
	var all uint64
	for i := range g.ev {
		if e := &g.ev[i]; e.write && cell >= e.cell && cell < e.cell+e.cells {
			all |= 1 << i
		}
	}
	if all == 0 {
		return []uint64{g.s.c.init[cell]}
	}
	var values []uint64
	each(all, func(i int) {
		if co[i]&all == 0 {
			values = append(values, g.ev[i].put[cell-g.ev[i].cell])
		}
	})
	return values
}
