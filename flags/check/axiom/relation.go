package axiom

import "math/bits"

// relation over at most 64 events: row i has a bit for each event that i relates to.
type relation []uint64

func newRelation(n int) relation         { return make(relation, n) }
func (r relation) add(i, k int)          { r[i] |= 1 << k }
func (r relation) has(i, k int) bool     { return r[i]>>k&1 != 0 }
func (r relation) clone() relation       { return append(relation(nil), r...) }
func each(set uint64, f func(event int)) { eachUntil(set, func(k int) bool { f(k); return true }) }

func eachUntil(set uint64, f func(event int) bool) bool {
	for ; set != 0; set &= set - 1 {
		if !f(bits.TrailingZeros64(set)) {
			return false
		}
	}
	return true
}

func (r relation) union(o relation) relation {
	u := r.clone()
	for i := range o {
		u[i] |= o[i]
	}
	return u
}

// closure is the transitive closure, in place.
func (r relation) closure() relation {
	for k := range r {
		for i := range r {
			if r.has(i, k) {
				r[i] |= r[k]
			}
		}
	}
	return r
}

// then is the composition r;o.
func (r relation) then(o relation) relation {
	u := newRelation(len(r))
	for i := range r {
		each(r[i], func(k int) { u[i] |= o[k] })
	}
	return u
}

func (r relation) reflexive(of uint64) bool {
	for i := range r {
		if of>>i&1 != 0 && r.has(i, i) {
			return true
		}
	}
	return false
}

const everything = ^uint64(0)
