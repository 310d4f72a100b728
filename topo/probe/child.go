package probe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/fenceline/fenceline/topo"
)

// maxStderr is how much of the end of a child's stderr is kept for messages.
const maxStderr = 2048

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
	c, err := startChild(ctx, p.command, text)
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
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	lines  chan line
	ended  chan struct{} // closed when the child is gone, err is set then
	err    error
	stderr tail
}

func startChild(ctx context.Context, command []string, request []byte) (*process, error) {
	c := &process{cmd: exec.CommandContext(ctx, command[0], command[1:]...), lines: make(chan line, 1), ended: make(chan struct{})}
	ownGroup(c.cmd)
	c.cmd.WaitDelay = linger
	c.cmd.Stderr = &c.stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.stdin = in
	go func() { _, _ = in.Write(request) }() // a child that does not read it says so by its end
	go func() {
		defer close(c.ended)
		defer close(c.lines)
		c.read(out)
		c.err = c.cmd.Wait()
	}()
	return c, nil
}

// read passes the child's own lines on. It goes on to the end, so that the child never blocks in writing.
func (c *process) read(out io.Reader) {
	sc := bufio.NewScanner(out)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var l line
		if !bytes.HasPrefix(sc.Bytes(), []byte(`{"fenceline_probe":`)) || json.Unmarshal(sc.Bytes(), &l) != nil {
			continue // a library's chatter
		}
		if l.Tag == tagResult && l.Result == nil {
			continue
		}
		c.lines <- l
	}
	_, _ = io.Copy(io.Discard, out) // after a line too long
}

// next waits for the child's next line. why says what became of the child if there is none, and late whether it was
// given up.
func (c *process) next(ctx context.Context, limit time.Duration) (l line, why string, late bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case l, ok := <-c.lines:
		if ok {
			return l, "", false
		}
		<-c.ended
		return line{}, "died: " + c.obituary(), false
	case <-ctx.Done():
		return line{}, "was stopped", false
	case <-timer.C:
	}
	if !c.kill() {
		return line{}, fmt.Sprintf("timed out after %v and cannot be killed: the GPU may need a reset", limit), true
	}
	return line{}, fmt.Sprintf("timed out after %v and was killed", limit) + c.stderr.suffix(), true
}

// obituary is how the child ended.
func (c *process) obituary() string {
	how := "exit status 0"
	if c.err != nil {
		how = c.err.Error()
	}
	return how + c.stderr.suffix()
}

// end lets a child go that has nothing more to say. One that stays is killed.
func (c *process) end() {
	_ = c.stdin.Close()
	if !c.gone(linger) {
		c.kill()
	}
}

// kill is whether the child is gone after it was killed.
func (c *process) kill() bool {
	_ = c.cmd.Cancel() // it may have ended by itself
	return c.gone(2 * linger)
}

// gone waits for the child's end. Its lines are of no use any more.
func (c *process) gone(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	lines := c.lines
	for {
		select {
		case _, ok := <-lines:
			if !ok {
				lines = nil
			}
		case <-c.ended:
			return true
		case <-timer.C:
			return false
		}
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > maxStderr {
		t.b = append(t.b[:0], t.b[len(t.b)-maxStderr:]...)
	}
	return len(p), nil
}

// suffix is the text, in one line, to be put behind a message.
func (t *tail) suffix() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.Join(strings.Fields(string(t.b)), " ")
	if text == "" {
		return ""
	}
	return ": " + text
}

var errParentGone = errors.New("the parent process is gone")
