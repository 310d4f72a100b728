package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenceline/fenceline/allreduce"
)

// ncclRanks is NCCL with a process for each rank.
type ncclRanks struct {
	kids    []*ncclProcess
	world   int
	timeout time.Duration
	lengths lengths
	failed  bool // an order came to nothing
}

// ncclProcess is one of them.
type ncclProcess struct {
	rank    int
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers chan ncclAnswer // closed when the process says no more
	ended   chan struct{}   // closed when it is gone; err is set then
	err     error
	stderr  lastWords
}

// startNCCL starts a process for each rank and lets them find each other.
func (r *benchRun) startNCCL(ctx context.Context, w *worldReport) (k *ncclRanks, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program to start NCCL's ranks: %w", err)
	}
	k = &ncclRanks{world: w.Ranks, timeout: r.set.timeout, lengths: r.lengths}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%d ranks of NCCL in processes of their own: %w", w.Ranks, err), k.end())
			k = nil
		}
	}()
	for rank, dev := range w.Devices {
		args, env := []string{ncclChildCommand, "--backend", r.rep.Backend.Backend}, []string{}
		if !r.rep.Backend.Emulated {
			env = append(env, "CUDA_VISIBLE_DEVICES="+r.rep.Devices[dev].UUID)
		}
		kid, err := startNCCLProcess(ctx, rank, append([]string{self}, args...), env)
		if err != nil {
			return k, err
		}
		k.kids = append(k.kids, kid)
	}
	hello := ncclOrder{Op: "hello", Library: r.set.library, World: w.Ranks}
	answers, err := k.ask(ctx, hello, ncclStart)
	if err != nil {
		return k, err
	}
	_, err = k.ask(ctx, ncclOrder{Op: "join", ID: answers[0].ID}, ncclStart)
	return k, err
}

