package launcher

import (
	"fmt"

	"github.com/fenceline/fenceline/internal/gpu"
)

// Graph is captured work. Instantiate makes it runnable.
type Graph struct {
	rt   *Runtime
	dev  int
	h    gpu.Graph
	life life
}

// Instantiate makes an executable of the graph, which may be closed afterwards. Kernel arguments
// are those of the capture; memory is read and written anew at each launch, so the buffers
// used must outlive the executable.
func (g *Graph) Instantiate() (*Exec, error) {
	const op = "Instantiate"
	if err := g.rt.alive(op); err != nil {
		return nil, err
	}
	if !g.life.Enter() {
		return nil, &ClosedError{op, g.String()}
	}
	defer g.life.Leave()
	h, err := g.rt.d.GraphInstantiate(g.dev, g.h)
	if err != nil {
		return nil, fmt.Errorf("instantiate %s: %w", g, err)
	}
	return &Exec{rt: g.rt, dev: g.dev, h: h}, nil
}

func (g *Graph) String() string { return fmt.Sprintf("graph of device %d", g.dev) }

// Close destroys the graph; executables made of it live on. Closing again does nothing.
func (g *Graph) Close() error {
	return g.life.end(g.rt, func() error {
		if err := g.rt.d.GraphDestroy(g.dev, g.h); err != nil {
			return fmt.Errorf("close %s: %w", g, err)
		}
		return nil
	})
}

// Exec is an executable graph.
type Exec struct {
	rt   *Runtime
	dev  int
	h    gpu.GraphExec
	life life
}

func (x *Exec) String() string { return fmt.Sprintf("executable graph of device %d", x.dev) }

// Launch queues the whole graph on s, a stream of the device it was captured on. Launches of one
// executable run one after another.
func (x *Exec) Launch(s *Stream) error {
	const op = "graph launch"
	switch {
	case s == nil:
		return invalid(op, x.dev, "nil stream")
	case s.rt != x.rt:
		return invalid(op, x.dev, "the stream belongs to another runtime")
	case s.dev != x.dev:
		return invalid(op, x.dev, "the stream belongs to device %d; use one of device %d", s.dev, x.dev)
	}
	if err := s.use(op); err != nil {
		return err
	}
	defer s.life.Leave()
	if !x.life.Enter() {
		return &ClosedError{op, x.String()}
	}
	defer x.life.Leave()
	s.queue.Lock()
	defer s.queue.Unlock()
	if err := x.rt.d.GraphLaunch(x.dev, x.h, s.h); err != nil {
		return err
	}
	s.last, s.lastK = "graph", nil
	return nil
}

// Close destroys the executable. No launch of it may still be running. Closing again does nothing.
func (x *Exec) Close() error {
	return x.life.end(x.rt, func() error {
		if err := x.rt.d.GraphExecDestroy(x.dev, x.h); err != nil {
			return fmt.Errorf("close %s: %w", x, err)
		}
		return nil
	})
}
