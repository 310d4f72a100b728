package ptx

import (
	"container/heap"
	"math/bits"
	"slices"
)

const (
	maxLiveWords  = 2 << 20 // size of the liveness sets; beyond it registers are not shared
	maxLivePasses = 64
)

// interval is where a virtual register is live: from the first to the last place, holes included.
type interval struct {
	from, to int32 // in operation numbers
	kind     kind
	reg      int32 // physical
}

// allocate maps virtual registers to few physical vectors. What holds for one thread's path through the
// code holds for every lane, since operations write active lanes only. A destination never shares
// with a source of the same operation, so vectors may be written while they are being read.
func allocate(b *builder) {
	if b.keep {
		place(b, func(r int32, _ kind) int32 { return r }, b.n)
		return
	}
	offset := [4]int32{}
	total := int32(0)
	for k := range b.n {
		offset[k] = total
		total += b.n[k]
	}
	dense := make([]int32, total) // 1 + dense number, 0 when the register never occurs
	var live []interval
	for i := range b.ops {
		b.ops[i].each(func(r *int32, k kind, _ bool) {
			if *r >= constBase {
				return
			}
			v := offset[k] + *r
			if dense[v] == 0 {
				live = append(live, interval{from: int32(i), to: int32(i), kind: k})
				dense[v] = int32(len(live))
			}
			live[dense[v]-1].to = int32(i)
		})
	}
	number := func(r int32, k kind) int32 { return dense[offset[k]+r] - 1 }
	if !extend(b, live, number) {
		for i := range live {
			live[i].from, live[i].to = 0, int32(len(b.ops))
		}
	}
	n := assign(live)
	place(b, func(r int32, k kind) int32 { return live[number(r, k)].reg }, n)
}

// place puts physical registers in place of virtual ones, n of each kind, and constants behind them.
func place(b *builder, physical func(r int32, k kind) int32, n [4]int32) {
	for i := range b.ops {
		b.ops[i].each(func(r *int32, k kind, _ bool) {
			if *r >= constBase {
				*r = n[k] + *r - constBase
			} else {
				*r = physical(*r, k)
			}
		})
	}
	b.k.n, b.k.consts = n, b.consts
	b.k.Registers = int(n[k32] + 2*n[k64])
}

// extend widens the intervals by what lives across blocks. It gives up on code of extreme size.
func extend(b *builder, live []interval, number func(int32, kind) int32) bool {
	words := (len(live) + 63) / 64
	if words*len(b.flow) > maxLiveWords {
		return false
	}
	use := make([]uint64, words*len(b.flow))
	def := make([]uint64, words*len(b.flow))
	in := make([]uint64, words*len(b.flow))
	set := func(s []uint64, block int, v int32) { s[block*words+int(v>>6)] |= 1 << (v & 63) }
	isSet := func(s []uint64, block int, v int32) bool { return s[block*words+int(v>>6)]>>(v&63)&1 == 1 }
	for n, fb := range b.flow {
		for i := fb.from; i < fb.to; i++ {
			o := &b.ops[i]
			o.each(func(r *int32, k kind, isDef bool) {
				if *r >= constBase {
					return
				}
				v := number(*r, k)
				switch {
				case !isDef && !isSet(def, n, v):
					set(use, n, v)
				case isDef && o.guard == noReg: // a guarded write leaves the old value in some lanes
					set(def, n, v)
				case isDef && !isSet(def, n, v):
					set(use, n, v)
				}
			})
		}
	}
	copy(in, use)
	out := make([]uint64, words)
	for pass, changed := 0, true; changed; pass++ {
		if pass == maxLivePasses {
			return false
		}
		changed = false
		for n := len(b.flow) - 1; n >= 0; n-- {
			union(out, b.flow[n].succs, in, words)
			row := in[n*words : (n+1)*words]
			for w := range row {
				if v := row[w] | out[w]&^def[n*words+w]; v != row[w] {
					row[w], changed = v, true
				}
			}
		}
	}
	grow := func(row []uint64, at int32) {
		for w, bitsOf := range row {
			for ; bitsOf != 0; bitsOf &= bitsOf - 1 {
				iv := &live[w*64+bits.TrailingZeros64(bitsOf)]
				iv.from, iv.to = min(iv.from, at), max(iv.to, at)
			}
		}
	}
	for n, fb := range b.flow {
		grow(in[n*words:(n+1)*words], fb.from)
		union(out, fb.succs, in, words)
		grow(out, fb.to-1)
	}
	return true
}

func union(out []uint64, succs []int32, in []uint64, words int) {
	clear(out)
	for _, s := range succs {
		for w, v := range in[int(s)*words : (int(s)+1)*words] {
			out[w] |= v
		}
	}
}

// ends is a heap of live intervals by their end.
type ends []*interval

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].to < e[j].to }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(*interval)) }
func (e *ends) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// assign is linear scan: it returns how many registers of each kind are needed.
func assign(live []interval) [4]int32 {
	order := make([]*interval, len(live))
	for i := range live {
		order[i] = &live[i]
	}
	slices.SortStableFunc(order, func(x, y *interval) int { return int(x.from) - int(y.from) })
	var n [4]int32
	var free [4][]int32
	var active [4]ends
	for _, iv := range order {
		k := iv.kind
		for len(active[k]) > 0 && active[k][0].to < iv.from {
			free[k] = append(free[k], heap.Pop(&active[k]).(*interval).reg)
		}
		if f := free[k]; len(f) > 0 {
			iv.reg, free[k] = f[len(f)-1], f[:len(f)-1]
		} else {
			iv.reg = n[k]
			n[k]++
		}
		heap.Push(&active[k], iv)
	}
	return n
}
