package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/topo"
)

const (
	guardByte   = 0x5a
	passes      = 2  // over the same memory: the second finds stale data
	flagRounds  = 32 // regions of one pass of the flag check
	flagStride  = 64 // FLAG_STRIDE of kernels/probe.cu
	resultBytes = 64 << 10
)

// Words of the seeds, so that no two probes share a pattern.
const (
	seedWrite = iota + 1
	seedRead
	seedFlags
	seedPull
	seedChase
)

func (s *session) seed(what, pass int) uint64 {
	return derive(s.opts.Seed, uint64(s.pair.From), uint64(s.pair.To), uint64(what), uint64(pass))
}

func (s *session) packs() uint64 { return s.opts.Bytes / 16 }

// fillOwn writes a pattern into a side's own memory, and makes sure that it is there.
func (s *session) fillOwn(ctx context.Context, e *side, seed uint64) error {
	if err := s.launch(e, "fill", s.small(), kernelArgs{dst: e.data, packs: s.packs(), seed: seed}); err != nil {
		return err
	}
	if err := s.wait(ctx, e); err != nil {
		return err
	}
	mem, err := s.fetch(e, e.data, s.opts.Bytes)
	if err != nil {
		return err
	}
	if c := compare("own memory", mem, seed, 0); c.Answer != topo.Yes {
		return fmt.Errorf("device %d: %w: %s: the device is broken", e.ord, ErrOwn, c.Detail)
	}
	return nil
}

// take copies src with a kernel on e to e's own memory and returns it.
func (s *session) take(ctx context.Context, e *side, src gpu.Ptr) ([]byte, error) {
	if err := s.d.Memset(e.ord, e.s, e.copy, guardByte, s.opts.Bytes); err != nil {
		return nil, err
	}
	if err := s.launch(e, "copy", s.small(), kernelArgs{src: src, dst: e.copy, packs: s.packs()}); err != nil {
		return nil, err
	}
	if err := s.wait(ctx, e); err != nil {
		return nil, err
	}
	return s.fetch(e, e.copy, s.opts.Bytes)
}

// ready gives both sides their buffers and lets all that was queued for it end.
func (s *session) ready(ctx context.Context) error {
	if err := s.buffers(); err != nil {
		return err
	}
	return s.wait(ctx, s.near, s.far)
}

// checkRead: far writes its own memory, and a kernel on near reads it.
func checkRead(ctx context.Context, s *session) (c topo.Check, err error) {
	if err := s.ready(ctx); err != nil {
		return c, err
	}
	before := s.seed(seedRead, passes)
	for pass := range passes {
		seed := s.seed(seedRead, pass)
		if err := s.fillOwn(ctx, s.far, seed); err != nil {
			return c, err
		}
		mem, err := s.take(ctx, s.near, s.far.data)
		if err != nil {
			return c, err
		}
		if c = compare("", mem, seed, before); c.Answer != topo.Yes {
			return c, nil
		}
		before = seed
	}
	return c, nil
}

// checkWrite: a kernel on near writes far's memory, and a kernel on far reads it.
func checkWrite(ctx context.Context, s *session) (c topo.Check, err error) {
	if err := s.ready(ctx); err != nil {
		return c, err
	}
	before := s.seed(seedWrite, passes)
	if err := s.fillOwn(ctx, s.far, before); err != nil {
		return c, err
	}
	for pass := range passes {
		seed := s.seed(seedWrite, pass)
		if err := s.launch(s.near, "fill", s.small(), kernelArgs{dst: s.far.data, packs: s.packs(), seed: seed}); err != nil {
			return c, err
		}
		if err := s.wait(ctx, s.near); err != nil {
			return c, err
		}
		mem, err := s.take(ctx, s.far, s.far.data)
		if err != nil {
			return c, err
		}
		if c = compare("", mem, seed, before); c.Answer != topo.Yes {
			return c, nil
		}
		before = seed
	}
	return s.checkGuards()
}

// checkGuards looks whether a write went beside its place.
func (s *session) checkGuards() (topo.Check, error) {
	whole := bytes.Repeat([]byte{guardByte}, guard)
	want := binary.LittleEndian.Uint64(whole)
	for _, p := range []gpu.Ptr{s.far.fenced, s.far.data + gpu.Ptr(s.opts.Bytes)} {
		mem, err := s.fetch(s.far, p, guard)
		if err != nil {
			return topo.Check{}, err
		}
		for i := 0; i < guard; i += 8 {
			if got := binary.LittleEndian.Uint64(mem[i:]); got != want {
				where := choose(p == s.far.fenced, fmt.Sprintf("%d bytes before", guard-i), fmt.Sprintf("%d bytes after", i))
				return topo.Check{Answer: topo.No, Expected: want, Got: got,
					Detail: fmt.Sprintf("memory %s the buffer changed from %#x to %#x", where, want, got)}, nil
			}
		}
	}
	return topo.Check{Answer: topo.Yes}, nil
}

