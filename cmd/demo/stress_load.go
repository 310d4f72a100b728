package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/flags/stress"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
)

// stressLoad is work beside the calls: kernels on some SMs, and large copies, on streams of its own.
type stressLoad struct {
	eg      *errgroup.Group
	stop    context.CancelFunc
	closers []func() error
}

// startLoad begins it on every device in use. Each piece of work is short and followed by a gap, so that a block of the
// kernels under test that finds no room soon does.
func startLoad(rt *launcher.Runtime, rep *stressReport, o *stressSettings) (l *stressLoad, err error) {
	ctx, stop := context.WithCancel(context.Background())
	eg, ctx := errgroup.WithContext(ctx)
	l = &stressLoad{eg: eg, stop: stop}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	seen := map[int]bool{}
	for _, dev := range rep.World.Devices {
		if seen[dev] {
			continue
		}
		seen[dev] = true
		rng := rand.New(rand.NewPCG(o.seed, uint64(dev)))
		if o.loadSM {
			if err := l.busy(ctx, rt, dev, rng); err != nil {
				return l, err
			}
		}
		if o.loadCopy {
			if err := l.copies(ctx, rt, dev, rep, rand.New(rand.NewPCG(o.seed, uint64(dev)+1<<32))); err != nil {
				return l, err
			}
		}
	}
	return l, nil
}

// reach is whether nothing that is stated of two devices, or that probing found, speaks against copies by the one from and to the other's
// memory. Where the driver has no peer access to enable, they pass through the host.
func (r *stressReport) reach(dev, peer int) (pull, push bool) {
	p := r.P2P[dev][peer]
	pull, push = p.Access == topo.No || p.Read != topo.No, p.Access == topo.No || p.Write != topo.No
	if r.Measurement != nil {
		f := r.Measurement.Pairs[dev][peer]
		pull, push = pull && !f.Read.Refutes(), push && !f.Write.Refutes()
	}
	return pull, push
}

// close ends the load and returns its failure, if it had one.
func (l *stressLoad) close() error {
	l.stop()
	errs := []error{l.eg.Wait()}
	for i := len(l.closers) - 1; i >= 0; i-- {
		errs = append(errs, l.closers[i]())
	}
	return errors.Join(errs...)
}

// repeat makes a stream and repeats work on it, each time to its end. between names the devices that it copies between, if any.
func (l *stressLoad) repeat(ctx context.Context, rt *launcher.Runtime, dev int, between string, rng *rand.Rand, work func(*launcher.Stream) error) error {
	s, err := rt.NewStream(dev)
	if err != nil {
		return err
	}
	l.closers = append(l.closers, s.Close)
	gap := 200 * time.Microsecond
	if rt.Info().Emulated {
		gap = 20 * time.Millisecond // its time is the calls' too
	}
	l.eg.Go(func() error {
		for ctx.Err() == nil {
			if err := work(s); err != nil {
				return err
			}
			err := s.Sync(context.WithoutCancel(ctx))
			var late *launcher.TimeoutError
			if errors.As(err, &late) && between != "" {
				return fmt.Errorf("copies between %s: %w: see what demo probe says of them, or use --load sm", between, err)
			}
			if err != nil {
				return err
			}
			time.Sleep(time.Duration(rng.Int64N(int64(gap))))
		}
		return nil
	})
	return nil
}

func (l *stressLoad) busy(ctx context.Context, rt *launcher.Runtime, dev int, rng *rand.Rand) error {
	words, shape, rounds := uint64(1<<22), launcher.Linear(4, 128), 400 // some hundred µs of misses
	if rt.Info().Emulated {
		words, shape, rounds = 1<<10, launcher.Linear(1, 32), 20
	}
	buf, err := rt.Alloc(dev, 4*words)
	if err != nil {
		return err
	}
	l.closers = append(l.closers, buf.Free)
	m, err := rt.Load(dev, "stress.ptx", stress.Kernels(rt.Devices()[dev].SM()))
	if err != nil {
		return err
	}
	l.closers = append(l.closers, m.Close)
	k, err := m.Kernel(stress.BusyKernel)
	if err != nil {
		return err
	}
	args, err := k.Pack(buf, uint32(words-1), rounds)
	if err != nil {
		return err
	}
	return l.repeat(ctx, rt, dev, "", rng, func(s *launcher.Stream) error { return k.Launch(s, shape, args) })
}

// copies copy inside a device, to and from the host, and to and from another device where nothing speaks against it.
func (l *stressLoad) copies(ctx context.Context, rt *launcher.Runtime, dev int, rep *stressReport, rng *rand.Rand) error {
	n := uint64(32 << 20)
	if rt.Info().Emulated {
		n = 16 << 10
	}
	var bufs []launcher.Buffer
	for range 2 {
		b, err := rt.Alloc(dev, n)
		if err != nil {
			return err
		}
		l.closers = append(l.closers, b.Free)
		bufs = append(bufs, b)
	}
	h, err := rt.AllocHost(n)
	if err != nil {
		return err
	}
	l.closers = append(l.closers, h.Free)
	bufs = append(bufs, h.Buffer())
	var far launcher.Buffer
	all := len(rt.Devices())
	peer := (dev + 1) % all
	pull, push, between := false, false, ""
	if all > 1 {
		if far, err = rt.Alloc(peer, n); err != nil {
			return err
		}
		l.closers = append(l.closers, far.Free)
		pull, push = rep.reach(dev, peer)
		between = fmt.Sprintf("devices %d and %d", dev, peer)
	}
	return l.repeat(ctx, rt, dev, between, rng, func(s *launcher.Stream) error {
		k := rng.IntN(3)
		switch way := rng.IntN(4); { // between devices, half of the time
		case way == 1 && push:
			return s.Copy(far, bufs[0])
		case way == 2 && pull:
			return s.Copy(bufs[1], far)
		}
		return s.Copy(bufs[k], bufs[(k+1+rng.IntN(2))%3])
	})
}
