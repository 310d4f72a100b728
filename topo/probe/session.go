package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
)

const (
	guard     = 256  // bytes on each side of the checked memory
	flagBytes = 8192 // of side.flags: flags of up to 128 blocks; each pass uses its own
	// After the abort word is set, kernels have this long to see it.
	slack  = 300 * time.Millisecond
	glance = 20 * time.Millisecond // between two looks at the context while waiting
)

// session is what one probe uses. It is made anew for each, so that one that never ends leaves nothing to share.
type session struct {
	*engine
	pair      Pair
	near, far *side
	host      gpu.HostMem // abort, go
	hung      bool        // work that never ended still uses all this
}

// side is one of the two devices, with its memory.
type side struct {
	*device
	s          gpu.Stream
	start, end gpu.Event
	fenced     gpu.Ptr // data with its guards
	data, copy gpu.Ptr // Bytes each
	flags      gpu.Ptr // flagBytes
	results    gpu.Ptr // resultBytes
	rate       [2]gpu.Ptr
	allocs     []gpu.Ptr
}

// shape is a grid of one dimension.
type shape struct{ blocks, threads uint32 }

func (s shape) count() int { return int(s.blocks * s.threads) }

// small is the grid of the checks: both sides' blocks are resident together, even on one device.
func (e *engine) small() shape { return choose(e.m.Emulated, shape{2, 64}, shape{8, 256}) }

func (s *session) run(ctx context.Context, st *step, r *Result) error {
	if err := s.open(); err != nil {
		return err
	}
	if err := s.setAccess(st.access); err != nil {
		return err
	}
	if st.number() {
		v, err := st.measure(ctx, s)
		r.Value = v
		return err
	}
	c, err := st.check(ctx, s)
	r.Check = &c
	return err
}

// setAccess makes the peer access of the two devices what the step wants.
func (s *session) setAccess(a access) error {
	if s.pair.From == s.pair.To {
		return nil
	}
	set := func(on bool, dev, peer int) error {
		if on {
			return s.d.EnablePeerAccess(dev, peer)
		}
		err := s.d.DisablePeerAccess(dev, peer)
		if errors.Is(err, gpu.ErrPeerAccess) { // there is none to take away
			return nil
		}
		return err
	}
	if err := set(a >= withOne, s.near.ord, s.far.ord); err != nil {
		return err
	}
	return set(a == withBoth, s.far.ord, s.near.ord)
}

