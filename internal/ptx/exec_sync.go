package ptx

import (
	"fmt"
	"math/bits"
)

// barrier is one of a block's sixteen. It counts threads: lanes arrive one by one, however their warp
// has parted.
type barrier struct {
	open    bool     // some lane has arrived since it last completed
	want    int      // threads that complete it; 0: all that have not exited
	arrived []uint32 // lanes, per warp
	all     bool     // reductions over the arrivals
	any     bool
	count   uint32
}

// barrier executes bar and barrier for the lanes of mask. Lanes that name another barrier than the first
// one does come back for it.
func (w *warp) barrier(o *op, mask uint32) *Fault {
	b := w.b
	lane := bits.TrailingZeros32(mask)
	id, want := w.r32[o.a][lane], uint32(0)
	if o.kb != kNone {
		want = w.r32[o.b][lane]
	}
	same := uint32(0)
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		if w.r32[o.a][i] == id && (o.kb == kNone || w.r32[o.b][i] == want) {
			same |= 1 << i
		}
	}
	if same != mask {
		w.split(mask&^same, w.frags[w.cur].pc)
		mask = same
	}
	if id > 15 {
		return w.fault(Trap, mask, o, 0, 0, fmt.Errorf("barrier %d: there are 16", id))
	}
	if o.kb != kNone && (want == 0 || want%32 != 0) {
		return w.fault(Trap, mask, o, 0, 0, fmt.Errorf("barrier for %d threads: the count is a multiple of 32", want))
	}
	bar := &b.bars[id]
	if !bar.open {
		if bar.arrived == nil {
			bar.arrived = make([]uint32, len(b.warps))
		}
		clear(bar.arrived)
		*bar = barrier{open: true, want: int(want), arrived: bar.arrived, all: true}
	}
	if bar.want != int(want) || bar.arrived[w.id]&mask != 0 {
		return w.fault(Trap, mask, o, 0, 0, fmt.Errorf("barrier %d is used by the same threads twice, or with different counts, before it completes", id))
	}
	bar.arrived[w.id] |= mask
	if o.kc != kNone {
		p := w.pr[o.c] & mask
		bar.all = bar.all && p == mask
		bar.any = bar.any || p != 0
		bar.count += uint32(bits.OnesCount32(p))
	}
	f := &w.frags[w.cur]
	f.pc++
	if o.sub != barArrive {
		f.state, f.bar, f.at = fragBar, uint8(id), o
	}
	b.tryBarrier(int(id))
	return nil
}

// tryBarrier completes a barrier that has all its threads.
func (b *Block) tryBarrier(id int) {
	bar := &b.bars[id]
	if !bar.open {
		return
	}
	total := 0
	for i := range b.warps {
		w, in := &b.warps[i], bar.arrived[i]
		missing := w.live &^ in
		if bar.want == 0 && missing != 0 {
			return
		}
		total += bits.OnesCount32(in)
		if in != 0 && missing == 0 {
			total += bits.OnesCount32(^(w.live | in)) // a warp counts whole, whatever the block's size
		}
	}
	if bar.want != 0 && total < bar.want {
		return
	}
	bar.open = false
	for i := range b.warps {
		w := &b.warps[i]
		for k := range w.frags {
			f := &w.frags[k]
			if f.state != fragBar || int(f.bar) != id {
				continue
			}
			f.state = fragReady
			if o := f.at; o.kd != kNone {
				w.barrierResult(o, f.mask, bar)
			}
		}
	}
}

func (w *warp) barrierResult(o *op, mask uint32, bar *barrier) {
	switch o.sub {
	case barAnd:
		w.setPred(o.d, mask, -uint32(b2i(bar.all)))
	case barOr:
		w.setPred(o.d, mask, -uint32(b2i(bar.any)))
	case barPopc:
		for m := mask; m != 0; m &= m - 1 {
			w.r32[o.d][bits.TrailingZeros32(m)] = bar.count
		}
	}
}

func (w *warp) setPred(p int32, mask, v uint32) { w.pr[p] = w.pr[p]&^mask | v&mask }

// collective brings the lanes of mask to a warp-level operation. It happens once all live lanes of the
// member mask are at one of the same kind; until then they wait.
func (w *warp) collective(o *op, mask uint32) {
	members := &w.r32[o.b]
	lane := bits.TrailingZeros32(mask)
	mem := members[lane]
	same := uint32(0)
	for m := mask; m != 0; m &= m - 1 {
		if i := bits.TrailingZeros32(m); members[i] == mem {
			same |= 1 << i
		}
	}
	if same != mask { // another group's lanes come back for theirs
		w.split(mask&^same, w.frags[w.cur].pc)
		mask = same
	}
	if need := mem & w.live; need&^mask == 0 {
		w.frags[w.cur].pc++
		w.together(o, mask, mask)
		return
	}
	f := &w.frags[w.cur]
	f.state, f.at = fragSync, o
	w.trySync()
}

// trySync lets waiting collectives happen whose members are all there.
func (w *warp) trySync() {
	for i := range w.frags {
		first := &w.frags[i]
		if first.state != fragSync {
			continue
		}
		mem := w.r32[first.at.b][bits.TrailingZeros32(first.mask)]
		partner := func(f *frag) bool {
			return f.state == fragSync && f.at.code == first.at.code && f.at.sub == first.at.sub &&
				w.r32[f.at.b][bits.TrailingZeros32(f.mask)] == mem
		}
		var all uint32
		for k := range w.frags {
			if f := &w.frags[k]; partner(f) {
				all |= f.mask
			}
		}
		if mem&w.live&^all != 0 {
			continue
		}
		w.meet(first.at, partner, all)
	}
}

