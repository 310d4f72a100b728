package probe

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
)

const (
	runs        = 3                      // the best of so many counts: anything else on the machine only slows them
	runTime     = 100 * time.Millisecond // what one run of a bandwidth may take, about
	maxRepeats  = 32
	copyThreads = 512 // launch bound of probe.cu
	chaseStride = 256 // bytes between two words of the chain: never one line
	warmPart    = 4   // WARM of probe.cu: the first 1/4 of the rounds is not timed
)

// transfer is one way data goes: to's stream pulls from's memory into its own.
type transfer struct{ to, from *side }

// transfers are near pulling from far, and with both also far from near.
func (s *session) transfers(both bool) []transfer {
	t := []transfer{{s.near, s.far}}
	if both {
		t = append(t, transfer{s.far, s.near})
	}
	return t
}

// rateBuffers gives both sides a source and a destination, as large as memory allows up to RateBytes.
func (s *session) rateBuffers(ctx context.Context) (uint64, error) {
	n := s.opts.RateBytes
	for _, e := range []*side{s.near, s.far} {
		free, _, err := s.d.MemInfo(e.ord)
		if err != nil {
			return 0, err
		}
		n = min(n, free/8/unit*unit) // two sides may share a device: half of it at most
	}
	if n == 0 {
		return 0, fmt.Errorf("%w: no memory is free for a bandwidth", gpu.ErrOutOfMemory)
	}
	for _, e := range []*side{s.near, s.far} {
		for i := range e.rate {
			p, err := s.alloc(e, n)
			if err != nil {
				return 0, err
			}
			e.rate[i] = p
			if err := s.d.Memset(e.ord, e.s, p, byte(i), n); err != nil {
				return 0, err
			}
		}
	}
	return n, s.wait(ctx, s.near, s.far)
}

// copyRate measures the copy engine.
func copyRate(both bool) func(context.Context, *session) (float64, error) {
	return func(ctx context.Context, s *session) (float64, error) {
		return s.bandwidth(ctx, both, func(t transfer, n uint64) error {
			if t.to.ord == t.from.ord {
				return s.d.Copy(t.to.ord, t.to.s, t.to.rate[1], t.from.rate[0], n)
			}
			return s.d.CopyPeer(t.to.ord, t.to.s, t.to.rate[1], t.to.ord, t.from.rate[0], t.from.ord, n)
		})
	}
}

// kernelRate measures loads by a kernel that fills its device.
func kernelRate(both bool) func(context.Context, *session) (float64, error) {
	return func(ctx context.Context, s *session) (float64, error) {
		grids := map[*side]shape{}
		for _, t := range s.transfers(both) {
			g := shape{2, 64}
			if !s.m.Emulated {
				per, err := s.d.MaxActiveBlocks(t.to.ord, t.to.fn["copy"], copyThreads, 0)
				if err != nil {
					return 0, err
				}
				g = shape{uint32(max(1, per*t.to.sms)), copyThreads}
			}
			grids[t.to] = g
		}
		return s.bandwidth(ctx, both, func(t transfer, n uint64) error {
			return s.launch(t.to, "copy", grids[t.to], kernelArgs{src: t.from.rate[0], dst: t.to.rate[1], packs: n / 16})
		})
	}
}

// bandwidth times do, in GB/s. As is the custom, memory of the same device counts twice: it is read and written.
func (s *session) bandwidth(ctx context.Context, both bool, do func(t transfer, n uint64) error) (float64, error) {
	n, err := s.rateBuffers(ctx)
	if err != nil {
		return 0, err
	}
	ts := s.transfers(both)
	once := func(repeats int) (time.Duration, error) { return s.timed(ctx, ts, repeats, n, do) }
	if _, err := once(1); err != nil { // the first one also sets up what the driver does lazily
		return 0, err
	}
	warm, err := once(1)
	if err != nil {
		return 0, err
	}
	repeats := int(min(maxRepeats, max(1, runTime/max(warm, 1))))
	var best time.Duration
	for range runs {
		t, err := once(repeats)
		if err != nil {
			return 0, err
		}
		if best == 0 || t < best {
			best = t
		}
	}
	if best <= 0 {
		return 0, fmt.Errorf("%w: %d transfers of %d bytes took no time", gpu.ErrUnknown, repeats, n)
	}
	moved := float64(n) * float64(repeats) * float64(len(ts))
	if s.near.ord == s.far.ord {
		moved *= 2
	}
	return moved / float64(best.Nanoseconds()), nil
}