// checkFlags: near writes data and then flags into far's memory, and far, when it sees a flag, copies the data. If
// reads work, the other way to use the pair is checked too: far writes data and flags in its own memory, and near
// polls and copies from there.
func checkFlags(ctx context.Context, s *session) (c topo.Check, err error) {
	if err := s.ready(ctx); err != nil {
		return c, err
	}
	before := uint64(0)
	for pass := range passes {
		seed := s.seed(seedFlags, pass)
		if c, err = s.flagPass(ctx, "", s.near, s.far, pass, seed, before); err != nil || c.Answer != topo.Yes {
			return c, err
		}
		before = seed
	}
	if !yes(s.pairs[s.pair.From][s.pair.To].Read) {
		return c, nil
	}
	for pass := range passes {
		seed := s.seed(seedPull, pass)
		c, err = s.flagPass(ctx, "flags polled by the reader", s.far, s.near, passes+pass, seed, before)
		if err != nil || c.Answer != topo.Yes {
			return c, err
		}
		before = seed
	}
	return c, nil
}

// flagPass lets from post all regions of far's memory with their flags, while to waits for each and copies it. number
// tells the passes apart: each has flags of its own.
func (s *session) flagPass(ctx context.Context, what string, from, to *side, number int, seed, before uint64) (c topo.Check, err error) {
	g := s.small()
	a := kernelArgs{src: s.far.data, dst: to.copy, flag: s.far.flags + gpu.Ptr(uint32(number)*g.blocks*flagStride),
		packs: s.packs() / flagRounds, seed: seed, rounds: flagRounds}
	if err := s.d.Memset(to.ord, to.s, to.copy, guardByte, s.opts.Bytes); err != nil {
		return c, err
	}
	if err := s.wait(ctx, to); err != nil {
		return c, err
	}
	if err := s.launch(to, "expect", g, a); err != nil {
		return c, err
	}
	a.dst = s.far.data
	if err := s.launch(from, "post", g, a); err != nil {
		return c, err
	}
	if err := s.wait(ctx, from, to); err != nil {
		return c, err
	}
	codes, err := s.fetch(to, to.results, 16*uint64(g.blocks))
	if err != nil {
		return c, err
	}
	for b := range int(g.blocks) {
		code, round := binary.LittleEndian.Uint64(codes[16*b:]), binary.LittleEndian.Uint64(codes[16*b+8:])
		if code != 0 {
			return topo.Check{Answer: topo.No, Detail: fmt.Sprintf("%stimed out: flag %d of %d of block %d was not seen within %v",
				prefix(what), round+1, flagRounds, b, s.opts.Timeout)}, nil
		}
	}
	mem, err := s.fetch(to, to.copy, s.opts.Bytes)
	if err != nil {
		return c, err
	}
	return compare(what, mem, seed, before), nil
}

// checkAtomics: both sides add to one word of far's at the same time. The sum must be right, and each addition must
// have returned another value.
func checkAtomics(ctx context.Context, s *session) (c topo.Check, err error) {
	if err := s.wait(ctx, s.near, s.far); err != nil {
		return c, err
	}
	g, rounds := choose(s.m.Emulated, shape{2, 32}, shape{4, 128}), choose(s.m.Emulated, 16, 256)
	sides := []*side{s.near, s.far}
	for _, e := range sides {
		if err := s.d.Memset(e.ord, e.s, e.results, 0, resultBytes); err != nil {
			return c, err
		}
		if err := s.launch(e, "add", g, kernelArgs{flag: s.far.flags, rounds: rounds}); err != nil {
			return c, err
		}
	}
	if err := s.d.HostStore32(s.host, 4, 1); err != nil { // both may go
		return c, err
	}
	if err := s.wait(ctx, sides...); err != nil {
		return c, err
	}
	var returned uint64
	for _, e := range sides {
		mem, err := s.fetch(e, e.results, 8*uint64(g.count()))
		if err != nil {
			return c, err
		}
		for i := range g.count() {
			returned += binary.LittleEndian.Uint64(mem[8*i:])
		}
	}
	mem, err := s.fetch(s.far, s.far.flags, 4)
	if err != nil {
		return c, err
	}
	n := uint64(2 * g.count() * rounds)
	c = topo.Check{Answer: topo.Yes}
	if got := uint64(binary.LittleEndian.Uint32(mem)); got != n {
		c = topo.Check{Answer: topo.No, Expected: n, Got: got, Detail: fmt.Sprintf("%d additions of 1 made %d", n, got)}
	} else if want := n * (n - 1) / 2; returned != want {
		c = topo.Check{Answer: topo.No, Expected: want, Got: returned,
			Detail: fmt.Sprintf("what %d additions returned adds up to %d, not %d", n, returned, want)}
	}
	return c, nil
}
