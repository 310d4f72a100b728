package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/launcher"
)

// guardBytes lie before and after every payload. They keep its start on a 16-byte boundary.
const guardBytes = 256

// bufferBytes is the size of a buffer for r: two guards, the payload, and room to shift it by one element.
func bufferBytes(r row) uint64 { return 2*guardBytes + r.bytes() + r.dtype.Size() }

// bench is the memory of one row: an input and an output on every rank, with guards.
type bench struct {
	g       *allreduce.Group
	row     row
	timeout time.Duration
	capture func(queue func() error) (*allreduce.Graph, error) // not nil: calls are replays of a graph of one call
	queue   func(in, out []launcher.Buffer) error              // queues a call on all ranks; newBench's is the group's
	fill    func(dt allreduce.DType, rng *rand.Rand, in [][]byte)
	in, out []launcher.Buffer         // whole allocations
	regs    []*allreduce.Registration // of both
	image   []byte                    // host copy of one allocation
	payload [][]byte
	want    []byte
	first   []byte // what rank 0 got
}

func newBench(rt *launcher.Runtime, g *allreduce.Group, r row, timeout time.Duration) (*bench, error) {
	b := &bench{g: g, row: r, timeout: timeout, fill: fill, image: make([]byte, bufferBytes(r)), want: make([]byte, r.bytes())}
	b.queue = func(in, out []launcher.Buffer) error { return g.AllReduce(in, out, r.count, r.dtype) }
	for rank := range g.World() {
		for _, list := range []*[]launcher.Buffer{&b.in, &b.out} {
			buf, err := rt.Alloc(g.Rank(rank).Device(), bufferBytes(r))
			if err != nil {
				return nil, errors.Join(fmt.Errorf("buffers of rank %d: %w", rank, err), b.free())
			}
			*list = append(*list, buf)
		}
		b.payload = append(b.payload, make([]byte, r.bytes()))
	}
	return b, nil
}

// register lets peers read the inputs where they are. Those of calls in place are the outputs.
func (b *bench) register() error {
	for _, bufs := range [][]launcher.Buffer{b.in, b.out} {
		reg, err := b.g.Register(bufs)
		if err != nil {
			return err
		}
		b.regs = append(b.regs, reg)
	}
	return nil
}

// fillFor chooses payloads for a plan. NCCL's order of summing, and so its rounding, is its own: it gets numbers whose sums are
// exact in any order. So there is one meaning of wrong for all algorithms, bits that differ, and none that a tolerance would forgive.
func (b *bench) fillFor(p *allreduce.Plan) {
	if p.Algorithm == allreduce.NCCL {
		b.fill = wholeNumbers
	}
}

func (b *bench) free() error {
	var errs []error
	for _, reg := range b.regs {
		errs = append(errs, reg.Close())
	}
	for _, list := range [][]launcher.Buffer{b.in, b.out} {
		for _, buf := range list {
			errs = append(errs, buf.Free())
		}
	}
	return errors.Join(errs...)
}

