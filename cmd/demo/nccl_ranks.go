package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/internal/child"
)

// ncclRanks is NCCL with a process for each rank.
type ncclRanks struct {
	kids    []ncclProcess
	world   int
	timeout time.Duration
	lengths lengths
	failed  bool // an order came to nothing
}

// ncclProcess is one of them.
type ncclProcess struct {
	*child.Process[ncclAnswer]
	rank int
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

func startNCCLProcess(ctx context.Context, rank int, command, env []string) (ncclProcess, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	// NCCL takes ranks with the same host for ranks of one machine, and refuses two of them on one device.
	cmd.Env = append(os.Environ(), append(env, fmt.Sprintf("NCCL_HOSTID=fenceline-%d-%d", os.Getpid(), rank), "NCCL_NVLS_ENABLE=0")...)
	p, err := child.Start(cmd, ncclLinger, func(text []byte) (a ncclAnswer, own bool) {
		own = bytes.HasPrefix(text, []byte(ncclAnswerStart)) && json.Unmarshal(text, &a) == nil
		return a, own
	})
	return ncclProcess{p, rank}, err
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
		if _, err := p.Stdin.Write(append(text, '\n')); err != nil {
			return nil, fmt.Errorf("rank %d: %s: %w", p.rank, p.Obituary(), err)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, limit+time.Second) // the ranks' own deadline comes first
	defer cancel()
	answers := make([]ncclAnswer, len(k.kids))
	var errs []error
	for i, p := range k.kids {
		a, err := p.Next(bounded)
		switch {
		case err == nil:
			if answers[i] = a; a.Error != "" {
				errs = append(errs, fmt.Errorf("rank %d: %s", p.rank, a.Error))
			}
		case errors.Is(err, child.ErrEnded):
			return nil, fmt.Errorf("rank %d: its process ended: %s", p.rank, p.Obituary())
		case ctx.Err() != nil:
			return nil, errInterrupted
		default:
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
		_ = p.Stdin.Close()
	}
	until := time.Now().Add(patience) // for all of them
	var errs []error
	for _, p := range k.kids {
		if !p.Gone(time.Until(until)) && !p.Kill(ncclLinger) {
			errs = append(errs, fmt.Errorf("the process of rank %d of NCCL cannot be killed: the GPU may need a reset", p.rank))
		}
	}
	k.kids = nil
	return errors.Join(errs...)
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