func (s *session) open() (err error) {
	if s.host, err = s.d.HostAlloc(64); err != nil {
		return err
	}
	for off := uint64(0); off < 8; off += 4 {
		if err := s.d.HostStore32(s.host, off, 0); err != nil {
			return err
		}
	}
	for _, e := range []*side{s.near, s.far} {
		if e.s, err = s.d.StreamCreate(e.ord); err != nil {
			return err
		}
		if e.start, err = s.d.EventCreate(e.ord, true); err != nil {
			return err
		}
		if e.end, err = s.d.EventCreate(e.ord, true); err != nil {
			return err
		}
		if e.flags, err = s.alloc(e, flagBytes); err != nil {
			return err
		}
		if e.results, err = s.alloc(e, resultBytes); err != nil {
			return err
		}
		if err := s.d.Memset(e.ord, e.s, e.flags, 0, flagBytes); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) alloc(e *side, n uint64) (gpu.Ptr, error) {
	p, err := s.d.MemAlloc(e.ord, n)
	if err == nil {
		e.allocs = append(e.allocs, p)
	}
	return p, err
}

// buffers gives both sides memory for checks: data between guards, and a place for copies.
func (s *session) buffers() (err error) {
	for _, e := range []*side{s.near, s.far} {
		if e.fenced, err = s.alloc(e, s.opts.Bytes+2*guard); err != nil {
			return err
		}
		e.data = e.fenced + guard
		if e.copy, err = s.alloc(e, s.opts.Bytes); err != nil {
			return err
		}
		if err := s.d.Memset(e.ord, e.s, e.fenced, guardByte, s.opts.Bytes+2*guard); err != nil {
			return err
		}
	}
	return nil
}

// close takes everything back and disables the peer access that was enabled. What unfinished work still uses stays.
func (s *session) close() error {
	for _, e := range []*side{s.near, s.far} {
		if s.hung || e.s == 0 {
			continue
		}
		done, err := s.d.StreamWait(e.ord, e.s, slack) // a step that failed half-way left work behind
		s.hung = err != nil || !done
	}
	if s.hung {
		s.near.stuck, s.far.stuck = true, true
		return nil
	}
	var errs []error
	for _, e := range []*side{s.near, s.far} {
		for _, p := range e.allocs {
			errs = append(errs, s.d.MemFree(e.ord, p))
		}
		for _, ev := range []gpu.Event{e.start, e.end} {
			if ev != 0 {
				errs = append(errs, s.d.EventDestroy(e.ord, ev))
			}
		}
		if e.s != 0 {
			errs = append(errs, s.d.StreamDestroy(e.ord, e.s))
		}
	}
	if s.host.Ptr != 0 {
		errs = append(errs, s.d.HostFree(s.host))
	}
	errs = append(errs, s.setAccess(withNone))
	return errors.Join(errs...)
}

// kernelArgs is ProbeArgs of kernels/probe.cu.
type kernelArgs struct {
	src, dst, flag, peerFlag, result gpu.Ptr
	packs, seed                      uint64
	rounds                           int
	first                            bool
}

const argBytes = 80

func (s *session) launch(e *side, entry string, g shape, a kernelArgs) error {
	if a.result == 0 {
		a.result = e.results
	}
	var b [argBytes]byte
	for i, v := range []uint64{uint64(a.src), uint64(a.dst), uint64(a.flag), uint64(a.peerFlag), uint64(s.host.Ptr),
		uint64(a.result), a.packs, a.seed, uint64(s.opts.Timeout.Nanoseconds())} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	binary.LittleEndian.PutUint32(b[72:], uint32(a.rounds))
	binary.LittleEndian.PutUint32(b[76:], choose[uint32](a.first, 1, 0))
	cfg := gpu.LaunchConfig{Grid: gpu.Dim3{X: g.blocks, Y: 1, Z: 1}, Block: gpu.Dim3{X: g.threads, Y: 1, Z: 1}}
	return s.d.Launch(e.ord, e.s, e.fn[entry], &cfg, b[:])
}

// wait waits for the work queued on the sides. Work that is late is told to stop, and given up if it doesn't.
func (s *session) wait(ctx context.Context, sides ...*side) error {
	// Kernels give up by themselves after Timeout, and say why: that is better than to stop them.
	end := time.Now().Add(s.opts.Timeout + slack)
	for _, e := range sides {
		done, err := s.waitUntil(ctx, e, end)
		if err == nil && !done {
			err = s.stop(e)
		}
		if err != nil {
			s.hung = true // or faulted: nothing of it can be released either
			return err
		}
	}
	return nil
}

func (s *session) waitUntil(ctx context.Context, e *side, end time.Time) (bool, error) {
	for {
		left := time.Until(end)
		done, err := s.d.StreamWait(e.ord, e.s, max(0, min(left, glance)))
		if err != nil || done || left <= 0 {
			return done, err
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
	}
}

// stop tells the kernels to stop. Even if they do, they were too late.
func (s *session) stop(e *side) error {
	if err := s.d.HostStore32(s.host, 0, 1); err != nil {
		return err
	}
	if _, err := s.d.StreamWait(e.ord, e.s, slack); err != nil {
		return err
	}
	return &hangError{after: s.opts.Timeout}
}

// fetch reads memory of a side whose stream has ended.
func (s *session) fetch(e *side, p gpu.Ptr, n uint64) ([]byte, error) {
	b := make([]byte, n)
	if err := s.d.CopyOut(e.ord, e.s, b, p); err != nil {
		return nil, fmt.Errorf("fetch results: %w", err)
	}
	return b, nil
}
