package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/internal/nccl"
	"github.com/fenceline/fenceline/launcher"
)

// ncclChildCommand is the hidden command that is one rank of NCCL. It takes orders from stdin, a line of JSON each, and gives
// one answer to each on stdout.
const ncclChildCommand = "nccl-child"

// ncclOrder is what a rank is told.
type ncclOrder struct {
	Op string `json:"op"` // hello, join, open, time, check, close

	// hello: load the library; rank 0 answers with the identifier. join: be a rank with that identifier.
	Library string `json:"library,omitempty"`
	Rank    int    `json:"rank"`
	World   int    `json:"world,omitempty"`
	ID      []byte `json:"id,omitempty"`

	DType     allreduce.DType `json:"dtype"` // open
	Count     uint64          `json:"count,omitempty"`
	Seed      uint64          `json:"seed,omitempty"` // open, check
	InPlace   bool            `json:"in_place,omitempty"`
	Calls     int             `json:"calls,omitempty"` // time
	Warmup    int             `json:"warmup,omitempty"`
	Replays   int             `json:"replays,omitempty"`
	TimeoutNS time.Duration   `json:"timeout_ns"`
}

// ncclAnswer is what it says. What else a library prints on stdout lacks the first field.
type ncclAnswer struct {
	Tag     int             `json:"fenceline_nccl"` // 1
	Error   string          `json:"error,omitempty"`
	ID      []byte          `json:"id,omitempty"`
	TimesNS []time.Duration `json:"times_ns,omitempty"` // of a call, for each replay
	Wrong   uint64          `json:"wrong,omitempty"`
	First   string          `json:"first,omitempty"`
}

const ncclAnswerStart = `{"fenceline_nccl":`

func (a *app) ncclCommand() *cobra.Command {
	return &cobra.Command{Use: ncclChildCommand, Hidden: true, Short: "Be one rank of NCCL", RunE: a.started((*app).ncclChild)}
}

// ncclChild is a child's part. When its parent is gone, so is stdin, and it ends, whatever NCCL may be waiting for.
func (a *app) ncclChild(c *cobra.Command) error {
	set, err := a.opt.checkMachine(c.Flags().Changed)
	if err != nil {
		return err
	}
	return serveNCCL(set, os.Stdin, a.stdout, func() { os.Exit(exitFault) })
}

// serveNCCL answers orders to their end. gone is called when they end in the middle of one, or soon after.
func serveNCCL(set settings, in io.Reader, out io.Writer, gone func()) error {
	orders, served := make(chan ncclOrder), make(chan struct{})
	defer close(served)
	go func() {
		sc := bufio.NewScanner(in)
		for sc.Scan() {
			var o ncclOrder
			if json.Unmarshal(sc.Bytes(), &o) != nil {
				break
			}
			orders <- o
		}
		close(orders)
		select {
		case <-served:
		case <-time.After(ncclLinger):
			gone()
		}
	}()
	r := &ncclRank{set: set}
	enc := json.NewEncoder(out)
	for o := range orders {
		answer := r.obey(&o)
		answer.Tag = 1
		if err := enc.Encode(answer); err != nil {
			return err
		}
	}
	return r.close()
}

// ncclLinger is how long a child that is no longer wanted may take to end.
const ncclLinger = 5 * time.Second

// ncclRank is one rank with its memory, in a process of its own.
type ncclRank struct {
	set     settings
	lib     *nccl.Library
	rt      *launcher.Runtime
	stream  *launcher.Stream
	clique  *nccl.Clique
	rank    int
	world   int
	w       row
	in, out launcher.Buffer
	opened  bool
}