// timed is the time of all transfers, each repeated, side by side. near's stream begins before and ends after all others.
func (s *session) timed(ctx context.Context, ts []transfer, repeats int, n uint64, do func(t transfer, n uint64) error) (time.Duration, error) {
	near, far := s.near, s.far
	if err := s.d.EventRecord(near.ord, near.start, near.s); err != nil {
		return 0, err
	}
	if len(ts) > 1 {
		if err := s.d.StreamWaitEvent(far.ord, far.s, near.start); err != nil {
			return 0, err
		}
	}
	for range repeats {
		for _, t := range ts {
			if err := do(t, n); err != nil {
				return 0, err
			}
		}
	}
	if len(ts) > 1 {
		if err := s.d.EventRecord(far.ord, far.end, far.s); err != nil {
			return 0, err
		}
		if err := s.d.StreamWaitEvent(near.ord, near.s, far.end); err != nil {
			return 0, err
		}
	}
	if err := s.d.EventRecord(near.ord, near.end, near.s); err != nil {
		return 0, err
	}
	if err := s.wait(ctx, near, far); err != nil {
		return 0, err
	}
	return s.d.EventElapsed(near.ord, near.start, near.end)
}

// flagLatency plays a flag back and forth, each in the other's memory, and halves the time: in ns.
func flagLatency(ctx context.Context, s *session) (float64, error) {
	if err := s.wait(ctx, s.near, s.far); err != nil {
		return 0, err
	}
	rounds := choose(s.m.Emulated, 32, 4000)
	one := shape{1, 1}
	far := kernelArgs{flag: s.far.flags, peerFlag: s.near.flags, rounds: rounds}
	near := kernelArgs{flag: s.near.flags, peerFlag: s.far.flags, rounds: rounds, first: true}
	if s.near.ord == s.far.ord { // the two are words of one device, as far apart as lines need
		near.flag += flagBytes / 2
		far.peerFlag = near.flag
	}
	if err := s.launch(s.far, "ping", one, far); err != nil {
		return 0, err
	}
	if err := s.launch(s.near, "ping", one, near); err != nil {
		return 0, err
	}
	if err := s.wait(ctx, s.near, s.far); err != nil {
		return 0, err
	}
	code, ns, err := s.clocked(s.near)
	if err != nil {
		return 0, err
	}
	if code != 0 {
		return 0, &hangError{after: s.opts.Timeout}
	}
	return float64(ns) / float64(2*(rounds-rounds/warmPart)), nil
}

// loadLatency follows a chain through far's memory: in ns for a load. The chain visits its words in random order, and
// none twice.
func loadLatency(ctx context.Context, s *session) (float64, error) {
	words := choose(s.m.Emulated, 64, 32768)
	table := make([]byte, words*chaseStride)
	order := rand.New(rand.NewPCG(s.seed(seedChase, 0), 0)).Perm(words)
	for i, w := range order {
		next := order[(i+1)%words]
		binary.LittleEndian.PutUint32(table[w*chaseStride:], uint32(next*chaseStride))
	}
	rounds, at := words, uint32(0)
	for range rounds {
		at = binary.LittleEndian.Uint32(table[at:])
	}
	p, err := s.alloc(s.far, uint64(len(table)))
	if err != nil {
		return 0, err
	}
	if err := s.wait(ctx, s.near, s.far); err != nil {
		return 0, err
	}
	if err := s.d.CopyIn(s.far.ord, s.far.s, p, table); err != nil {
		return 0, err
	}
	if err := s.launch(s.near, "chase", shape{1, 1}, kernelArgs{src: p, rounds: rounds}); err != nil {
		return 0, err
	}
	if err := s.wait(ctx, s.near); err != nil {
		return 0, err
	}
	end, ns, err := s.clocked(s.near)
	if err != nil {
		return 0, err
	}
	if end != uint64(at) {
		return 0, fmt.Errorf("%w: a chain of %d loads ended at offset %d, not %d", gpu.ErrUnknown, rounds, end, at)
	}
	return float64(ns) / float64(rounds-rounds/warmPart), nil
}

// clocked reads the two words that ping and chase leave.
func (s *session) clocked(e *side) (word, ns uint64, err error) {
	mem, err := s.fetch(e, e.results, 16)
	if err != nil {
		return 0, 0, err
	}
	return binary.LittleEndian.Uint64(mem), binary.LittleEndian.Uint64(mem[8:]), nil
}
