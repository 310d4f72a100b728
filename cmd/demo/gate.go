package main

import (
	"errors"
	"time"

	"github.com/fenceline/fenceline/flags/stress"
	"github.com/fenceline/fenceline/launcher"
)

const (
	gateBase, gateRank = 200 * time.Microsecond, 100 * time.Microsecond // what a replay takes to queue, about
	gateMost           = 100 * time.Millisecond
)

// gate holds all ranks until everything is queued, so that none is timed while it waits for the host to launch its peers.
type gate struct {
	module *launcher.Module
	kernel *launcher.Kernel
	stream *launcher.Stream
	opened *launcher.Event
	hold   time.Duration
}

func newGate(rt *launcher.Runtime, device, ranks int) (g *gate, err error) {
	g = &gate{hold: gateBase + time.Duration(ranks)*gateRank}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	if g.module, err = rt.Load(device, "stress.ptx", stress.Kernels(rt.Devices()[device].SM())); err != nil {
		return g, err
	}
	if g.kernel, err = g.module.Kernel(stress.PauseKernel); err != nil {
		return g, err
	}
	if g.stream, err = rt.NewStream(device); err != nil {
		return g, err
	}
	g.opened, err = rt.NewEvent(device, false)
	return g, err
}

func (g *gate) close() error {
	var errs []error
	if g.opened != nil {
		errs = append(errs, g.opened.Close())
	}
	if g.stream != nil {
		errs = append(errs, g.stream.Close())
	}
	if g.module != nil {
		errs = append(errs, g.module.Close())
	}
	return errors.Join(errs...)
}

// shut closes the gate for a time; a stream that waits for opened stands behind it.
func (g *gate) shut() error {
	args, err := g.kernel.Pack(uint64(g.hold.Nanoseconds()))
	if err != nil {
		return err
	}
	if err := g.kernel.Launch(g.stream, launcher.Linear(1, 1), args); err != nil {
		return err
	}
	return g.stream.Record(g.opened)
}

// early is whether the gate opened before all was queued. It holds longer the next time.
func (g *gate) early() (bool, error) {
	open, err := g.opened.Query()
	if open && err == nil {
		g.hold = min(2*g.hold, gateMost)
	}
	return open, err
}
