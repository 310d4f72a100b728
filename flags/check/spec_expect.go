package check

import (
	"fmt"
	"slices"
	"strings"
)

// specCheck is something that must be in a buffer in the end.
type specCheck struct {
	what   string // "out of rank 1 in call 0"
	buffer int
	offset int
	typ    *elemType
	want   []byte
	why    string // "the sum of in"
}

// expect adds a step's checks: of every call when it is the end, otherwise of the memory as the stream comes to it.
func (b *specBuild) expect(s *specStep, final bool) {
	found := false
	for _, rank := range b.on(s) {
		if v := s.buffer.on; v != nil && s.on == nil && v(b.env()) != int64(rank) {
			continue
		}
		first, last := max(b.calls[rank]-1, 0), max(b.calls[rank], 1)
		if final && s.buffer.calls {
			first = 0
		}
		for call := first; call < last; call++ {
			found = true
			index := b.find(s.buffer, int64(rank), call, s.at)
			c := b.wanted(s, rank, call, index)
			if !final {
				c.buffer = b.snapshot(index, rank, s)
			}
			b.checks = append(b.checks, c)
			b.compared += len(c.want) / c.typ.size
		}
	}
	if !found {
		b.fail(s.at, "this judges nothing: name ranks that have %s", s.buffer.name)
	}
}

// snapshot copies a buffer aside when the rank's stream comes to it.
func (b *specBuild) snapshot(index, rank int, s *specStep) int {
	copied := b.newBuffer(Buffer{Name: b.p.Buffers[index].Name + ", copied", Device: Host, Size: b.p.Buffers[index].Size})
	b.copy("read "+s.buffer.name, copied, index, b.p.Buffers[index].Size, rank)
	return copied
}

// wanted is what a buffer must hold.
func (b *specBuild) wanted(s *specStep, rank int, call int64, index int) specCheck {
	x := s.expect
	b.charge(2*b.sizes[index], s.at)
	c := specCheck{what: b.p.Buffers[index].Name, buffer: index, typ: typeNamed("u8")}
	if !s.buffer.calls && b.calls[rank] > 1 {
		c.what += fmt.Sprintf(" after call %d", call)
	}
	if x.typ == nil {
		c.want, c.why = slices.Clone(b.model[index][:b.sizes[index]]), "what was there before"
		return c
	}
	c.typ = x.typ
	e := b.env()
	e.rank, e.call, e.known = int64(rank), call, knowRank|knowCall
	c.offset = b.bounded(x.offset, 0, e, b.sizes[index], s.at, "at")
	room := (b.sizes[index] - c.offset) / x.typ.size
	count := b.bounded(x.count, room, e, room, s.at, "count")
	if x.value != nil {
		b.work(count, x.cost, s.at)
	} else {
		b.work(count, b.world, s.at)
	}
	c.want = make([]byte, count*x.typ.size)
	e.known |= knowI
	for i := range count {
		e.i = int64(i)
		var bits uint64
		if x.sum != nil {
			bits = b.sum(s, call, i, e)
		} else {
			bits = x.typ.number(x.value(e))
		}
		x.typ.put(c.want[i*x.typ.size:], bits)
	}
	c.why = "what the spec says"
	if x.sum != nil {
		c.why = "the sum of " + x.sum.name
	}
	return c
}

func (b *specBuild) bounded(x expr, otherwise int, e *env, most int, at place, what string) int {
	if x == nil {
		return otherwise
	}
	v := x(e)
	if v < 0 || v > int64(most) {
		b.fail(at, "%s %d: use 0 to %d, which the buffer holds", what, v, most)
	}
	return int(v)
}

// sum is the i-th element of the sum of what the host wrote to all ranks' buffers.
func (b *specBuild) sum(s *specStep, call int64, i int, e *env) uint64 {
	x := s.expect
	elems := make([]uint64, b.world)
	for r := range elems {
		index := b.find(x.sum, int64(r), call, s.at)
		at := *e
		at.rank, at.known = int64(r), knowRank|knowCall
		offset := b.bounded(x.sumOffset, 0, &at, b.sizes[index], s.at, "at") + i*x.typ.size
		if offset+x.typ.size > b.sizes[index] {
			b.fail(s.at, "%s has no element %d: expect fewer elements, `count`", b.p.Buffers[index].Name, i)
		}
		elems[r] = x.typ.get(b.model[index][offset:])
	}
	return x.typ.sum(elems)
}

// judge compares memory with what is wanted, and says what differs first.
func judge(checks []specCheck, m *Memory) error {
	for i := range checks {
		c := &checks[i]
		got := m.Bytes(c.buffer)[c.offset:]
		size := c.typ.size
		differ, first := 0, -1
		for at := 0; at < len(c.want); at += size {
			if string(got[at:at+size]) != string(c.want[at:at+size]) {
				differ++
				if first < 0 {
					first = at
				}
			}
		}
		if differ == 0 {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s: element %d is %s", c.what, first/size, c.typ.show(c.typ.get(got[first:])))
		fmt.Fprintf(&b, ", not %s", c.typ.show(c.typ.get(c.want[first:])))
		if c.why != "" {
			fmt.Fprintf(&b, ", %s", c.why)
		}
		if differ > 1 {
			fmt.Fprintf(&b, "; %d of %d elements differ", differ, len(c.want)/size)
		}
		for got[first] == c.want[first] {
			first++
		}
		return &wrong{b.String(), c.buffer, c.offset + first}
	}
	return nil
}
