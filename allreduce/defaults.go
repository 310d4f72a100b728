package allreduce

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/topo"
)

// linkClass is what lies between the ranks, as far as it decides which algorithm is fastest.
type linkClass uint8

const (
	linkShared linkClass = iota // all ranks on one device
	linkNVLink                  // NVLink between every two devices
	linkPCIe                    // PCIe, and what is not known
)

func (c linkClass) String() string {
	return [...]string{"on one device", "over NVLink", "without NVLink"}[c]
}

// classify finds the class of the slowest link between any two of the devices.
func classify(m *topo.Machine, devices []int) linkClass {
	class := linkShared
	for _, i := range devices {
		for _, j := range devices {
			switch {
			case i == j:
			case levelOf(m.Pairs[i][j].Link) != LevelNVL:
				return linkPCIe
			default:
				class = linkNVLink
			}
		}
	}
	return class
}

// preference is one line of the shipped choice: for up to this many ranks, and messages up to so many bytes.
type preference struct {
	world     int
	to        uint64 // inclusive; 0: no end
	algorithm Algorithm
}

// shipped is what Auto takes where no tuning table says otherwise. The first line that covers a call, and whose algorithm
// can work, is followed: what stands below a line of wide packets is for devices that have none.
//
// On one device: measured on one H200 with 2, 4 and 8 ranks, 4 KB to 64 MB. Over NVLink: measured on two H200, 1 KB to 4 MB, and
// for more of them estimated, from the latencies there, what is faster on one device, and the bytes that each algorithm moves (one-shot
// push 2(N-1) times the message into each rank, one-shot pull N-1, two-shot push 4(N-1)/N, two-shot pull half of that; with wide
// packets two thirds of push). Over PCIe: estimated, and nobody has tried wide packets there.
var shipped = [...][]preference{
	linkShared: {
		{2, 128 << 10, OneshotPush}, {2, 1536 << 10, OneshotWide}, {2, 512 << 10, OneshotPush}, {2, 0, OneshotPull},
		{4, 76 << 10, OneshotPush}, {4, 1536 << 10, TwoshotWide}, {4, 1 << 20, TwoshotPush}, {4, 0, OneshotPull},
		{8, 19 << 10, OneshotPush}, {8, 1536 << 10, TwoshotWide},
		{16, 8 << 10, OneshotPush}, {16, 512 << 10, TwoshotPush}, {16, 0, TwoshotPull},
	},
	linkNVLink: {
		{2, 32 << 10, OneshotPush}, {2, 1536 << 10, OneshotWide}, {2, 512 << 10, OneshotPush}, {2, 0, OneshotPull},
		{4, 64 << 10, OneshotPush}, {8, 32 << 10, OneshotPush}, {8, 64 << 10, TwoshotPush}, {8, 1536 << 10, TwoshotWide},
		{16, 8 << 10, OneshotPush}, {16, 1 << 20, TwoshotPush}, {16, 0, TwoshotPull},
	},
	linkPCIe: {
		{2, 64 << 10, OneshotPush}, {2, 0, OneshotPull}, {4, 16 << 10, OneshotPush}, {4, 64 << 10, OneshotPull},
		{16, 4 << 10, OneshotPush}, {16, 16 << 10, OneshotPull}, {16, 0, TwoshotPull},
	},
}

// pushRoom is the largest message for which a push kernel's boxes have room, unless Config.PushBytes says otherwise. A rank's box
// takes 4×N times that for one-shot, so that it is 8 MiB / N, and 4 times that for two-shot, 4 MiB. With wide packets it takes two
// thirds, so that two-shot has half as much room again in the same memory; one-shot, in which two ranks gain by it, has three times the room.
// Eight ranks on one H200 do 2 MiB faster in two launches with wide packets than in one: the boxes of one still fit its cache.
func pushRoom(a Algorithm, world int) uint64 {
	n := uint64(world)
	switch a {
	case TwoshotPush:
		return 1 << 20
	case TwoshotWide:
		return 1536 << 10
	case OneshotWide:
		return min(1536<<10, 6<<20/(n*n)/16*16)
	}
	return min(512<<10, 2<<20/(n*n)/16*16)
}

