// Command addpeer loads a kernel of one's own that adds a peer's memory, read directly, to local memory.
package main

import (
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"os"
	"slices"

	"github.com/fenceline/fenceline/launcher"
)

//go:embed addpeer.ptx
var ptx []byte

func main() { run(os.Stdout, launcher.Config{}) }

func run(out io.Writer, cfg launcher.Config) {
	const n, bytes = 1000, 4 * 1000
	rt, ctx := must(launcher.Open(cfg)), context.Background()
	defer rt.Close() // frees all the rest
	peer := 0        // a device without a peer reads itself
	if len(rt.Devices()) > 1 && must(rt.P2P(0, 1)).Access {
		peer = 1
		must(peer, rt.EnablePeer(0, peer))
	}
	fmt.Fprintf(out, "backend %s (%s): device 0 reads device %d\n", rt.Info().Backend, rt.Info().Why, peer)

	a, b, want := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range n {
		a[i], b[i], want[i] = 0.5, float32(i), 0.5+float32(i)
	}
	upload := func(dev int, values []float32) launcher.Buffer {
		buf, raw := must(rt.Alloc(dev, bytes)), must(binary.Append(nil, binary.LittleEndian, values))
		return must(buf, must(rt.NewStream(dev)).CopyIn(ctx, buf, raw))
	}
	local, theirs := upload(0, a), upload(peer, b)

	kernel := must(must(rt.Load(0, "addpeer.ptx", ptx)).Kernel("add_peer"))
	stream, args, raw := must(rt.NewStream(0)), must(kernel.Pack(local, theirs, n)), make([]byte, bytes)
	must(n, kernel.Launch(stream, launcher.Linear((n+255)/256, 256), args))
	must(n, stream.CopyOut(ctx, raw, local))
	must(binary.Decode(raw, binary.LittleEndian, a))
	if !slices.Equal(a, want) {
		log.Fatalf("wrong sums:\n got %v\nwant %v", a, want)
	}
	fmt.Fprintln(out, "ok")
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatalln("addpeer:", err)
	}
	return v
}
