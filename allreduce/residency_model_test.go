package allreduce

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/launcher"
)

// The emulator starts a kernel when the one ahead has ended, so no test on it shows what dependent launch does to the room of blocks. This is
// a model of that: ranks share a device that holds so many blocks, queue calls of two-shot wide, and an adversary decides which block is placed, and who gets
// on, next. What a block waits for is what it waits for in kernels/twoshot_wide.cu. A deadlock is a call whose blocks find no place.

// modelCall is one call of all ranks.
type modelCall struct {
	n         uint64
	blocks    int
	dependent bool
}

// modelBlock is one block of one rank in one call.
type modelBlock struct{ placed, parts, done bool }

// model is the state.
type model struct {
	world, free int
	calls       []modelCall
	rank        [][][]modelBlock // by rank, call and block
	left        [][]int          // blocks of a rank's call that are not done
	senders     [][][]modelOf    // by call and block: of whom it has parts, as offsets of ranks
	summers     [][][]modelOf    // whose sums it gathers
}

// modelOf is a block of the rank so many after this one.
type modelOf struct{ rank, block int }

func newModel(world, room int, calls []modelCall) *model {
	m := &model{world: world, free: room, calls: calls}
	for r := range world {
		m.rank, m.left = append(m.rank, nil), append(m.left, nil)
		for _, c := range calls {
			m.rank[r], m.left[r] = append(m.rank[r], make([]modelBlock, c.blocks)), append(m.left[r], c.blocks)
		}
	}
	for _, c := range calls {
		tiles, others := int(tilesOf(c.n, world)), world-1
		senders, summers := make([][]modelOf, c.blocks), make([][]modelOf, c.blocks)
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
	return m.rank[r][k][b].placed && (k == 0 || m.left[r][k-1] == 0)
}

// launched is whether blocks of a rank's call may be placed.
func (m *model) launched(r, k int) bool {
	switch {
	case k == 0 || m.left[r][k-1] == 0:
		return true
	case !m.calls[k].dependent || !m.launched(r, k-1):
		return false
	}
	for b := range m.rank[r][k-1] {
		held := late(TwoshotWide, m.calls[k-1].n, m.world)
		if was := &m.rank[r][k-1][b]; !was.done && (held && !was.parts || !held && !m.runs(r, k-1, b)) {
			return false
		}
	}
	return true
}

// step lets block b of rank r get on in call k, if it can.
func (m *model) step(r, k, b int) bool {
	x := &m.rank[r][k][b]
	switch {
	case !x.placed:
		if m.free == 0 || !m.launched(r, k) {
			return false
		}
		x.placed = true
		m.free--
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
		m.free++
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
				for _, b := range rng.Perm(m.calls[k].blocks) {
					moved = m.step(r, k, b) || moved
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
func modelCalls(rng *rand.Rand, world, room int, sizes []uint64, dependent bool) []modelCall {
	var list []modelCall
	rank, kernel := &Rank{}, &launcher.Kernel{}
	for range 4 + rng.IntN(4) {
		n := sizes[rng.IntN(len(sizes))]
		fits := room / 2
		if late(TwoshotWide, n, world) || dependent {
			fits = room
		}
		blocks := max(1, min(fits, fits-rng.IntN(3)))
		if rng.IntN(4) != 0 && !dependent { // as shape does; otherwise as a table may ask for
			blocks = heard(TwoshotWide, n, world, blocks)
		}
		behind := rank.behind(launched{kernel, blocks, 64, heardAll(TwoshotWide, n, world, blocks)}, room)
		list = append(list, modelCall{n, blocks, behind || dependent && len(list) > 0})
	}
	return list
}

func TestResidencyModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 5))
	trials := 400
	if testing.Short() {
		trials = 60
	}
	for _, world := range []int{2, 3, 4, 5, 8} {
		from := lateFrom(TwoshotWide, world)
		small, large := []uint64{64 << 10, from - 16}, []uint64{from, from + 16, 512 << 10}
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			for i := range trials {
				room := 2 + rng.IntN(9)
				calls := modelCalls(rng, world, room, append(small, large...), false)
				require.True(t, newModel(world, world*room, calls).run(rng), "trial %d: %d ranks, room %d: %+v", i, world, room, calls)
			}
			// What the rules keep out does go wrong.
			require.True(t, modelFails(rng, world, small), "small calls in all the room")
			if world > 2 {
				require.True(t, modelFails(rng, world, large), "large calls that have not heard of all")
			}
		})
	}
}

// modelFails is whether one of many sequences ends in a deadlock where all calls are dependent and have all the room.
func modelFails(rng *rand.Rand, world int, sizes []uint64) bool {
	for range 10000 {
		room := 2 + rng.IntN(9)
		if !newModel(world, world*room, modelCalls(rng, world, room, sizes, true)).run(rng) {
			return true
		}
	}
	return false
}
