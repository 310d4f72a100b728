package allreduce

import "github.com/fenceline/fenceline/launcher"

// Graph is captured calls of a whole group, to be replayed any number of times, between other calls as well. Which
// algorithm each call takes is settled when it is captured. Direct kernels, and NCCL's, have one graph per rank, so that the ranks'
// kernels, which wait for each other, never share a graph's scheduling; copy and host, which are ordered across ranks by
// events, have one for all.
type Graph struct {
	g     *Group
	execs []*launcher.Exec // per rank, or one
	join  []*launcher.Event
}

// Capture records the calls that queue makes (with Group.AllReduce, or with Rank.AllReduce for every rank), and other
// work that it puts on the ranks' streams, instead of running them. With copy and host, whose ranks wait for each
// other inside a call, Rank.AllReduce must be called from a goroutine per rank, all of which end before queue returns.
// No other call may be made meanwhile. The buffers must outlive the graph, which is closed with Close, or with the group.
//
// It fails with queue's own error, with a *MismatchError or *ArgumentError when the ranks did not record the same
// calls, and with an *AbsentError when one of them waited for another in vain. Nothing has run then, and the group
// stays as it was.
func (g *Group) Capture(queue func() error) (*Graph, error) {
	return g.capture(g.policy.table, queue)
}

func (g *Group) capture(t Table, queue func() error) (_ *Graph, err error) {
	if err := g.refusal(); err != nil {
		return nil, err
	}
	if queue == nil {
		return nil, bad("capture", "no function is given: pass one that makes the calls")
	}
	if err := g.callersCapture("capture"); err != nil {
		return nil, err
	}
	rec := newRecording(len(g.ranks), t)
	if !g.recording.CompareAndSwap(nil, rec) {
		return nil, bad("capture", "another capture of this group is under way")
	}
	defer func() {
		g.recording.Store(nil)
		close(rec.over)
	}()
	if err := g.refusal(); err != nil { // it came too late to be told to the recording
		return nil, err
	}
	gr, kept := &Graph{g: g}, false
	defer func() { // runs when queue panics, too
		if !kept {
			err = joined(err, gr.destroy())
		}
	}()
	record := gr.captureEach
	if !g.apart {
		record = gr.captureTogether
	}
	if err := record(func() error { return g.recorded(rec, queue) }); err != nil {
		return nil, err
	}
	if err := rec.check(len(g.ranks)); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed.Load() {
		return nil, ErrClosed
	}
	g.graphs[gr], kept = struct{}{}, true
	return gr, nil
}

// recorded runs queue, and leaves no call of the recording half made, whatever queue does.
func (g *Group) recorded(rec *recording, queue func() error) error {
	defer func() {
		rec.end()
		for _, r := range g.ranks {
			r.mu.Lock() // held for the length of a call
			defer r.mu.Unlock()
			r.last = launched{} // what was recorded is not on the stream
		}
	}()
	return queue()
}

// captureEach captures every rank's stream by itself.
func (gr *Graph) captureEach(queue func() error) (err error) {
	var begun []*launcher.Stream
	// Captures are ended in any case, a panic of queue included: a stream left capturing is of no use.
	defer func() {
		for _, s := range begun {
			err = joined(err, gr.finish(s))
		}
	}()
	for _, r := range gr.g.ranks {
		if err := r.stream.BeginCapture(); err != nil {
			return err
		}
		begun = append(begun, r.stream)
		r.turn()
	}
	return queue()
}

// turn: what the rank's next launch comes behind is not what it launched last.
func (r *Rank) turn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = launched{}
}

// captureTogether captures all streams in one graph: forked from rank 0's, and joined to it at the end.
func (gr *Graph) captureTogether(queue func() error) (err error) {
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
	defer func() { err = joined(err, gr.finish(first)) }()
	if err := gr.fork(first); err != nil {
		return err
	}
	// Joined in any case, too: an unjoined stream would stay in the broken capture.
	defer func() {
		for i, r := range gr.g.ranks[1:] {
			err = joined(err, r.stream.Record(gr.join[i+1]), first.Wait(gr.join[i+1]))
		}
	}()
	return queue()
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

// finish ends the capture of a stream and makes it executable.
func (gr *Graph) finish(s *launcher.Stream) error {
	graph, err := s.EndCapture()
	if err != nil {
		return err
	}
	exec, err := graph.Instantiate()
	if exec != nil {
		gr.execs = append(gr.execs, exec)
	}
	return joined(err, graph.Close())
}

// Launch queues a replay on all ranks. Group.Sync waits for it. A closed graph is ErrGraphClosed; a group that is
// closed or has failed refuses as it refuses calls.
func (gr *Graph) Launch() error {
	g := gr.g
	g.queue.Lock()
	defer g.queue.Unlock()
	if err := g.refusal(); err != nil {
		return err
	}
	if !gr.open() {
		return ErrGraphClosed
	}
	if g.recording.Load() != nil {
		return bad("capture", "a graph cannot be launched inside a capture of its group")
	}
	if err := g.callersCapture("launch"); err != nil {
		return err
	}
	if !g.apart {
		return gr.launchTogether()
	}
	for r, x := range gr.execs {
		if err := g.ranks[r].replay(x); err != nil {
			g.fail(err)
			return err
		}
	}
	return nil
}

// replay launches the rank's part of a graph.
func (r *Rank) replay(x *launcher.Exec) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = launched{}
	return x.Launch(r.stream)
}

func (gr *Graph) open() bool {
	gr.g.mu.Lock()
	defer gr.g.mu.Unlock()
	_, ok := gr.g.graphs[gr]
	return ok
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
	if err := joined(errs...); err != nil {
		gr.g.fail(err)
		return err
	}
	return nil
}

// Close frees the graph. No replay may still be running. Closing again does nothing.
func (gr *Graph) Close() error {
	g := gr.g
	g.queue.Lock()
	defer g.queue.Unlock()
	if !gr.open() {
		return nil
	}
	g.mu.Lock()
	delete(g.graphs, gr)
	g.mu.Unlock()
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
	return joined(errs...)
}