// policy is which algorithm each call takes: a pure function of the call, the same on all ranks.
type policy struct {
	world   int
	class   linkClass
	forced  Algorithm // not Auto: what every call takes
	rung    string    // why the ladder led here, or who forced
	allowed [numAlgorithms]bool
	last    Algorithm             // Copy or Host where no direct kernel can run, otherwise Auto
	refused [numAlgorithms]string // why the others are not
	table   Table
	push    uint64                // Config.PushBytes
	most    uint64                // Config.MaxBytes
	limit   [numAlgorithms]uint64 // the largest launch; 0: never taken
}

// room is the largest message that a launch of push can take.
func (p *policy) room(a Algorithm) uint64 {
	if p.push != 0 {
		return p.push
	}
	return pushRoom(a, p.world)
}

// by is where a choice came from.
type by struct {
	rule  *Rule       // the tuning table
	line  *preference // the shipped choice
	other bool        // another line could have come instead
	over  Algorithm   // a rule for it was passed over, since it cannot be used; Auto: none was
}

// ncclBits is part of the reason of every plan that takes NCCL.
const ncclBits = "; NCCL does not sum in rank order, so bits can differ from the reference"

// captures is whether a call by a may be captured. Copies and kernels that wait for each other do not mix in a graph; NCCL's
// kernels are such, and each rank's are in the graph of that rank.
func (p *policy) captures(a Algorithm) bool {
	if p.last == Auto {
		return a.Direct() || a == NCCL
	}
	return a != NCCL
}

// pick is the algorithm of a call, by a tuning table where it has a rule. captured: calls through copy engines and kernels that wait
// for each other do not mix in a graph, so only direct kernels come in question where there are any.
func (p *policy) pick(t Table, bytes uint64, dt DType, captured bool) (Algorithm, by) {
	if p.forced != Auto {
		return p.forced, by{}
	}
	var over Algorithm
	for i := range t {
		r := &t[i]
		switch {
		case !r.matches(p.world, bytes, dt):
		case p.allowed[r.Algorithm] && p.limit[r.Algorithm] != 0 && (!captured || p.captures(r.Algorithm)):
			return r.Algorithm, by{rule: r, over: over}
		case !p.allowed[r.Algorithm] && over == Auto:
			over = r.Algorithm
		}
	}
	switch {
	case p.last != Auto:
		return p.last, by{over: over}
	case !p.allowed[OneshotPull]:
		return p.pushed(bytes), by{over: over}
	case p.world == 1:
		return OneshotPull, by{over: over}
	}
	var passed bool
	lines := shipped[p.class]
	for i := range lines {
		l := &lines[i]
		switch {
		case p.world > l.world || !p.allowed[l.algorithm]:
		case l.to != 0 && bytes > l.to || l.algorithm.pushes() && bytes > p.room(l.algorithm):
			passed = true
		default:
			return l.algorithm, by{line: l, other: passed || l.to != 0, over: over}
		}
	}
	return OneshotPull, by{over: over}
}

// pushed is the choice where peers can only be written to: two-shot moves less, and its boxes hold more.
func (p *policy) pushed(bytes uint64) Algorithm {
	if p.allowed[TwoshotPush] && p.world > 2 && bytes > p.room(OneshotPush) {
		return TwoshotPush
	}
	return OneshotPush
}

// bound finds the largest launch of each algorithm: no more memory is allocated than the calls that may take it need.
func (p *policy) bound() {
	widen := func(a Algorithm, to uint64) {
		if a == NCCL { // which takes any size, with no memory of ours
			p.limit[a] = anySize
			return
		}
		most := p.most
		switch {
		case a.pushes():
			most = min(most, p.room(a)/16*16)
		case !a.Direct():
			most = min(most, gatherMost(p.world))
		}
		if to != 0 {
			most = min(most, (min(to, p.most)+15)/16*16) // both may be anything: no sum wraps
		}
		p.limit[a] = max(p.limit[a], most)
	}
	if p.forced != Auto {
		widen(p.forced, 0)
		return
	}
	for i := range p.table {
		if r := &p.table[i]; p.allowed[r.Algorithm] && (r.World == 0 || r.World == p.world) {
			widen(r.Algorithm, r.To)
		}
	}
	if p.last != Auto {
		widen(p.last, 0)
		return
	}
	// The choice changes only at these sizes, and the next byte.
	sizes := []uint64{0, p.room(OneshotPush), p.room(TwoshotPush), p.room(OneshotWide), p.room(TwoshotWide), p.most}
	for _, l := range shipped[p.class] {
		sizes = append(sizes, l.to)
	}
	slices.Sort(sizes)
	for i, n := range sizes {
		a, _ := p.pick(nil, n, F32, false)
		widen(a, max(n, 16))
		to := p.most
		if i+1 < len(sizes) {
			to = sizes[i+1]
		}
		a, _ = p.pick(nil, n+1, F32, false)
		widen(a, max(to, 16))
	}
	a, _ := p.pick(nil, 1<<62, F32, false)
	widen(a, 0)
}

