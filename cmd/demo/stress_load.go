package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenceline/fenceline/flags/stress"
	"github.com/fenceline/fenceline/launcher"
)

// stressLoad is work beside the calls: kernels on some SMs, and large copies, on streams of its own.
type stressLoad struct {
	eg      *errgroup.Group
	stop    context.CancelFunc
	closers []func() error
}

// startLoad begins it on every device in use. Each piece of work is short and followed by a gap, so that a block of the
// kernels under test that finds no room soon does.
func startLoad(rt *launcher.Runtime, devices []int, o *stressSettings) (l *stressLoad, err error) {
	ctx, stop := context.WithCancel(context.Background())
	eg, ctx := errgroup.WithContext(ctx)
	l = &stressLoad{eg: eg, stop: stop}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	seen := map[int]bool{}
	for _, dev := range devices {
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
			if err := l.copies(ctx, rt, dev, rand.New(rand.NewPCG(o.seed, uint64(dev)+1<<32))); err != nil {
				return l, err
			}
		}
	}
	return l, nil
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

// repeat makes a stream and repeats work on it, each time to its end.
func (l *stressLoad) repeat(ctx context.Context, rt *launcher.Runtime, dev int, rng *rand.Rand, work func(*launcher.Stream) error) error {
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
			if err := s.Sync(context.WithoutCancel(ctx)); err != nil {
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
	return l.repeat(ctx, rt, dev, rng, func(s *launcher.Stream) error { return k.Launch(s, shape, args) })
}

func (l *stressLoad) copies(ctx context.Context, rt *launcher.Runtime, dev int, rng *rand.Rand) error {
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
	if all := len(rt.Devices()); all > 1 {
		if far, err = rt.Alloc((dev+1)%all, n); err != nil {
			return err
		}
		l.closers = append(l.closers, far.Free)
	}
	return l.repeat(ctx, rt, dev, rng, func(s *launcher.Stream) error {
		k := rng.IntN(3)
		switch far.Size() * uint64(rng.IntN(4)) { // between devices, half of the time
		case n:
			return s.Copy(far, bufs[0])
		case 2 * n:
			return s.Copy(bufs[1], far)
		}
		return s.Copy(bufs[k], bufs[(k+1+rng.IntN(2))%3])
	})
}
