package allreduce

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/launcher"
)

// The emulator starts a kernel when the one ahead has ended, so no test on it shows what dependent launch does to the room of blocks. This is
// a model of that: ranks share a device of SMs that hold two blocks each, queue calls of two-shot, and an adversary decides which block is placed
// where, and who gets on, next. What a block waits for is what it waits for in kernels/twoshot_wide.cu and twoshot_pull.cu. Ahead of some calls a foreign
// kernel must run, which needs an empty SM. A deadlock is a call whose blocks, or a foreign kernel, find no place.

// modelCall is one call of all ranks.
type modelCall struct {
	n         uint64
	blocks    int
	dependent bool
	foreign   map[int]bool // ranks on whose streams a foreign kernel comes first
}

// modelBlock is one block of one rank in one call, and the SM that it is on, from 1 on.
type modelBlock struct {
	on          int
	parts, done bool
}

// model is the state.
type model struct {
	alg     Algorithm
	world   int
	sms     []int // blocks on each
	calls   []modelCall
	rank    [][][]modelBlock // by rank, call and block
	left    [][]int          // blocks of a rank's call that are not done
	ran     [][]bool         // the foreign kernel ahead of a rank's call
	senders [][][]modelOf    // by call and block: of whom it has parts or flags, as offsets of ranks
	summers [][][]modelOf    // whose sums it gathers
}

// modelOf is a block of the rank so many after this one.
type modelOf struct{ rank, block int }

func newModel(a Algorithm, world, sms int, calls []modelCall) *model {
	m := &model{alg: a, world: world, sms: make([]int, sms), calls: calls}
	for r := range world {
		m.rank, m.left, m.ran = append(m.rank, nil), append(m.left, nil), append(m.ran, make([]bool, len(calls)))
		for _, c := range calls {
			m.rank[r], m.left[r] = append(m.rank[r], make([]modelBlock, c.blocks)), append(m.left[r], c.blocks)
		}
	}
	for _, c := range calls {
		senders, summers := make([][]modelOf, c.blocks), make([][]modelOf, c.blocks)
		if a.pulls() {
			for b := range c.blocks {
				for k := 1; k < world; k++ {
					senders[b] = append(senders[b], modelOf{k, b})
				}
			}
			m.senders, m.summers = append(m.senders, senders), append(m.summers, senders)
			continue
		}
		tiles, others := int(tilesOf(c.n, world)), world-1
		for t := range tiles {
			for q := range widePackets { // the tile's packet q is summed, of what every other rank sent of this tile
				for k := 1; k < world; k++ { // the rank k after this one has it as peer world-k
					b := (t*widePackets + q) % c.blocks
					senders[b] = append(senders[b], modelOf{k, (t*others + world - k - 1) % c.blocks})
				}
			}
			for k := 1; k < world; k++ { // share t*others+k-1: this tile's sums of peer k
				b := (t*others + k - 1) % c.blocks
				for q := range widePackets {
					summers[b] = append(summers[b], modelOf{k, (t*widePackets + q) % c.blocks})
				}
			}
		}
		m.senders, m.summers = append(m.senders, senders), append(m.summers, summers)
	}
	return m
}

// runs is whether a block is there and its rank's call before has ended: then it sends.
func (m *model) runs(r, k, b int) bool {
	return m.rank[r][k][b].on != 0 && m.ended(r, k-1)
}

// ended is whether a rank's call has.
func (m *model) ended(r, k int) bool { return k < 0 || m.left[r][k] == 0 }

// launched is whether blocks of a rank's call may be placed.
func (m *model) launched(r, k int) bool {
	switch {
	case m.calls[k].foreign[r]:
		return m.ran[r][k]
	case m.ended(r, k-1):
		return true
	case !m.calls[k].dependent || !m.launched(r, k-1):
		return false
	}
	for b := range m.rank[r][k-1] {
		held := late(m.alg, m.calls[k-1].n, m.world)
		if was := &m.rank[r][k-1][b]; !was.done && (held && !was.parts || !held && !m.runs(r, k-1, b)) {
			return false
		}
	}
	return true
}

// foreign runs the kernel ahead of a rank's call, if it can.
func (m *model) foreign(r, k int) bool {
	if !m.calls[k].foreign[r] || m.ran[r][k] || !m.ended(r, k-1) || !slices.Contains(m.sms, 0) {
		return false
	}
	m.ran[r][k] = true
	return true
}

// place is an SM with room for one more block, from 1 on: mostly one that has fewest, as devices do. 0: there is none.
func (m *model) place(rng *rand.Rand) int {
	best := 0
	for _, i := range rng.Perm(len(m.sms)) {
		if m.sms[i] < 2 && (best == 0 || m.sms[i] < m.sms[best-1] && rng.IntN(16) != 0) {
			best = i + 1
		}
	}
	return best
}