// meet runs a collective for fragments that wait at it in different places. Values are gathered first,
// since one's destination may be another's source.
func (w *warp) meet(o *op, partner func(*frag) bool, all uint32) {
	var val [32]uint64
	for k := range w.frags {
		if f := &w.frags[k]; partner(f) {
			w.gather(f.at, f.mask, &val)
		}
	}
	var arrived []int
	for k := range w.frags {
		if partner(&w.frags[k]) {
			arrived = append(arrived, k)
		}
	}
	for _, k := range arrived {
		f := &w.frags[k]
		f.state = fragReady
		f.pc++
		w.scatter(f.at, f.mask, all, &val)
	}
}

// together runs a collective for one fragment.
func (w *warp) together(o *op, mask, all uint32) {
	var val [32]uint64
	w.gather(o, ^uint32(0), &val)
	w.scatter(o, mask, all, &val)
}

// gather reads the operand of the lanes of mask.
func (w *warp) gather(o *op, mask uint32, val *[32]uint64) {
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		switch o.ka {
		case k32:
			val[i] = uint64(w.r32[o.a][i])
		case k64:
			val[i] = w.r64[o.a][i]
		case kPred:
			val[i] = uint64(w.pr[o.a] >> i & 1)
		}
	}
}

// scatter computes the results of the lanes of mask; all are the lanes that take part.
func (w *warp) scatter(o *op, mask, all uint32, val *[32]uint64) {
	switch o.code {
	case opShuffle:
		w.shuffle(o, mask, val)
	case opVote:
		w.vote(o, mask, all, val)
	case opMatch:
		w.match(o, mask, all, val)
	case opReduce:
		r, first := uint64(0), true
		for m := all; m != 0; m &= m - 1 {
			v := val[bits.TrailingZeros32(m)]
			if first {
				r, first = v, false
			} else {
				r = o.fn(r, v, 0)
			}
		}
		w.fill32(o.d, mask, uint32(r))
	case opElect:
		leader := uint32(bits.TrailingZeros32(all))
		if o.kd != kNone {
			w.fill32(o.d, mask, leader)
		}
		w.setPred(o.d2, mask, 1<<leader)
	}
}

// fill32 and fill64 write one value to the lanes of mask.
func (w *warp) fill32(r int32, mask, v uint32) {
	d := &w.r32[r]
	if mask|w.ghost == fullMask {
		for i := range d {
			d[i] = v
		}
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		d[bits.TrailingZeros32(m)] = v
	}
}

func (w *warp) fill64(r int32, mask uint32, v uint64) {
	d := &w.r64[r]
	if mask|w.ghost == fullMask {
		for i := range d {
			d[i] = v
		}
		return
	}
	for m := mask; m != 0; m &= m - 1 {
		d[bits.TrailingZeros32(m)] = v
	}
}

// shuffle is shfl, with its lane arithmetic as the PTX reference gives it.
func (w *warp) shuffle(o *op, mask uint32, val *[32]uint64) {
	var out [32]uint32
	var ok uint32
	for m := mask; m != 0; m &= m - 1 {
		lane := int32(bits.TrailingZeros32(m))
		by, clamp := int32(w.r32[o.c][lane]&31), w.r32[o.e][lane]
		seg, c := int32(clamp>>8&31), int32(clamp&31)
		maxLane := lane&seg | c&^seg
		var j int32
		var in bool
		switch o.sub {
		case shflUp:
			j = lane - by
			in = j >= maxLane
		case shflDown:
			j = lane + by
			in = j <= maxLane
		case shflBfly:
			j = lane ^ by
			in = j <= maxLane
		default:
			j = lane&seg | by&^seg
			in = j <= maxLane
		}
		if !in {
			j = lane
		} else {
			ok |= 1 << lane
		}
		out[lane] = uint32(val[j&31])
	}
	if o.kd != kNone {
		d := &w.r32[o.d]
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			d[i] = out[i]
		}
	}
	if o.kd2 != kNone {
		w.setPred(o.d2, mask, ok)
	}
}

func (w *warp) vote(o *op, mask, all uint32, val *[32]uint64) {
	var yes uint32
	for m := all; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		yes |= uint32(val[i]) << i
	}
	var r bool
	switch o.sub {
	case voteAll:
		r = yes == all
	case voteAny:
		r = yes != 0
	case voteUni:
		r = yes == 0 || yes == all
	case voteBallot:
		w.fill32(o.d, mask, yes)
		return
	}
	w.setPred(o.d, mask, -uint32(b2i(r)))
}

func (w *warp) match(o *op, mask, all uint32, val *[32]uint64) {
	equal := func(v uint64) uint32 {
		var r uint32
		for m := all; m != 0; m &= m - 1 {
			if i := bits.TrailingZeros32(m); val[i] == v {
				r |= 1 << i
			}
		}
		return r
	}
	if o.sub == 0 {
		for m := mask; m != 0 && o.kd != kNone; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			w.r32[o.d][i] = equal(val[i])
		}
		return
	}
	r := equal(val[bits.TrailingZeros32(all)])
	if r != all {
		r = 0
	}
	if o.kd != kNone {
		w.fill32(o.d, mask, r)
	}
	if o.kd2 != kNone {
		w.setPred(o.d2, mask, -uint32(b2i(r != 0)))
	}
}
