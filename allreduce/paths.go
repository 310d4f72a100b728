package allreduce

import (
	"fmt"
	"slices"
	"sync"

	"github.com/fenceline/fenceline/topo"
)

// A pair over which reading fails and writing works serves push kernels while peer access is on, and copies, which the
// driver then takes through host memory, while it is off. paths is which groups of this process rely on either.
var paths = struct {
	mu    sync.Mutex
	users map[path]int // above 0: groups that push over it; below: groups that copy around it
}{users: map[path]int{}}

// path is one direction of two devices.
type path struct {
	from, to place
}

// claimPaths opens the pairs that the group's kernels only write over, and closes those that its copies must not take: an
// earlier user of the runtime may have left them either way. The error is a *PlanError where another group needs the opposite.
func (g *Group) claimPaths(s *selector) error {
	step := 0
	switch limit := &g.policy.limit; {
	case limit[Copy] != 0:
		step = -1
	case slices.ContainsFunc(Algorithms(), func(a Algorithm) bool { return a.pushes() && limit[a] != 0 }):
		step = 1
	default:
		return nil
	}
	paths.mu.Lock()
	defer paths.mu.Unlock()
	for _, i := range s.devices {
		for _, j := range s.devices {
			if i == j || disproved(i, j, "read", s.found(i, j).Read) == "" && s.claimsRead(i, j) == topo.Yes || s.m.Pairs[i][j].Access != topo.Yes {
				continue
			}
			if err := g.claimPath(i, j, step); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *Group) claimPath(i, j, step int) error {
	p := path{g.place(i), g.place(j)}
	refuse := func(a Algorithm, format string, args ...any) error {
		return &PlanError{Algorithm: a, Reason: fmt.Sprintf(format, args...), Remedy: "close the other group, or use host"}
	}
	switch taken := paths.users[p] * step; {
	case taken < 0 && step < 0:
		return refuse(Copy, "device %d cannot read the memory of device %d, and copies would do so while another group writes to it", i, j)
	case taken < 0:
		return refuse(g.policy.forced, "device %d cannot read the memory of device %d, and another group's copies would do so if this one could write to it", i, j)
	}
	if step < 0 {
		if err := g.rt.DisablePeer(i, j); err != nil {
			return fmt.Errorf("keep copies off a path that failed its probe: %w", err)
		}
	} else if err := g.rt.EnablePeer(i, j); err != nil {
		return refuse(g.policy.forced, "device %d claims access to device %d, which could not be enabled: %v", i, j, err)
	}
	paths.users[p] += step
	g.claimed = append(g.claimed, p)
	return nil
}

func (g *Group) leavePaths() {
	paths.mu.Lock()
	defer paths.mu.Unlock()
	for _, p := range g.claimed {
		if paths.users[p] < 0 {
			paths.users[p]++
		} else {
			paths.users[p]--
		}
		if paths.users[p] == 0 {
			delete(paths.users, p)
		}
	}
	g.claimed = nil
}