// mostBlocks is how many blocks of so many threads a launch by this algorithm gets room for. A late one may have that of two.
func (p *policy) mostBlocks(a Algorithm, threads int) int {
	most := mostBlocks(a, workOf(a, p.limit[a], p.world), p.world)
	if a.wide() && threads > wideThreads { // whole SMs each, of which half of a device with one rank are left for another group
		most = min(most, 32)
	}
	for i := range p.table {
		if r := &p.table[i]; r.Algorithm == a {
			most = max(most, r.Blocks)
		}
	}
	return most
}

// anySize is a limit that no message reaches.
const anySize = 1 << 62

// withoutNCCL is the policy where NCCL did not start.
func (p policy) withoutNCCL(err error) *policy {
	p.limit = [numAlgorithms]uint64{}
	p.allowed[NCCL], p.refused[NCCL] = false, err.Error()
	p.bound()
	return &p
}

// why is the reason of a choice, in words.
func (p *policy) why(bytes uint64, dt DType, b by) string {
	text := p.because(bytes, dt, b)
	if b.over != Auto && !strings.Contains(text, p.refused[b.over]) {
		text += fmt.Sprintf("; a rule for %v is passed over, for %s", b.over, p.refused[b.over])
	}
	return text
}

func (p *policy) because(bytes uint64, dt DType, b by) string {
	switch {
	case b.rule != nil:
		text := fmt.Sprintf("the tuning table prefers it for %d bytes of %v on %d ranks", bytes, dt, p.world)
		if b.rule.Algorithm == NCCL {
			text += ncclBits
		}
		return text
	case b.line != nil && b.other && b.line.to == 0:
		return fmt.Sprintf("%s; the default for large messages of %d ranks %v", p.rung, p.world, p.class)
	case b.line != nil && b.other:
		return fmt.Sprintf("%s; the default up to %d bytes of %d ranks %v", p.rung, b.line.to, p.world, p.class)
	}
	return p.rung
}

// grid is the shape that a table prefers; 0 is by size.
type grid struct{ blocks, threads int }

// grid is the one of the rule that decided, if any did.
func (b by) grid() grid {
	if b.rule == nil {
		return grid{}
	}
	return grid{b.rule.Blocks, b.rule.Threads}
}

// plan is what a call does by a table, and why.
func (p *policy) plan(t Table, bytes uint64, dt DType, captured bool, shape func(a Algorithm, n uint64, want grid) (blocks, threads int)) Plan {
	a, b := p.pick(t, bytes, dt, captured)
	pieces, largest := p.launches(a, bytes)
	plan := Plan{Algorithm: a, Reason: p.why(bytes, dt, b), Pieces: pieces}
	if a != NCCL { // whose grids are its own
		plan.Blocks, plan.Threads = shape(a, largest, b.grid())
	}
	return plan
}

// launches is in how many pieces a message goes, and how many bytes the largest launch is for.
func (p *policy) launches(a Algorithm, bytes uint64) (pieces, largest uint64) {
	most := max(p.limit[a], 16)
	switch {
	case a.Direct() || a == NCCL:
		piece := min(bytes, pieceOf(bytes, most))
		return piecesOf(bytes, max(1, piece)), piece
	case bytes <= wholeRoom(most, p.world):
		return 1, bytes
	}
	c := chunkingOf(bytes, most, p.world)
	return c.pieces(), c.chunk
}
