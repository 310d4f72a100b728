// Command sum adds up one buffer of each rank.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/launcher"
)

func main() { sum(os.Stdout, launcher.Config{}) } // GPUs, or the emulator where there are none

func sum(w io.Writer, cfg launcher.Config) {
	ctx, rt := context.Background(), must(launcher.Open(cfg))
	defer rt.Close()
	g := must(allreduce.NewGroup(rt, allreduce.Config{})) // one rank per device
	defer g.Close()

	const count, dt = 1000, allreduce.BF16
	host := make([]byte, count*dt.Size())
	in, out := make([]launcher.Buffer, g.World()), make([]launcher.Buffer, g.World())
	for r := range g.World() {
		for i := range uint64(count) {
			dt.Store(host[i*dt.Size():], float32(r+1))
		}
		device, stream := g.Rank(r).Device(), g.Rank(r).Stream()
		in[r], out[r] = must(rt.Alloc(device, count*dt.Size())), must(rt.Alloc(device, count*dt.Size()))
		defer in[r].Free()
		defer out[r].Free()
		check(stream.CopyIn(ctx, in[r], host))
	}

	fmt.Fprintln(w, must(g.Plan(count, dt))) // what it will do, and why
	check(g.AllReduce(in, out, count, dt))   // in[r], out[r]: rank r's buffers; returns at once
	check(g.Sync(ctx))                       // waits, and says what went wrong
	for r := range g.World() {
		check(g.Rank(r).Stream().CopyOut(ctx, host, out[r]))
		fmt.Fprintf(w, "rank %d: %v … %v\n", r, dt.Load(host), dt.Load(host[(count-1)*dt.Size():]))
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
