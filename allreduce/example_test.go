package allreduce_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
	"github.com/fenceline/fenceline/topo/probe"
)

// A whole program: two ranks, a buffer each, one call. launcher.Config{} would take GPUs where there are any.
func ExampleNewGroup() {
	rt, err := launcher.Open(launcher.Config{Backend: launcher.Emu, Devices: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()
	g, err := allreduce.NewGroup(rt, allreduce.Config{Timeout: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	ctx := context.Background()

	const count = 4
	dt := allreduce.F32
	var in, out []launcher.Buffer
	for r := range g.World() {
		host := make([]byte, count*dt.Size())
		for i := range uint64(count) {
			dt.Store(host[i*dt.Size():], float32(r+1)*float32(i))
		}
		for _, bufs := range []*[]launcher.Buffer{&in, &out} {
			b, err := rt.Alloc(g.Rank(r).Device(), uint64(len(host))) // bytes
			if err != nil {
				log.Fatal(err)
			}
			defer b.Free()
			*bufs = append(*bufs, b)
		}
		if err := g.Rank(r).Stream().CopyIn(ctx, in[r], host); err != nil {
			log.Fatal(err)
		}
	}

	if err := g.AllReduce(in, out, count, dt); err != nil { // queues it
		log.Fatal(err)
	}
	if err := g.Sync(ctx); err != nil { // waits for it
		log.Fatal(err)
	}
	for r := range g.World() {
		host := make([]byte, count*dt.Size())
		if err := g.Rank(r).Stream().CopyOut(ctx, host, out[r]); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("rank %d:", r)
		for i := range uint64(count) {
			fmt.Print(" ", dt.Load(host[i*dt.Size():]))
		}
		fmt.Println()
	}
	// Output:
	// rank 0: 0 3 6 9
	// rank 1: 0 3 6 9
}

// One goroutine per rank, each with its own part of the work: the way that suits every algorithm.
func ExampleRank_AllReduce() {
	e := open(3)
	defer e.close()
	err := e.g.Each(context.Background(), func(ctx context.Context, r *allreduce.Rank) error {
		in, out := e.in[r.ID()], e.out[r.ID()]
		if err := r.Stream().CopyIn(ctx, in, f32(float32(r.ID()))); err != nil {
			return err
		}
		if err := r.AllReduce(in, out, 1, allreduce.F32); err != nil {
			return err
		}
		return r.Sync(ctx)
	})
	fmt.Println(err)
	fmt.Println(e.read(0), e.read(1), e.read(2))
	// Output:
	// <nil>
	// 3 3 3
}

// Calls are captured once, and replayed with whatever the buffers hold by then.
func ExampleGroup_Capture() {
	e := open(2)
	defer e.close()
	graph, err := e.g.Capture(func() error {
		if err := e.g.AllReduce(e.in, e.out, 1, allreduce.F32); err != nil {
			return err
		}
		return e.g.AllReduce(e.out, e.out, 1, allreduce.F32) // in place
	})
	if err != nil {
		log.Fatal(err)
	}
	defer graph.Close()
	for step := range 3 {
		e.write(float32(step), 1)
		if err := graph.Launch(); err != nil {
			log.Fatal(err)
		}
		if err := e.g.Sync(context.Background()); err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.read(0), e.read(1))
	}
	// Output:
	// 2 2
	// 4 4
	// 6 6
}

// What would be done on a machine that is only described: here, in the words of `nvidia-smi topo -m`.
func ExampleSelect() {
	machine, err := topo.ParseSMI("paste", []byte("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n"))
	if err != nil {
		log.Fatal(err)
	}
	for _, knobs := range []allreduce.Knobs{{}, {P2PDisable: true}} {
		plan, err := allreduce.Select(allreduce.SelectInput{
			Machine: machine, Devices: []int{0, 1}, // rank 0 on device 0, rank 1 on device 1
			Bytes: 64 << 10, DType: allreduce.BF16, Knobs: knobs,
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(plan)
	}
	// Output:
	// oneshot-wide (22×64): all 2 devices reach each other directly, if their NVLinks mean what they usually do: nothing states their peer access; the default up to 1572864 bytes of 2 ranks over NVLink
	// host (16×256): FENCELINE_P2P_DISABLE=1 turns direct access off, so direct kernels cannot run and copies would pass through host memory anyway
}

// A program passes the environment on; here, one that an operator set wrongly.
func ExampleKnobsFromEnv() {
	knobs, err := allreduce.KnobsFromEnv([]string{"HOME=/root", "FENCELINE_ALGO=host", "FENCELINE_TIMEOUT=500ms"}) // os.Environ()
	fmt.Println(knobs.Algorithm, knobs.Timeout, err)
	_, err = allreduce.KnobsFromEnv([]string{"FENCELINE_ALGO=fast"})
	fmt.Println(err)
	// Output:
	// host 500ms <nil>
	// environment: FENCELINE_ALGO="fast": want auto, oneshot-pull, oneshot-push, twoshot-pull, twoshot-push, oneshot-wide, twoshot-wide, copy, host, nccl
}

// Probing the devices before a group is made, so that a path that only claims to work is not taken. On GPUs use
// probe.RunChild, or what `demo probe` left in topo's cache.
func ExampleConfig_measurement() {
	rt, err := launcher.Open(launcher.Config{Backend: launcher.Emu, Devices: 2})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()
	machine, err := topo.FromDriver(rt.Driver())
	if err != nil {
		log.Fatal(err)
	}
	measured, err := probe.Run(context.Background(), rt.Driver(), machine, probe.Options{Timeout: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	g, err := allreduce.NewGroup(rt, allreduce.Config{Machine: machine, Measurement: measured})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	plan, err := g.Plan(1000, allreduce.F16)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(plan.Algorithm, "-", plan.Reason)
	// Output:
	// oneshot-push - all 2 devices reach each other directly, as probing found; the default up to 32768 bytes of 2 ranks over NVLink
}

// env is what ExampleNewGroup makes step by step, for one element of f32 on each rank.
type env struct {
	rt      *launcher.Runtime
	g       *allreduce.Group
	in, out []launcher.Buffer
}

func open(ranks int) *env {
	rt, err := launcher.Open(launcher.Config{Backend: launcher.Emu, Devices: ranks})
	if err != nil {
		log.Fatal(err)
	}
	e := &env{rt: rt}
	if e.g, err = allreduce.NewGroup(rt, allreduce.Config{Timeout: 30 * time.Second}); err != nil {
		log.Fatal(err)
	}
	for r := range ranks {
		for _, bufs := range []*[]launcher.Buffer{&e.in, &e.out} {
			b, err := rt.Alloc(e.g.Rank(r).Device(), allreduce.F32.Size())
			if err != nil {
				log.Fatal(err)
			}
			*bufs = append(*bufs, b)
		}
	}
	return e
}

func (e *env) close() {
	errs := []error{e.g.Close()}
	for _, b := range append(e.in, e.out...) {
		errs = append(errs, b.Free())
	}
	for _, err := range append(errs, e.rt.Close()) {
		if err != nil {
			log.Fatal(err)
		}
	}
}

func f32(v float32) []byte {
	b := make([]byte, allreduce.F32.Size())
	allreduce.F32.Store(b, v)
	return b
}

func (e *env) write(values ...float32) {
	for r, v := range values {
		if err := e.g.Rank(r).Stream().CopyIn(context.Background(), e.in[r], f32(v)); err != nil {
			log.Fatal(err)
		}
	}
}

func (e *env) read(rank int) float32 {
	b := make([]byte, allreduce.F32.Size())
	if err := e.g.Rank(rank).Stream().CopyOut(context.Background(), b, e.out[rank]); err != nil {
		log.Fatal(err)
	}
	return allreduce.F32.Load(b)
}
