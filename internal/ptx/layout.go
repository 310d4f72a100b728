package ptx

// flowBlock is a basic block: ops[from:to], and where it goes.
type flowBlock struct {
	from, to int32
	succs    []int32 // the fallthrough last
	falls    bool    // the last of succs is the fallthrough
}

const (
	maxEdges   = 4 << 20
	maxRegions = 64 // nesting of loops that layout orders
)

// layout puts the blocks in an order in which every block comes after all that lead to it, loops
// in one piece before what follows them, and drops what cannot be reached. A warp whose threads have
// parted runs those furthest behind first (see warp.run): in this order that makes them meet again at
// the earliest place they can, which for structured code is the immediate post-dominator.
func layout(b *builder) {
	blocks := splitBlocks(b)
	order := orderBlocks(blocks)
	place := make([]int32, len(blocks)) // new op index of each block
	next := int32(0)
	for i, id := range order {
		fb := &blocks[id]
		place[id] = next
		next += fb.to - fb.from
		if fb.falls && (i+1 == len(order) || order[i+1] != fb.succs[len(fb.succs)-1]) {
			next++
		}
	}
	blockAt := make(map[int32]int32, len(blocks))
	for i := range blocks {
		blockAt[blocks[i].from] = int32(i)
	}
	target := func(label int32) int32 { return place[blockAt[b.labels[label]]] }
	ops := make([]op, 0, next)
	flow := make([]flowBlock, 0, len(order))
	index := make([]int32, len(blocks))
	for i, id := range order {
		fb := &blocks[id]
		index[id] = int32(i)
		from := int32(len(ops))
		ops = append(ops, b.ops[fb.from:fb.to]...)
		if last := &ops[len(ops)-1]; last.code == opBranch {
			last.target = target(last.target)
		}
		if fb.falls {
			if to := fb.succs[len(fb.succs)-1]; i+1 == len(order) || order[i+1] != to {
				ops = append(ops, op{code: opJump, guard: noReg, target: place[to], stmt: ops[len(ops)-1].stmt})
			}
		}
		flow = append(flow, flowBlock{from: from, to: int32(len(ops)), succs: fb.succs})
	}
	for i := range flow {
		succs := make([]int32, len(flow[i].succs))
		for k, s := range flow[i].succs {
			succs[k] = index[s]
		}
		flow[i].succs = succs
	}
	for _, table := range b.tables {
		for i, label := range table {
			table[i] = target(label)
		}
	}
	b.ops, b.flow = ops, flow
}

// splitBlocks cuts the code at labels and behind jumps.
func splitBlocks(b *builder) []flowBlock {
	leader := make([]bool, len(b.ops)+1)
	leader[0] = true
	for _, at := range b.labels {
		leader[at] = true
	}
	for i := range b.ops {
		switch b.ops[i].code {
		case opBranch, opBranchIndex, opExit, opTrap:
			leader[i+1] = true
		}
	}
	var blocks []flowBlock
	id := make([]int32, len(b.ops)+1)
	for i := range b.ops {
		if leader[i] {
			if n := len(blocks); n > 0 {
				blocks[n-1].to = int32(i)
			}
			blocks = append(blocks, flowBlock{from: int32(i)})
		}
		id[i] = int32(len(blocks) - 1)
	}
	blocks[len(blocks)-1].to = int32(len(b.ops))
	edges := 0
	for i := range blocks {
		fb := &blocks[i]
		last := &b.ops[fb.to-1]
		falls := true
		switch last.code {
		case opBranch:
			fb.succs = append(fb.succs, id[b.labels[last.target]])
			falls = last.guard != noReg
		case opBranchIndex:
			for _, label := range b.tables[last.target] {
				fb.succs = append(fb.succs, id[b.labels[label]])
			}
			falls = last.guard != noReg
		case opExit, opTrap:
			falls = last.guard != noReg
		}
		if falls && i+1 < len(blocks) {
			fb.succs, fb.falls = append(fb.succs, int32(i+1)), true
		}
		if edges += len(fb.succs); edges > maxEdges {
			b.fail("control flow of `%s` is too large", b.k.Sig.Name)
		}
	}
	return blocks
}

// orderer finds strongly connected regions, over and over without the edges to their heads.
type orderer struct {
	blocks  []flowBlock
	region  []int32 // which region a block belongs to now
	number  []int32 // visit number within the current pass, 0 unvisited
	low     []int32
	edge    []int32 // next successor to visit
	on      []bool  // on the region stack
	regions int32
	out     []int32
}

func orderBlocks(blocks []flowBlock) []int32 {
	n := len(blocks)
	o := &orderer{blocks: blocks, region: make([]int32, n), number: make([]int32, n), low: make([]int32, n),
		edge: make([]int32, n), on: make([]bool, n)}
	o.order(0, nil, 0)
	return o.out
}

// order appends the blocks of head's region, head first. members is nil for the whole graph.
func (o *orderer) order(head int32, members []int32, depth int) {
	region := o.region[head]
	for _, m := range members {
		o.number[m], o.edge[m] = 0, 0
	}
	parts := o.components(head, region)
	// Components come out last first.
	for i := len(parts) - 1; i >= 0; i-- {
		part := parts[i]
		root := part[len(part)-1]
		if len(part) == 1 || depth == maxRegions {
			for k := len(part) - 1; k >= 0; k-- {
				o.out = append(o.out, part[k])
			}
			continue
		}
		o.regions++
		for _, m := range part {
			o.region[m] = o.regions
		}
		o.order(root, part, depth+1)
	}
}

// components is Tarjan's algorithm from head within a region, without the edges back to head. The root of
// each component is its last element.
func (o *orderer) components(head, region int32) [][]int32 {
	var parts [][]int32
	var stack, path []int32
	count := int32(0)
	visit := func(v int32) {
		count++
		o.number[v], o.low[v], o.on[v] = count, count, true
		stack = append(stack, v)
		path = append(path, v)
	}
	visit(head)
	for len(path) > 0 {
		v := path[len(path)-1]
		if succs := o.blocks[v].succs; int(o.edge[v]) < len(succs) {
			s := succs[o.edge[v]]
			o.edge[v]++
			switch {
			case s == head || o.region[s] != region:
			case o.number[s] == 0:
				visit(s)
			case o.on[s]:
				o.low[v] = min(o.low[v], o.number[s])
			}
			continue
		}
		path = path[:len(path)-1]
		if len(path) > 0 {
			p := path[len(path)-1]
			o.low[p] = min(o.low[p], o.low[v])
		}
		if o.low[v] != o.number[v] {
			continue
		}
		at := len(stack) - 1
		for stack[at] != v {
			at--
		}
		part := make([]int32, 0, len(stack)-at)
		for i := len(stack) - 1; i >= at; i-- {
			o.on[stack[i]] = false
			part = append(part, stack[i])
		}
		stack = stack[:at]
		parts = append(parts, part)
	}
	return parts
}
