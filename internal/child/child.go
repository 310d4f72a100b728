// Package child runs a child process that answers line by line, and that may hang in a driver's or a library's call: no
// wait for it is longer than its caller says.
package child

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	maxLine   = 4 << 20 // of stdout; nothing is read from behind a longer one
	maxStderr = 2048    // how much of its end is kept for messages
)

// ErrEnded is the error of Next when the child has ended and has nothing more to say.
var ErrEnded = errors.New("the child process has ended")

// Process is a running child that says values of type T.
type Process[T any] struct {
	Stdin io.WriteCloser

	cmd    *exec.Cmd
	lines  chan T        // closed when the child is gone, right before ended
	ended  chan struct{} // closed when the child is gone; err is set then
	err    error
	stderr tail
}

// Start starts a command that exec.CommandContext made. parse says what a line of its stdout means, and false for one that
// is not the child's own, such as a library's chatter. linger is how long somebody else may hold the stderr of a child that
// has ended; the child counts as there while its stdout is held.
func Start[T any](cmd *exec.Cmd, linger time.Duration, parse func(line []byte) (T, bool)) (*Process[T], error) {
	p := &Process[T]{cmd: cmd, lines: make(chan T, 1), ended: make(chan struct{})}
	cmd.WaitDelay = linger
	cmd.Stderr = &p.stderr
	var err error
	if p.Stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		defer close(p.lines)
		p.read(out, parse)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// read passes the child's own lines on. It goes on to the end, so that the child never blocks in writing.
func (p *Process[T]) read(out io.Reader, parse func([]byte) (T, bool)) {
	sc := bufio.NewScanner(out)
	sc.Buffer(nil, maxLine)
	for sc.Scan() {
		if v, ok := parse(sc.Bytes()); ok {
			p.lines <- v
		}
	}
	_, _ = io.Copy(io.Discard, out) // after a line too long
}

// Next waits for what the child says next. The error is ErrEnded, or why ctx ended.
func (p *Process[T]) Next(ctx context.Context) (v T, err error) {
	select {
	case v, ok := <-p.lines:
		if !ok {
			return v, ErrEnded
		}
		return v, nil
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}

// Gone is whether the child ends by itself within a time. What it still says is dropped, and must not keep it.
func (p *Process[T]) Gone(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	lines := p.lines
	for {
		select {
		case _, ok := <-lines:
			if !ok {
				lines = nil
			}
		case <-p.ended:
			return true
		case <-timer.C:
			return false
		}
	}
}

// Kill kills the child, and is whether it is gone within a time. One that hangs in a driver's call may never be.
func (p *Process[T]) Kill(limit time.Duration) bool {
	_ = p.cmd.Cancel() // it may have ended by itself
	return p.Gone(limit)
}

// Obituary is how the child ended, with its last words. It gives one that is about to end a second.
func (p *Process[T]) Obituary() string {
	how := "it is still there"
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-p.ended:
		how = "exit status 0"
		if p.err != nil {
			how = p.err.Error()
		}
	case <-timer.C:
	}
	return how + p.LastWords()
}

// LastWords is the end of what the child said on stderr, in one line, to be put behind a message: ": out of memory".
func (p *Process[T]) LastWords() string {
	if text := p.stderr.String(); text != "" {
		return ": " + text
	}
	return ""
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

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.Fields(string(t.b)), " ")
}
