package ptx

import (
	"fmt"
	"math/bits"
)

// stepper runs launches by stepping their threads in turn over sequentially consistent memory.
type stepper struct {
	mem    Memory
	blocks []*stepBlock
	events map[EventKind]int
	putOff bool // loads get their values, as they were at the time, when these are needed
	burst  int  // events that a thread has in its turn
}

type stepBlock struct {
	threads []*Thread
	gone    []bool
	waits   []bool // at a barrier
	values  []map[uint64][]uint64
	tokens  uint64
	shared  []byte
	bars    [16]stepBar
}

type stepBar struct {
	arrived []int // thread indices
	preds   []bool
}

func newStepper(mem Memory, launches ...*Launch) (*stepper, error) {
	s := &stepper{mem: mem, events: map[EventKind]int{}, burst: 1}
	for _, l := range launches {
		for i := range l.Grid[0] * l.Grid[1] * l.Grid[2] {
			id := [3]uint32{i % l.Grid[0], i / l.Grid[0] % l.Grid[1], i / l.Grid[0] / l.Grid[1]}
			n := l.Block[0] * l.Block[1] * l.Block[2]
			b := &stepBlock{gone: make([]bool, n), waits: make([]bool, n)}
			for k := range n {
				t, err := NewThread(l, id, [3]uint32{k % l.Block[0], k / l.Block[0] % l.Block[1], k / l.Block[0] / l.Block[1]})
				if err != nil {
					return nil, err
				}
				b.threads = append(b.threads, t)
				b.values = append(b.values, map[uint64][]uint64{})
			}
			b.shared = make([]byte, b.threads[0].shared)
			s.blocks = append(s.blocks, b)
		}
	}
	return s, nil
}

func (s *stepper) run() error {
	for {
		moved, left := false, false
		for _, b := range s.blocks {
			for i := range b.threads {
				for range s.burst {
					if b.gone[i] || b.waits[i] {
						break
					}
					m, err := s.step(b, i)
					if err != nil {
						return err
					}
					if moved = moved || m; !m {
						break
					}
				}
				left = left || !b.gone[i]
			}
		}
		if !left {
			return nil
		}
		if !moved {
			return fmt.Errorf("no thread can go on")
		}
	}
}

// step takes a thread over one event, if it can go on.
func (s *stepper) step(b *stepBlock, i int) (bool, error) {
	t := b.threads[i]
	ev, err := t.Next()
	if err != nil {
		return false, err
	}
	s.events[ev.Kind]++
	switch ev.Kind {
	case Load, Store, Atomic:
		return true, s.access(b, i, ev)
	case Use:
		t.Fill(ev.Token, b.values[i][ev.Token]...)
	case Barrier:
		s.barrier(b, i, ev)
	case Collective:
		return s.collective(b, i, ev), nil
	case Exit:
		b.gone[i] = true
		for id := range b.bars {
			b.complete(id, 0)
		}
	}
	return true, nil
}

func (s *stepper) access(b *stepBlock, i int, ev *Event) error {
	t, in := b.threads[i], ev.Inst
	data := b.shared
	if ev.Space == SpaceShared {
		data = data[ev.Addr:]
	} else {
		seg, err := s.mem.Resolve(ev.Addr, in.Size*in.Elements, ev.Kind != Load)
		if err != nil {
			return err
		}
		data = seg.Data[ev.Addr-seg.Base:]
	}
	size := uint8(in.Size)
	var v, tokens [4]uint64
	if size == 16 {
		s.accessWide(b, i, ev, data)
		return nil
	}
	for k := range in.Elements {
		p := data[k*in.Size:]
		switch ev.Kind {
		case Load:
			v[k] = loadBytes(p, size)
			if s.putOff && k != 1 { // one of a vector is there at once
				b.tokens++
				tokens[k] = b.tokens
				b.values[i][b.tokens] = []uint64{v[k] | ^uint64(0)<<(8*size-1)<<1} // what is above the element does not count
			}
		case Store:
			storeBytes(p, size, ev.Values[k])
		default:
			v[k] = loadBytes(p, size)
			if x, writes := t.Apply(v[k]); writes {
				storeBytes(p, size, x)
			}
		}
	}
	switch {
	case ev.Kind == Load && s.putOff:
		t.Defer(tokens, v[:]...)
	case ev.Kind == Load, ev.Kind == Atomic && !in.Red:
		t.Load(&v)
	}
	return nil
}

// accessWide is a load or store of 16 bytes, which has one token.
func (s *stepper) accessWide(b *stepBlock, i int, ev *Event, p []byte) {
	switch {
	case ev.Kind == Store:
		storeBytes(p, 8, ev.Values[0])
		storeBytes(p[8:], 8, ev.Values[1])
	case s.putOff:
		b.tokens++
		b.values[i][b.tokens] = []uint64{loadBytes(p, 8), loadBytes(p[8:], 8)}
		b.threads[i].Defer([4]uint64{b.tokens})
	default:
		b.threads[i].Load(&[4]uint64{loadBytes(p, 8), loadBytes(p[8:], 8)})
	}
}

func (s *stepper) barrier(b *stepBlock, i int, ev *Event) {
	bar := &b.bars[ev.Barrier]
	bar.arrived = append(bar.arrived, i)
	bar.preds = append(bar.preds, ev.Pred)
	b.waits[i] = ev.Inst.Barrier != BarrierArrive
	b.complete(int(ev.Barrier), int(ev.Threads))
}

func (b *stepBlock) complete(id, want int) {
	bar := &b.bars[id]
	if len(bar.arrived) == 0 {
		return
	}
	if want == 0 {
		for i := range b.threads {
			if !b.gone[i] {
				want++
			}
		}
		if ev := b.threads[bar.arrived[0]].Event(); ev != nil && ev.Kind == Barrier && ev.Threads != 0 {
			return
		}
	}
	if len(bar.arrived) < min(want, len(b.threads)) {
		return
	}
	all, some, count := true, false, uint64(0)
	for _, p := range bar.preds {
		all, some, count = all && p, some || p, count+b2i(p)
	}
	for _, i := range bar.arrived {
		b.waits[i] = false
		switch t := b.threads[i]; t.At().Barrier {
		case BarrierAnd:
			t.BarrierResult(b2i(all))
		case BarrierOr:
			t.BarrierResult(b2i(some))
		case BarrierPopc:
			t.BarrierResult(count)
		}
	}
	*bar = stepBar{}
}

// collective happens once all members that are left have come.
func (s *stepper) collective(b *stepBlock, i int, ev *Event) bool {
	first := i &^ 31
	part := make([]*Thread, 32)
	var have uint32
	for lane := range min(32, len(b.threads)-first) {
		t := b.threads[first+lane]
		if ev.Mask>>lane&1 == 0 || b.gone[first+lane] {
			continue
		}
		other := t.Event()
		if other == nil || other.Kind != Collective || other.Inst.Code != ev.Inst.Code || other.Mask != ev.Mask {
			return false
		}
		part[lane] = t
		have |= 1 << lane
	}
	if bits.OnesCount32(have) == 0 {
		panic("a collective without its own lane")
	}
	Collect(part, b.threads[i].Exist())
	return true
}
