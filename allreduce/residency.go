package allreduce

import (
	"fmt"
	"math"
	"sync"
	"weak"

	"github.com/fenceline/fenceline/launcher"
)

// A kernel's blocks wait for their peers', so all blocks of all ranks on a device must be resident together. residency is how many SMs
// of each device the groups with direct kernels in this process have taken, as if their blocks filled one SM after the other. The hardware spreads
// them, so between groups this is a count and no proof: where a device is nearly full of blocks of several sizes, one may find no place
// until those of another group have ended.
var residency = struct {
	mu    sync.Mutex
	taken map[place]int
}{taken: map[place]int{}}

// place is one device of one runtime, which the ledger does not keep alive.
type place struct {
	rt  weak.Pointer[launcher.Runtime]
	dev int
}

func (g *Group) place(dev int) place { return place{weak.Make(g.rt), dev} }

// rooms is how many blocks of each size, in warps, a rank may have on its device at a time.
type rooms [maxThreads/32 + 1]int

// reserve finds the room of every algorithm, and takes the SMs for it. All blocks of a group that wait for each other are of one kernel and
// of one size: a call begins when the one ahead has ended, except that with dependent launch its blocks may already be there, and
// that is asked for only behind the same (see Rank.behind). So they fill SMs without leaving gaps that are too small for the last ones.
//
// When a rank has ended a call, all blocks of its peers in that call are there, or have gone: it had something of each. They need no
// room any more, they only free it. What needs room is the next call, and the one behind it where its blocks may be there while some of
// the next are not: where a kernel lets them in at its beginning, as those of small calls do, or before it has heard of all its peers' blocks. A
// large call with the right grid (heardAll) lets them in when it has, and may have all the room.
//
// Ahead of a rank's call other kernels may have to run, while the calls of all other ranks wait for that one. Whether such a kernel
// finds a place beside our blocks is not only a matter of what is free on an SM: an SM divides its memory between cache and shared
// memory anew only when it is empty, so that a kernel of one thread may have to wait for an empty one, and all that is queued behind it
// with it. So the ranks of a group that may be waiting on a device at a time, for one that is late, have fewer blocks than it has SMs: see
// leavingOne. Blocks of other groups may be on that SM too, as what they take is only counted.
//
// TestResidencyModel plays it through, with an adversary who places blocks.
func (g *Group) reserve() error {
	sharing := map[int]int{} // ranks by device
	for _, r := range g.ranks {
		sharing[r.dev]++
	}
	residency.mu.Lock()
	defer residency.mu.Unlock()
	taken := map[int]int{}
	for a := range g.rooms {
		if a := Algorithm(a); a.Direct() && g.policy.limit[a] != 0 {
			if err := g.fit(a, sharing, taken); err != nil {
				return err
			}
			continue
		}
		for warps := range g.rooms[a] {
			g.rooms[a][warps] = g.mostBlocks(Algorithm(a), 32*warps) // the local reduction waits for nobody
		}
	}
	g.reserved = taken
	for dev, sms := range taken {
		residency.taken[g.place(dev)] += sms
	}
	return nil
}

// fit finds the room of one algorithm, where so many ranks share each device, and raises what that takes of the devices' SMs.
func (g *Group) fit(a Algorithm, sharing, taken map[int]int) error {
	threads, need := maxThreads, max(1, g.cfg.Blocks)
	if g.cfg.Threads != 0 {
		threads = g.cfg.Threads
	}
	takes, err := g.measure(a, sharing)
	if err != nil {
		return err
	}
	if room := g.rooms[a][threads/32]; room/g.waiting(a) < need && room >= need { // each call can only begin when the one ahead has ended
		for _, r := range g.ranks {
			r.kits[a].dependent = false
		}
		if takes, err = g.measure(a, sharing); err != nil {
			return err
		}
	}
	if have := g.rooms[a][threads/32] / g.waiting(a); have < need {
		return &PlanError{Algorithm: g.policy.forced,
			Reason: fmt.Sprintf("%d block(s) of %d threads per rank are wanted and there is room for %d, with the groups that exist and an SM left empty",
				need, threads, have),
			Remedy: "use fewer ranks per device or fewer blocks, close other groups, or use copy"}
	}
	for dev, sms := range takes {
		taken[dev] = max(taken[dev], sms)
	}
	return nil
}

// measure finds the room of one algorithm for each size of block, and how many SMs of each device that takes at most.
func (g *Group) measure(a Algorithm, sharing map[int]int) (map[int]int, error) {
	takes := map[int]int{}
	for threads := 32; threads <= maxThreads; threads += 32 {
		if g.cfg.Threads != 0 && threads != g.cfg.Threads {
			continue
		}
		fit, perSM := g.waiting(a)*g.mostBlocks(a, threads), map[int]int{}
		for _, r := range g.ranks {
			if _, seen := perSM[r.dev]; seen {
				continue
			}
			n, err := r.kits[a].blocksPerSM(threads)
			if err != nil {
				return nil, err
			}
			perSM[r.dev] = n
			free := max(0, g.rt.Devices()[r.dev].SMs-residency.taken[g.place(r.dev)])
			fit = min(fit, n*free/sharing[r.dev], leavingOne(free, min(sharing[r.dev], len(g.ranks)-1)))
		}
		g.rooms[a][threads/32] = fit
		for dev, n := range perSM {
			if n != 0 {
				takes[dev] = max(takes[dev], (fit*sharing[dev]+n-1)/n)
			}
		}
	}
	return takes, nil
}

// leavingOne is how many blocks each of so many ranks may have on a device, so that one of its SMs is empty of them however they are placed. The
// ranks are those that can all be waiting for one more: all that the device has if that one may be on another.
func leavingOne(sms, ranks int) int {
	if ranks == 0 {
		return math.MaxInt
	}
	return max(0, sms-1) / ranks
}

// mostBlocks is the largest grid of blocks of that size that shape gives.
func (g *Group) mostBlocks(a Algorithm, threads int) int {
	if g.cfg.Blocks != 0 {
		return g.cfg.Blocks
	}
	return g.policy.mostBlocks(a, threads)
}

// waiting is how many launches of one rank may be there and wait at a time.
func (g *Group) waiting(a Algorithm) int {
	for _, r := range g.ranks {
		if k := r.kits[a]; k != nil && k.dependent {
			return 2
		}
	}
	return 1
}

// blocksPerSM is how many blocks of any of the kernels one SM of their device holds: the least of all element types.
func (k *kit) blocksPerSM(threads int) (int, error) {
	least := math.MaxInt
	for _, kernel := range k.kernels {
		n, err := kernel.MaxActiveBlocks(threads, 0)
		if err != nil {
			return 0, err
		}
		least = min(least, n)
	}
	return least, nil
}

func (g *Group) unreserve() {
	residency.mu.Lock()
	defer residency.mu.Unlock()
	for dev, n := range g.reserved {
		p := g.place(dev)
		if residency.taken[p] -= n; residency.taken[p] == 0 {
			delete(residency.taken, p)
		}
	}
	g.reserved = nil
}
