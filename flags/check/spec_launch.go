package check

import (
	"fmt"

	"github.com/fenceline/fenceline/internal/ptx"
)

// specValue is a value in the parameter buffer.
type specValue struct {
	offset int
	typ    *elemType
	value  func(address func(int) uint64) int64
}

// launch adds one rank's launch.
func (b *specBuild) launch(s *specStep, rank int) {
	k := b.entry(s)
	e := b.env()
	e.rank, e.call, e.known = int64(rank), b.calls[rank], knowRank|knowCall
	b.calls[rank]++
	t := Task{Device: rank % b.devices, Name: fmt.Sprintf("%s call %d", s.entry, e.call), Kernel: k, Globals: b.global[rank%b.devices], Dependent: s.dependent}
	if b.devices < b.world {
		t.Name += fmt.Sprintf(" rank %d", rank)
	}
	t.Grid, t.Block = b.shape(s, "grid", s.grid, e, 65535), b.shape(s, "block", s.block, e, maxSpecThreads)
	threads := t.Block[0] * t.Block[1] * t.Block[2]
	if limit := k.Sig.MaxThreads; threads > maxSpecThreads || limit != 0 && threads > limit {
		b.fail(s.at, "a block of %d threads: %s takes at most %d", threads, s.entry, max(limit, min(limit-1, maxSpecThreads)))
	}
	launched := int64(threads)
	for _, n := range t.Grid {
		if launched *= int64(n); launched > mostThreads { // at most 2^16 times 2^16
			b.fail(s.at, "a grid of %d x %d x %d blocks of %d threads: use at most %d threads in all", t.Grid[0], t.Grid[1], t.Grid[2], threads, mostThreads)
		}
	}
	if b.threads += int(launched); b.threads > maxSpecLaunched {
		b.fail(s.at, "the launches so far have more than %d threads together: make them fewer or smaller", maxSpecLaunched)
	}
	number := func(x expr, what string, most int64) int64 {
		if x == nil {
			return 0
		}
		v := x(e)
		if v < 0 || v > most {
			b.fail(s.at, "%s %d: use 0 to %d", what, v, most)
		}
		return v
	}
	t.Shared = int(number(s.shared, "shared", 1<<18))
	t.Resident = int(number(s.resident, "resident", 1<<20))
	stream := number(s.stream, "stream", streamsEach-1)
	values := b.values(s, k, e)
	size := k.Sig.ParamBytes
	t.Params = func(address func(int) uint64) []byte {
		p := make([]byte, size)
		for _, v := range values {
			v.typ.put(p[v.offset:], v.typ.number(v.value(address)))
		}
		return p
	}
	t.Params(func(int) uint64 { return 0 }) // what is wrong with a value shows now
	b.task(t, rank, stream)
}

func (b *specBuild) shape(s *specStep, what string, x [3]expr, e *env, most int64) (shape [3]uint32) {
	for i := range x {
		v := x[i](e)
		if v < 1 || v > most {
			b.fail(s.at, "%s %d: use 1 to %d", what, v, most)
		}
		shape[i] = uint32(v)
	}
	return shape
}

// values places the arguments in the parameter buffer. Those of the launch come over those of all.
func (b *specBuild) values(s *specStep, k *ptx.Kernel, e *env) []specValue {
	var list []specValue
	given := make([]bool, k.Sig.ParamBytes)
	for _, a := range append(append([]*specArg{}, b.args...), s.args...) {
		offset, room := b.offset(a, s, k, e)
		n := 1
		if a.peers {
			n = b.world
		}
		if n*a.typ.size > room {
			b.fail(a.at, "%d bytes do not fit at %d of the parameters of %s: there are %d", n*a.typ.size, offset, s.entry, room)
		}
		for peer := range n {
			at := offset + peer*a.typ.size
			list = append(list, specValue{at, a.typ, b.value(a, *e, int64(peer))})
			for i := range a.typ.size {
				given[at+i] = true
			}
		}
	}
	for i, p := range k.Sig.Params {
		some := p.Size == 0
		for _, g := range given[p.Offset : p.Offset+p.Size] {
			some = some || g
		}
		if !some {
			b.fail(s.at, "parameter %d of %s (%s, at %d) has no value: add `arg %d …`", i, s.entry, p.Type, p.Offset, i)
		}
	}
	return list
}

// offset is where an argument goes, and how many bytes there are.
func (b *specBuild) offset(a *specArg, s *specStep, k *ptx.Kernel, e *env) (offset, room int) {
	params := k.Sig.Params
	switch {
	case a.number < 0:
		at := a.offset(e)
		if at < 0 || at >= int64(k.Sig.ParamBytes) {
			b.fail(a.at, "%d is outside of the parameters of %s, which have %d bytes", at, s.entry, k.Sig.ParamBytes)
		}
		return int(at), k.Sig.ParamBytes - int(at)
	case a.number >= len(params):
		b.fail(a.at, "%s has %d parameters, counted from 0: there is no %d", s.entry, len(params), a.number)
	}
	p := params[a.number]
	if !p.Array && !a.peers && p.Size != a.typ.size {
		b.fail(a.at, "parameter %d of %s is %s, of %d bytes, and %s has %d: give it a type of its size", a.number, s.entry, p.Type, p.Size, a.typ.name, a.typ.size)
	}
	return p.Offset, p.Size
}

// value is an argument's value once addresses are known.
func (b *specBuild) value(a *specArg, e env, peer int64) func(func(int) uint64) int64 {
	if a.peers {
		e.peer, e.known = peer, e.known|knowPeer
	}
	return func(address func(int) uint64) int64 {
		at := e
		at.address = func(v *specBuffer, rank, call int64, where place) uint64 {
			return address(b.find(v, rank, call, where))
		}
		return a.value(&at)
	}
}