// step lets block b of rank r get on in call k, if it can.
func (m *model) step(rng *rand.Rand, r, k, b int) bool {
	x := &m.rank[r][k][b]
	switch {
	case x.on == 0:
		if m.launched(r, k) {
			x.on = m.place(rng)
		}
		if x.on == 0 {
			return false
		}
		m.sms[x.on-1]++
	case x.done || !m.runs(r, k, b):
		return false
	case !x.parts:
		for _, s := range m.senders[k][b] {
			if peer := (r + s.rank) % m.world; !m.runs(peer, k, s.block) && !m.rank[peer][k][s.block].done {
				return false
			}
		}
		x.parts = true
	default:
		for _, s := range m.summers[k][b] {
			if !m.rank[(r+s.rank)%m.world][k][s.block].parts {
				return false
			}
		}
		x.done = true
		m.sms[x.on-1]--
		m.left[r][k]--
	}
	return true
}

// run is whether all calls end. The adversary favours one rank, and later calls before earlier ones, more or less.
func (m *model) run(rng *rand.Rand) bool {
	favoured, order := rng.IntN(m.world), rng.IntN(3)
	for {
		moved, all := false, true
		for i := range m.world {
			r := i
			if order != 0 {
				r = (favoured + i) % m.world
			}
			for j := range m.calls {
				k := j
				if order == 2 {
					k = len(m.calls) - 1 - j
				}
				if m.left[r][k] == 0 {
					continue
				}
				all = false
				moved = m.foreign(r, k) || moved
				for _, b := range rng.Perm(m.calls[k].blocks) {
					moved = m.step(rng, r, k, b) || moved
				}
			}
			if moved && order != 0 && rng.IntN(4) != 0 {
				break // the favoured rank goes on alone
			}
		}
		if all || !moved {
			return all
		}
	}
}

// modelCalls is a sequence of calls as a group would launch them in that room of each rank: with all of `dependent`, or as Rank.behind says.
func modelCalls(rng *rand.Rand, a Algorithm, world, room int, sizes []uint64, dependent, foreign bool) []modelCall {
	var list []modelCall
	rank, kernel := &Rank{}, &launcher.Kernel{}
	for range 4 + rng.IntN(4) {
		n := sizes[rng.IntN(len(sizes))]
		fits := room / 2
		if late(a, n, world) || dependent {
			fits = room
		}
		blocks := max(1, min(fits, fits-rng.IntN(3)))
		if rng.IntN(4) != 0 && !dependent { // as shape does; otherwise as a table may ask for
			blocks = heard(a, n, world, blocks)
		}
		behind := rank.behind(launched{kernel, blocks, 64, heardAll(a, n, world, blocks)}, room)
		c := modelCall{n, blocks, behind || dependent && len(list) > 0, map[int]bool{}}
		for r := range world {
			c.foreign[r] = foreign && rng.IntN(3) == 0
		}
		list = append(list, c)
	}
	return list
}

func TestResidencyModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 5))
	trials := 400
	if testing.Short() {
		trials = 60
	}
	for _, a := range []Algorithm{TwoshotWide, TwoshotPull} {
		for _, world := range []int{2, 3, 4, 5, 8} {
			from := lateFrom(a, world)
			small, large := []uint64{64 << 10, from - 64}, []uint64{from, from + 16, from + 128<<10}
			t.Run(fmt.Sprintf("%v/%d", a, world), func(t *testing.T) {
				for i := range trials {
					room := 2 + rng.IntN(9)
					sms := max((world*room+1)/2, room*(world-1)+1)
					room = min(2*sms/world, leavingOne(sms, world-1))
					calls := modelCalls(rng, a, world, room, append(small, large...), false, true)
					require.True(t, newModel(a, world, sms, calls).run(rng), "trial %d: %d ranks, %d SMs, room %d: %+v", i, world, sms, room, calls)
				}
				// What the rules keep out does go wrong.
				require.True(t, modelFails(rng, a, world, small, true, false), "small calls in all the room")
				if a == TwoshotWide && world > 2 {
					require.True(t, modelFails(rng, a, world, large, true, false), "large calls that have not heard of all; pull always has")
				}
				require.True(t, modelFails(rng, a, world, append(small, large...), false, true), "no empty SM for a foreign kernel")
			})
		}
	}
}

// modelFails is whether one of many sequences ends in a deadlock where the blocks of all ranks may fill the device, all calls are dependent, or
// there are foreign kernels.
func modelFails(rng *rand.Rand, a Algorithm, world int, sizes []uint64, dependent, foreign bool) bool {
	for range 10000 {
		room := 2 + rng.IntN(9)
		sms := (world*room + 1) / 2
		if !newModel(a, world, sms, modelCalls(rng, a, world, room, sizes, dependent, foreign)).run(rng) {
			return true
		}
	}
	return false
}