func (r *ncclRank) obey(o *ncclOrder) (a ncclAnswer) {
	err := fmt.Errorf("there is no order %q", o.Op)
	ctx, cancel := context.WithTimeout(context.Background(), max(o.TimeoutNS, time.Millisecond))
	defer cancel()
	switch o.Op {
	case "hello":
		a.ID, err = r.hello(o)
	case "join":
		err = r.join(o)
	case "open":
		err = r.open(ctx, o)
	case "time":
		a.TimesNS, err = r.times(ctx, o)
	case "check":
		a.Wrong, a.First, err = r.check(ctx, o)
	case "close":
		err = r.free()
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

func (r *ncclRank) hello(o *ncclOrder) (id []byte, err error) {
	if r.lib, err = nccl.Open(o.Library); err != nil {
		return nil, err
	}
	if r.rt, err = open(r.set); err != nil {
		return nil, err
	}
	if r.stream, err = r.rt.NewStream(0); err != nil { // which makes the context that NCCL goes on in
		return nil, err
	}
	if r.rank, r.world = o.Rank, o.World; r.rank == 0 {
		return r.lib.UniqueID()
	}
	return nil, nil
}

func (r *ncclRank) join(o *ncclOrder) (err error) {
	r.clique, err = r.lib.InitRank(r.world, o.ID, r.rank)
	return err
}

// open allocates and fills the memory of a row, and makes a first call.
func (r *ncclRank) open(ctx context.Context, o *ncclOrder) (err error) {
	r.w = row{o.DType, o.Count}
	if r.in, err = r.rt.Alloc(0, r.w.bytes()); err != nil {
		return err
	}
	if r.out, err = r.rt.Alloc(0, r.w.bytes()); err != nil {
		return errors.Join(err, r.in.Free())
	}
	r.opened = true
	if _, err := r.fill(ctx, o.Seed, false); err != nil {
		return err
	}
	if err := r.call(false); err != nil {
		return err
	}
	return r.stream.Sync(ctx)
}

// fill writes this rank's payload where the call will read it, and gives the sum.
func (r *ncclRank) fill(ctx context.Context, seed uint64, inPlace bool) (want []byte, err error) {
	in, want, err := ncclWant(r.w.dtype, seed, r.w, r.world)
	if err != nil {
		return nil, err
	}
	if inPlace {
		return want, r.stream.CopyIn(ctx, r.out, in[r.rank])
	}
	return want, r.stream.CopyIn(ctx, r.in, in[r.rank])
}

func (r *ncclRank) call(inPlace bool) error {
	k := nccl.Call{Send: uintptr(r.in.Ptr()), Recv: uintptr(r.out.Ptr()), Stream: r.stream.Handle()}
	if inPlace {
		k.Send = k.Recv
	}
	return r.clique.AllReduce([]nccl.Call{k}, r.w.count, ncclType(r.w.dtype), 0)
}

func (r *ncclRank) check(ctx context.Context, o *ncclOrder) (wrong uint64, first string, err error) {
	want, err := r.fill(ctx, o.Seed, o.InPlace)
	if err != nil {
		return 0, "", err
	}
	if err := r.call(o.InPlace); err != nil {
		return 0, "", err
	}
	if err := r.stream.Sync(ctx); err != nil {
		return 0, "", err
	}
	got := make([]byte, len(want))
	if err := r.stream.CopyOut(ctx, got, r.out); err != nil {
		return 0, "", err
	}
	wrong, first = wrongIn(r.w.dtype, got, want)
	return wrong, first, r.clique.Err()
}

// times is the device's time for one call, for each replay of a graph of so many.
func (r *ncclRank) times(ctx context.Context, o *ncclOrder) (times []time.Duration, err error) {
	exec, err := r.capture(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, exec.Close()) }()
	var marks [2]*launcher.Event
	for i := range marks {
		if marks[i], err = r.rt.NewEvent(0, true); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, marks[i].Close()) }()
	}
	for replay := range o.Warmup + o.Replays {
		if err := r.stream.Record(marks[0]); err != nil {
			return nil, err
		}
		if err := exec.Launch(r.stream); err != nil {
			return nil, err
		}
		if err := r.stream.Record(marks[1]); err != nil {
			return nil, err
		}
		if err := r.stream.Sync(ctx); err != nil {
			return nil, err
		}
		d, err := marks[1].Elapsed(marks[0])
		if err != nil {
			return nil, err
		}
		if replay >= o.Warmup {
			times = append(times, d/time.Duration(max(1, o.Calls)))
		}
	}
	return times, r.clique.Err()
}

func (r *ncclRank) capture(o *ncclOrder) (*launcher.Exec, error) {
	if err := r.stream.BeginCapture(); err != nil {
		return nil, err
	}
	var err error
	for range o.Calls {
		if err = r.call(o.InPlace); err != nil {
			break
		}
	}
	graph, end := r.stream.EndCapture() // in any case: a stream left capturing is of no use
	switch {
	case end != nil:
		return nil, errors.Join(err, end)
	case err != nil:
		return nil, errors.Join(err, graph.Close())
	}
	exec, err := graph.Instantiate()
	return exec, errors.Join(err, graph.Close())
}

// free frees the memory of the row.
func (r *ncclRank) free() error {
	if !r.opened {
		return nil
	}
	r.opened = false
	return errors.Join(r.in.Free(), r.out.Free())
}

func (r *ncclRank) close() error {
	errs := []error{r.free()}
	if r.clique != nil {
		errs = append(errs, r.clique.Close())
	}
	if r.stream != nil {
		errs = append(errs, r.stream.Close())
	}
	if r.rt != nil {
		errs = append(errs, r.rt.Close())
	}
	return errors.Join(errs...)
}
