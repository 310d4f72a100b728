package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/fenceline/fenceline/internal/child"
	"github.com/fenceline/fenceline/topo"
)

// linger is how long a killed child may take to be gone. One that hangs in a driver call may never be.
const linger = 3 * time.Second

// RunChild probes the pairs like Run, in child processes: the checks of each pair in one of its own, the numbers of
// all pairs together. command starts a child, which must call Serve with its stdin and stdout; it inherits the
// environment. m is what the parent knows of the machine; the parent itself needs no driver.
//
// A probe in which the child hangs or faults gets the Answer No with the reason, and a new child goes on with the next
// probe. So it does when the child dies, killed or by itself, but that says nothing certain of the pair: the Answer
// stays Unknown, with the reason. The error is for children that never got as far as probing, and then the measurement
// holds what was found so far.
func RunChild(ctx context.Context, command []string, m *topo.Machine, o Options) (*topo.Measurement, error) {
	if len(command) == 0 {
		return nil, fmt.Errorf("probe: %w: no command for the child", ErrOptions)
	}
	o, err := o.validate(m)
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	p := &parent{command: command, m: m, o: &o, found: empty(m, &o)}
	for _, batch := range batches(items(m, &o)) {
		for len(batch) > 0 {
			done, err := p.child(ctx, batch)
			if err != nil { // before the next probe, so there is one
				return p.found, fmt.Errorf("probe %v, %s: %w", batch[done].Pair, batch[done].Step, err)
			}
			batch = batch[done:]
		}
	}
	return p.found, nil
}

// batches splits the probes by child: the checks by pair, because bad writes may go anywhere; then all numbers.
func batches(list []item) (out [][]item) {
	for i, it := range list {
		number := findStep(it.Step).number()
		if i == 0 || !number && it.Pair != list[i-1].Pair || number != findStep(list[i-1].Step).number() {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], it)
	}
	return out
}

// parent collects what children find.
type parent struct {
	command []string
	m       *topo.Machine
	o       *Options
	found   *topo.Measurement
}

// request is what a child reads from its stdin: one JSON value. After it, the end of stdin tells the child that the
// parent is gone.
type request struct {
	Machine *topo.Machine     `json:"machine"`
	Pairs   [][]topo.Measured `json:"pairs"` // what was found so far
	Items   []item            `json:"items"`
	Options Options           `json:"options"`
}

func marshalRequest(m *topo.Machine, pairs [][]topo.Measured, list []item, o *Options) ([]byte, error) {
	b, err := json.Marshal(request{m, pairs, list, *o})
	if err != nil {
		return nil, fmt.Errorf("write a child's orders: %w", err)
	}
	return append(b, '\n'), nil
}

// line is what a child writes to its stdout: one JSON value on a line. Other lines are not the child's own.
type line struct {
	Tag    string  `json:"fenceline_probe"` // tagReady, once; tagResult, for each item in order; tagFailed, and then it ends
	Result *Result `json:"result,omitempty"`
	Error  string  `json:"error,omitempty"`
}

const tagReady, tagResult, tagFailed = "ready", "result", "failed"

// child runs one child on the items, and returns how many are done: as many as it made, and one more that failed it.
func (p *parent) child(ctx context.Context, list []item) (done int, err error) {
	text, err := marshalRequest(p.m, p.found.Pairs, list, p.o)
	if err != nil {
		return 0, err
	}
	c, err := start(ctx, p.command, text)
	if err != nil {
		return 0, fmt.Errorf("%w: start %q: %w", ErrChild, p.command, err)
	}
	defer c.end()
	limit, ready := p.o.Start, false
	for done < len(list) {
		l, why, late := c.next(ctx, limit)
		switch {
		case ctx.Err() != nil:
			return done, context.Cause(ctx)
		case why != "" && !ready:
			return done, fmt.Errorf("%w: %q %s before it was ready", ErrChild, p.command, why)
		case why != "":
			p.take(failed(list[done], why, late))
			return done + 1, nil
		case l.Tag == tagFailed:
			return done, fmt.Errorf("%w: %s", ErrChild, l.Error)
		case l.Tag == tagReady:
			// Beyond this the child gives up by itself; if it cannot, it hangs.
			limit, ready = p.o.stepLimit()+p.o.Timeout+time.Second, true
		case l.Result.Pair != list[done].Pair || l.Result.Step != list[done].Step:
			return done, fmt.Errorf("%w: %q reported %v %s where %v %s was due: is it another version?", ErrChild, p.command,
				l.Result.Pair, l.Result.Step, list[done].Pair, list[done].Step)
		default:
			p.take(*l.Result)
			done++
			if l.Result.Lost {
				return done, nil
			}
		}
	}
	return done, nil
}

func (p *parent) take(r Result) {
	r.apply(p.found.Pairs)
	if p.o.Report != nil {
		p.o.Report(r)
	}
}

// failed is the result of a probe that cost its child. Only one that was late has shown that the access fails; whatever
// else ended the child, an operator or a lack of memory included, leaves it open.
func failed(it item, why string, late bool) Result {
	r := Result{Pair: it.Pair, Step: it.Step, Lost: true}
	if findStep(it.Step).number() {
		r.Note = "not measured: child process " + why
	} else if !late {
		r.Check = &topo.Check{Detail: "not settled: child process " + why}
	} else {
		r.Check = &topo.Check{Answer: topo.No, Detail: "child process " + why}
	}
	return r
}

// process is a running child.
type process struct{ *child.Process[line] }

func start(ctx context.Context, command []string, request []byte) (process, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	child.OwnGroup(cmd)
	c, err := child.Start(cmd, linger, parse)
	if err == nil {
		go func() { _, _ = c.Stdin.Write(request) }() // a child that does not read it says so by its end
	}
	return process{c}, err
}

func parse(text []byte) (l line, own bool) {
	own = bytes.HasPrefix(text, []byte(`{"fenceline_probe":`)) && json.Unmarshal(text, &l) == nil
	return l, own && (l.Tag != tagResult || l.Result != nil)
}

// next waits for the child's next line. why says what became of the child if there is none, and late whether it was
// given up.
func (c process) next(ctx context.Context, limit time.Duration) (l line, why string, late bool) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	l, err := c.Next(bounded)
	switch {
	case err == nil:
		return l, "", false
	case errors.Is(err, child.ErrEnded):
		return l, "died: " + c.Obituary(), false
	case ctx.Err() != nil:
		return l, "was stopped", false
	case !c.kill():
		return l, fmt.Sprintf("timed out after %v and cannot be killed: the GPU may need a reset", limit), true
	}
	return l, fmt.Sprintf("timed out after %v and was killed", limit) + c.LastWords(), true
}

// end lets a child go that has nothing more to say. One that stays is killed.
func (c process) end() {
	_ = c.Stdin.Close()
	if !c.Gone(linger) {
		c.kill()
	}
}

func (c process) kill() bool { return c.Kill(2 * linger) }

var errParentGone = errors.New("the parent process is gone")
