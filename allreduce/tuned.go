package allreduce

import "slices"

// choose is the algorithm of a call that is made now, and the grid that a table prefers for it. taken: a capture that the caller began takes it in.
func (g *Group) choose(n uint64, dt DType, taken bool) (Algorithm, grid) {
	rec := g.recording.Load()
	t := g.policy.table
	if rec != nil {
		t = rec.table
	}
	a, b := g.policy.pick(t, n, dt, taken || rec != nil)
	return a, b.grid()
}

// CaptureBy is Capture of calls that go by t instead of Config.Table, so that one group can measure many choices in turn. A
// rule is passed over as one of Config.Table is, and also when its algorithm has no memory here: Config.Table, or the
// shipped choice, must make use of it. A call larger than what that memory is for is done in pieces. PlanBy says what came
// of it. Blocks beyond what Config.Table asks for at most for the algorithm, or the shipped grids have where that is more, are left away.
//
// The error is Capture's, or an *ArgumentError for a table that cannot be used, or a group whose algorithm is forced.
func (g *Group) CaptureBy(t Table, queue func() error) (*Graph, error) {
	if err := g.takes(t); err != nil {
		return nil, err
	}
	return g.capture(slices.Clone(t), queue)
}

// PlanBy is what a captured call of count elements of dt does by t, the same on all ranks. The error is an *ArgumentError, as
// of CaptureBy and Plan.
func (g *Group) PlanBy(t Table, count uint64, dt DType) (Plan, error) {
	if err := g.takes(t); err != nil {
		return Plan{}, err
	}
	n, err := bytesOf(-1, count, dt)
	if err != nil {
		return Plan{}, err
	}
	return g.policy.plan(t, n, dt, true, g.shape), nil
}

func (g *Group) takes(t Table) error {
	if f := g.policy.forced; f != Auto && len(t) > 0 {
		return bad("table", "this group does everything by %v: make one with algorithm auto", f)
	}
	return t.check()
}