func startNCCLProcess(ctx context.Context, rank int, command, env []string) (*ncclProcess, error) {
	p := &ncclProcess{rank: rank, cmd: exec.CommandContext(ctx, command[0], command[1:]...), answers: make(chan ncclAnswer, 1), ended: make(chan struct{})}
	// NCCL takes ranks with the same host for ranks of one machine, and refuses two of them on one device.
	p.cmd.Env = append(os.Environ(), append(env, fmt.Sprintf("NCCL_HOSTID=fenceline-%d-%d", os.Getpid(), rank), "NCCL_NVLS_ENABLE=0")...)
	p.cmd.WaitDelay = ncclLinger
	p.cmd.Stderr = &p.stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.stdin = stdin
	go func() {
		defer close(p.ended)
		defer close(p.answers)
		p.read(stdout)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// read passes the answers on, to the end.
func (p *ncclProcess) read(out io.Reader) {
	sc := bufio.NewScanner(out)
	sc.Buffer(nil, 4<<20)
	for sc.Scan() {
		var a ncclAnswer
		if bytes.HasPrefix(sc.Bytes(), []byte(ncclAnswerStart)) && json.Unmarshal(sc.Bytes(), &a) == nil {
			p.answers <- a
		}
	}
	_, _ = io.Copy(io.Discard, out) // after a line too long
}

// ask gives every rank an order, and waits for all answers, for the limit at most.
func (k *ncclRanks) ask(ctx context.Context, o ncclOrder, limit time.Duration) (_ []ncclAnswer, err error) {
	defer func() { k.failed = k.failed || err != nil }()
	o.TimeoutNS = limit
	for _, p := range k.kids {
		o.Rank = p.rank
		text, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		if _, err := p.stdin.Write(append(text, '\n')); err != nil {
			return nil, fmt.Errorf("rank %d: %s: %w", p.rank, p.obituary(), err)
		}
	}
	timer := time.NewTimer(limit + time.Second) // the ranks' own deadline comes first
	defer timer.Stop()
	answers := make([]ncclAnswer, len(k.kids))
	var errs []error
	for i, p := range k.kids {
		select {
		case a, ok := <-p.answers:
			if !ok {
				return nil, fmt.Errorf("rank %d: its process ended: %s", p.rank, p.obituary())
			}
			if answers[i] = a; a.Error != "" {
				errs = append(errs, fmt.Errorf("rank %d: %s", p.rank, a.Error))
			}
		case <-ctx.Done():
			return nil, errInterrupted
		case <-timer.C:
			return nil, errors.Join(append(errs, &overdueError{fmt.Sprintf("%q of rank %d of NCCL", o.Op, p.rank), limit})...)
		}
	}
	return answers, errors.Join(errs...)
}

// end lets all processes go, and kills those that stay.
func (k *ncclRanks) end() error {
	patience := ncclLinger
	if k.failed { // it may wait for one that is gone
		patience = 0
	}
	for _, p := range k.kids {
		_ = p.stdin.Close()
	}
	limit := time.After(patience)
	var errs []error
	for _, p := range k.kids {
		for gone := false; !gone; {
			select {
			case <-p.ended:
				gone = true
			case _, open := <-p.answers: // what it still says must not keep it
				if !open {
					<-p.ended
					gone = true
				}
			case <-limit:
				limit = time.After(0) // for the others too
				_ = p.cmd.Process.Kill()
				select {
				case <-p.ended:
				case <-time.After(ncclLinger):
					errs = append(errs, fmt.Errorf("the process of rank %d of NCCL cannot be killed: the GPU may need a reset", p.rank))
				}
				gone = true
			}
		}
	}
	k.kids = nil
	return errors.Join(errs...)
}

// obituary is how a process ended, or that it has not.
func (p *ncclProcess) obituary() string {
	how := "it is still there"
	select {
	case <-p.ended:
		how = "exit status 0"
		if p.err != nil {
			how = p.err.Error()
		}
	case <-time.After(time.Second):
	}
	if text := p.stderr.String(); text != "" {
		how += ": " + text
	}
	return how
}

func (k *ncclRanks) name() string { return compareNCCL }

func (k *ncclRanks) plan(row) (*allreduce.Plan, error) { return nil, nil }

func (k *ncclRanks) open(ctx context.Context, w row, seed uint64) error {
	_, err := k.ask(ctx, ncclOrder{Op: "open", DType: w.dtype, Count: w.count, Seed: seed}, ncclStart)
	return err
}

func (k *ncclRanks) close() error {
	if k.kids == nil || k.failed { // ended with its world, or about to be
		return nil
	}
	_, err := k.ask(context.Background(), ncclOrder{Op: "close"}, k.timeout)
	return err
}

func (k *ncclRanks) times(ctx context.Context, inPlace bool) ([]time.Duration, int, error) {
	first, err := k.replays(ctx, ncclOrder{InPlace: inPlace, Calls: 1, Warmup: 1, Replays: 1})
	if err != nil {
		return nil, 0, err
	}
	calls, replays := k.lengths.fit(first[0])
	times, err := k.replays(ctx, ncclOrder{InPlace: inPlace, Calls: calls, Warmup: k.lengths.warmup, Replays: replays})
	return times, calls, err
}

// replays is the time of the slowest rank, replay by replay.
func (k *ncclRanks) replays(ctx context.Context, o ncclOrder) ([]time.Duration, error) {
	o.Op = "time"
	answers, err := k.ask(ctx, o, k.timeout*time.Duration(1+o.Calls*(o.Warmup+o.Replays)/100))
	if err != nil {
		return nil, err
	}
	slowest := make([]time.Duration, o.Replays)
	for i, a := range answers {
		if len(a.TimesNS) != o.Replays {
			return nil, fmt.Errorf("rank %d of NCCL: %d times of %d replays", i, len(a.TimesNS), o.Replays)
		}
		for j, d := range a.TimesNS {
			slowest[j] = max(slowest[j], d)
		}
	}
	return slowest, nil
}

func (k *ncclRanks) check(ctx context.Context, seed uint64, inPlace bool) (verdict, error) {
	v := verdict{equal: true}
	answers, err := k.ask(ctx, ncclOrder{Op: "check", Seed: seed, InPlace: inPlace}, k.timeout)
	for r, a := range answers {
		if v.wrong += a.Wrong; a.First != "" {
			v.note("rank %d: %s", r, a.First)
		}
	}
	return v, err
}

// lastWords keeps the end of what a process says on stderr.
type lastWords struct {
	mu sync.Mutex
	b  []byte
}

func (t *lastWords) Write(p []byte) (int, error) {
	const most = 2048
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > most {
		t.b = slices.Clone(t.b[len(t.b)-most:])
	}
	return len(p), nil
}

func (t *lastWords) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.Fields(string(t.b)), " ")
}