// body gives the payload's part of each buffer, shift bytes past its aligned start.
func (b *bench) body(bufs []launcher.Buffer, shift uint64) ([]launcher.Buffer, error) {
	list := make([]launcher.Buffer, len(bufs))
	for r, buf := range bufs {
		var err error
		if list[r], err = buf.Slice(guardBytes+shift, b.row.bytes()); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// call queues one call on all ranks and waits for it.
func (b *bench) call(ctx context.Context, in, out []launcher.Buffer) (err error) {
	queue := func() error { return b.queue(in, out) }
	if b.capture == nil {
		err = queue()
	} else {
		var graph *allreduce.Graph
		if graph, err = b.capture(queue); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, graph.Close()) }()
		err = graph.Launch()
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	return b.g.Sync(ctx)
}

// verdict is what one check found.
type verdict struct {
	wrong uint64 // elements that differ from the reference, over all ranks
	stray uint64 // bytes changed that were not the output's
	equal bool   // all ranks have the same bits
	first string // the first thing that is wrong
}

// verify makes new payloads from rng, calls, and compares every byte of all buffers. Out of place, the payload starts
// on a 16-byte boundary; in place, one element past it, so that both kinds of address are checked.
func (b *bench) verify(ctx context.Context, rng *rand.Rand, inPlace bool) (verdict, error) {
	v := verdict{equal: true}
	b.fill(b.row.dtype, rng, b.payload)
	if err := allreduce.Reference(b.row.dtype, b.want, b.payload...); err != nil {
		return v, err
	}
	salt, shift, source := byte(rng.Uint32()), uint64(0), b.in
	if inPlace {
		shift, source = b.row.dtype.Size(), b.out
	}
	if err := b.upload(ctx, source, shift, salt, inPlace); err != nil {
		return v, err
	}
	in, err := b.body(source, shift)
	if err != nil {
		return v, err
	}
	out, err := b.body(b.out, shift)
	if err != nil {
		return v, err
	}
	if err := b.call(ctx, in, out); err != nil {
		return v, err
	}
	for r := range b.g.World() {
		if err := b.compare(ctx, &v, r, "output", b.out[r], shift, salt, b.want); err != nil {
			return v, err
		}
		if inPlace {
			continue
		}
		if err := b.compare(ctx, &v, r, "input", b.in[r], shift, salt, b.payload[r]); err != nil {
			return v, err
		}
	}
	return v, nil
}

// upload writes the guards and payloads, and, out of place, fills the outputs with the pattern.
func (b *bench) upload(ctx context.Context, source []launcher.Buffer, shift uint64, salt byte, inPlace bool) error {
	for r := range b.g.World() {
		stream := b.g.Rank(r).Stream()
		pattern(b.image, salt+byte(r))
		if !inPlace {
			if err := stream.CopyIn(ctx, b.out[r], b.image); err != nil {
				return fmt.Errorf("prepare output of rank %d: %w", r, err)
			}
		}
		copy(b.image[guardBytes+shift:], b.payload[r])
		if err := stream.CopyIn(ctx, source[r], b.image); err != nil {
			return fmt.Errorf("prepare input of rank %d: %w", r, err)
		}
	}
	return nil
}

// pattern fills b with bytes that vary with the place; any two salts differ everywhere.
func pattern(b []byte, salt byte) {
	for i := range b {
		b[i] = byte(i*29) ^ byte(i>>8) + salt
	}
}

// compare reads one buffer of rank r back. Its payload must be want, and all around it the pattern.
func (b *bench) compare(ctx context.Context, v *verdict, r int, what string, buf launcher.Buffer, shift uint64, salt byte, want []byte) error {
	if err := b.g.Rank(r).Stream().CopyOut(ctx, b.image, buf); err != nil {
		return fmt.Errorf("read %s of rank %d: %w", what, r, err)
	}
	start := guardBytes + shift
	got := b.image[start : start+b.row.bytes()]
	switch {
	case what == "output":
		b.compareOutput(v, r, got)
	case !bytes.Equal(got, want):
		for i := range got {
			if got[i] != want[i] {
				v.addStray("rank %d: byte %d of the input was overwritten: %#02x, was %#02x", r, i, got[i], want[i])
			}
		}
	}
	guard := make([]byte, len(b.image))
	pattern(guard, salt+byte(r))
	copy(guard[start:], got) // judged above
	if bytes.Equal(guard, b.image) {
		return nil
	}
	for i := range guard {
		if guard[i] != b.image[i] {
			v.addStray("rank %d: byte %d relative to the %s of %d bytes was overwritten: %#02x, was %#02x", r, i-int(start), what, len(got), b.image[i], guard[i])
		}
	}
	return nil
}

func (v *verdict) addStray(format string, args ...any) {
	v.stray++
	v.note(format, args...)
}

func (v *verdict) note(format string, args ...any) {
	if v.first == "" {
		v.first = fmt.Sprintf(format, args...)
	}
}

// compareOutput counts the elements of rank r that differ from the reference.
func (b *bench) compareOutput(v *verdict, r int, got []byte) {
	if r == 0 {
		b.first = append(b.first[:0], got...)
	} else if !bytes.Equal(b.first, got) {
		v.equal = false
	}
	if bytes.Equal(got, b.want) {
		return
	}
	width := int(b.row.dtype.Size())
	for at := 0; at < len(got); at += width {
		g, w := got[at:at+width], b.want[at:at+width]
		if bytes.Equal(g, w) {
			continue
		}
		v.wrong++
		v.note("rank %d: element %d is %s, the reference has %s", r, at/width, show(b.row.dtype, g), show(b.row.dtype, w))
	}
}

// show is an element as bits and as a number.
func show(dt allreduce.DType, b []byte) string {
	bits := ""
	for i := range b {
		bits = fmt.Sprintf("%02x", b[i]) + bits
	}
	return fmt.Sprintf("0x%s (%g)", bits, dt.Load(b))
}
