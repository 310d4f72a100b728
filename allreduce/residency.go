package allreduce

import (
	"fmt"
	"sync"
	"weak"

	"github.com/fenceline/fenceline/launcher"
)

// A kernel's blocks wait for their peers', so all blocks of all ranks on a device must be resident together, those of
// other groups that may have a call in flight at the same time included. residency is how many SMs of each device the
// groups with direct kernels in this process have taken.
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

// reserve finds how many blocks of each size every rank may launch, and takes the room for them. Calls
// of a group never overlap, except that with dependent launch the next one's blocks may already be there.
func (g *Group) reserve() error {
	most := g.mostBlocks()
	if !g.direct {
		g.fit = map[int]int{}
		for threads := 32; threads <= maxThreads; threads += 32 {
			g.fit[threads] = most // the local reduction waits for nobody
		}
		return nil
	}
	residency.mu.Lock()
	defer residency.mu.Unlock()
	perSM, err := g.blocksPerSM()
	if err != nil {
		return err
	}
	sharing := map[int]int{} // resident launches by device
	for _, r := range g.ranks {
		sharing[r.dev]++
		if r.dependent() {
			sharing[r.dev]++
		}
	}
	g.fit = map[int]int{}
	for threads := 32; threads <= maxThreads; threads += 32 {
		fit := most
		for dev, n := range sharing {
			free := g.rt.Devices()[dev].SMs - residency.taken[g.place(dev)]
			fit = min(fit, perSM[threads]*free/n)
		}
		g.fit[threads] = fit
	}
	threads := maxThreads
	if g.cfg.Threads != 0 {
		threads = g.cfg.Threads
	}
	if need := max(1, g.cfg.Blocks); g.fit[threads] < need {
		return &PlanError{Algorithm: g.policy.forced,
			Reason: fmt.Sprintf("%d block(s) of %d threads per rank are wanted and %d can be resident together, with the groups that exist",
				need, threads, g.fit[threads]),
			Remedy: "use fewer ranks per device or fewer blocks, close other groups, or use copy"}
	}
	g.reserved = map[int]int{}
	for dev, n := range sharing {
		for threads, fit := range g.fit {
			if fit == 0 || g.cfg.Threads != 0 && threads != g.cfg.Threads {
				continue
			}
			blocks := n * fit
			g.reserved[dev] = max(g.reserved[dev], (blocks+perSM[threads]-1)/perSM[threads])
		}
		residency.taken[g.place(dev)] += g.reserved[dev]
	}
	return nil
}

// mostBlocks is the largest grid that shape gives.
func (g *Group) mostBlocks() int {
	if g.cfg.Blocks != 0 {
		return g.cfg.Blocks
	}
	return g.policy.mostBlocks()
}

// blocksPerSM is, by threads per block, how many blocks of any of the direct kernels one SM holds, on the device that holds
// least. The least of all, since the blocks of one call and the next, of another algorithm perhaps, may be there together.
func (g *Group) blocksPerSM() (map[int]int, error) {
	perSM := map[int]int{}
	seen := map[int]bool{}
	for _, r := range g.ranks {
		if seen[r.dev] {
			continue
		}
		seen[r.dev] = true
		for threads := 32; threads <= maxThreads; threads += 32 {
			for a, kit := range r.kits {
				if kit == nil || !Algorithm(a).Direct() {
					continue
				}
				for _, k := range kit.kernels {
					n, err := k.MaxActiveBlocks(threads, 0)
					if err != nil {
						return nil, err
					}
					if have, ok := perSM[threads]; !ok || n < have {
						perSM[threads] = n
					}
				}
			}
		}
	}
	return perSM, nil
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
