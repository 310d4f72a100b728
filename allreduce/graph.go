package allreduce

import (
	"errors"

	"github.com/fenceline/fenceline/launcher"
)

// Graph is captured calls of a whole group, to be replayed any number of times, between other calls as well.
// One-shot pull has one graph per rank, so that the ranks' kernels, which wait for each other, never
// share a graph's scheduling; copy and host, which are ordered across ranks by events, have one for all.
type Graph struct {
	g     *Group
	execs []*launcher.Exec // per rank, or one
	join  []*launcher.Event
}

// Capture records the calls that queue makes (with Group.AllReduce, or with Rank.AllReduce for every rank)
// instead of running them. No other call may be made meanwhile. The buffers must outlive the graph, which is
// closed with Close, or with the group.
func (g *Group) Capture(queue func() error) (*Graph, error) {
	if g.closed.Load() {
		return nil, ErrClosed
	}
	if err := g.Err(); err != nil {
		return nil, err
	}
	if !g.capturing.CompareAndSwap(false, true) {
		return nil, bad("capture", "another capture of this group is under way")
	}
	defer g.capturing.Store(false)
	gr := &Graph{g: g}
	var err error
	if g.algorithm == OneshotPull {
		err = gr.captureEach(queue)
	} else {
		err = gr.captureTogether(queue)
	}
	if err != nil {
		return nil, errors.Join(err, gr.destroy())
	}
	g.mu.Lock()
	g.graphs[gr] = struct{}{}
	g.mu.Unlock()
	return gr, nil
}

// captureEach captures every rank's stream by itself.
func (gr *Graph) captureEach(queue func() error) error {
	var begun []*launcher.Stream
	var err error
	for _, r := range gr.g.ranks {
		if err = r.stream.BeginCapture(); err != nil {
			break
		}
		begun = append(begun, r.stream)
	}
	if err == nil {
		err = queue()
	}
	for _, s := range begun { // ended in any case: a stream left capturing is of no use
		exec, e := finish(s)
		err = errors.Join(err, e)
		if exec != nil {
			gr.execs = append(gr.execs, exec)
		}
	}
	return err
}

// captureTogether captures all streams in one graph: forked from rank 0's, and joined to it at the end.
func (gr *Graph) captureTogether(queue func() error) error {
	first := gr.g.ranks[0].stream
	for _, r := range gr.g.ranks {
		e, err := gr.g.rt.NewEvent(r.dev, false)
		if err != nil {
			return err
		}
		gr.join = append(gr.join, e)
	}
	if err := first.BeginCapture(); err != nil {
		return err
	}
	err := gr.fork(first)
	if err == nil {
		err = queue()
	}
	for i, r := range gr.g.ranks[1:] {
		if err == nil {
			err = errors.Join(r.stream.Record(gr.join[i+1]), first.Wait(gr.join[i+1]))
		}
	}
	exec, e := finish(first)
	if exec != nil {
		gr.execs = append(gr.execs, exec)
	}
	return errors.Join(err, e)
}

func (gr *Graph) fork(first *launcher.Stream) error {
	if err := first.Record(gr.join[0]); err != nil {
		return err
	}
	for _, r := range gr.g.ranks[1:] {
		if err := r.stream.Wait(gr.join[0]); err != nil {
			return err
		}
	}
	return nil
}

func finish(s *launcher.Stream) (*launcher.Exec, error) {
	graph, err := s.EndCapture()
	if err != nil {
		return nil, err
	}
	exec, err := graph.Instantiate()
	return exec, errors.Join(err, graph.Close())
}

// Launch queues a replay on all ranks. Group.Sync waits for it.
func (gr *Graph) Launch() error {
	if err := gr.g.Err(); err != nil {
		return err
	}
	if gr.g.closed.Load() {
		return ErrClosed
	}
	if len(gr.execs) == 1 && len(gr.g.ranks) > 1 {
		return gr.launchTogether()
	}
	for r, x := range gr.execs {
		if err := x.Launch(gr.g.ranks[r].stream); err != nil {
			gr.g.fail(err)
			return err
		}
	}
	return nil
}

// launchTogether launches the one graph on rank 0's stream, behind and ahead of the others' work.
func (gr *Graph) launchTogether() error {
	ranks := gr.g.ranks
	first := ranks[0].stream
	var errs []error
	for i, r := range ranks[1:] {
		errs = append(errs, r.stream.Record(gr.join[i+1]), first.Wait(gr.join[i+1]))
	}
	errs = append(errs, gr.execs[0].Launch(first), first.Record(gr.join[0]))
	for _, r := range ranks[1:] {
		errs = append(errs, r.stream.Wait(gr.join[0]))
	}
	if err := errors.Join(errs...); err != nil {
		gr.g.fail(err)
		return err
	}
	return nil
}

// Close frees the graph. No replay may still be running. Closing again does nothing.
func (gr *Graph) Close() error {
	gr.g.mu.Lock()
	_, open := gr.g.graphs[gr]
	delete(gr.g.graphs, gr)
	gr.g.mu.Unlock()
	if !open {
		return nil
	}
	return gr.destroy()
}

func (gr *Graph) destroy() error {
	var errs []error
	for _, x := range gr.execs {
		errs = append(errs, x.Close())
	}
	for _, e := range gr.join {
		errs = append(errs, e.Close())
	}
	gr.execs, gr.join = nil, nil
	return errors.Join(errs...)
}
