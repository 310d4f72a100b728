package emu

import (
	"slices"

	"github.com/fenceline/fenceline/internal/gpu"
)

// capture is a graph in the making.
type capture struct {
	origin  *stream
	streams []*stream // origin, and those that joined
	nodes   []node
	ended   bool
	broken  string // why it is void; "" while it is good
}

// node is one op of a graph and the nodes that must end before it.
type node struct {
	op   op
	deps []int
}

// add appends a node that does what o does.
func (c *capture) add(o *op, deps []int) int {
	c.nodes = append(c.nodes, node{deps: slices.Clone(deps)})
	o.copyInto(&c.nodes[len(c.nodes)-1].op)
	return len(c.nodes) - 1
}

// check refuses more work once the capture is void.
func (c *capture) check(op string, s *stream) error {
	if c.broken != "" {
		return fail(op, s.dev.ordinal, gpu.ErrCapture, "the capture is void: %s; end it and start again", c.broken)
	}
	return nil
}

// spoil makes the capture void, as CUDA does for a call not permitted in it, and is that call's error.
func (c *capture) spoil(op string, dev int, why string) error {
	if c.broken == "" {
		c.broken = op + ": " + why
	}
	return fail(op, dev, gpu.ErrCapture, "%s", why)
}

// join makes later work of s depend on a captured event, and s part of its capture.
func (s *stream) join(op string, e *event) error {
	dev := s.dev.ordinal
	switch {
	case s.capture != nil && e.capture != s.capture:
		return s.capture.spoil(op, dev, "the stream is capturing, and the event was recorded outside of that capture")
	case e.capture.ended:
		return fail(op, dev, gpu.ErrCapture, "the event was last recorded in a capture that has ended; record it again")
	}
	c := e.capture
	if err := c.check(op, s); err != nil {
		return err
	}
	if s.capture == nil {
		s.capture = c
		s.deps = s.deps[:0]
		c.streams = append(c.streams, s)
	}
	for _, n := range e.deps {
		if !slices.Contains(s.deps, n) {
			s.deps = append(s.deps, n)
		}
	}
	return nil
}

// end gives every stream back to normal use and says what is wrong with the capture, if anything is.
func (c *capture) end() (why string) {
	joined := c.ancestors(c.origin.deps)
	for _, s := range c.streams {
		for _, n := range s.deps {
			if !joined[n] && c.broken == "" {
				c.broken = "work forked onto another stream was not joined back; record an event there and wait for it on the capture's own stream"
			}
		}
		s.capture, s.deps = nil, nil
	}
	c.ended = true
	return c.broken
}

// ancestors marks the nodes and all that they depend on.
func (c *capture) ancestors(of []int) []bool {
	seen := make([]bool, len(c.nodes))
	todo := slices.Clone(of)
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !seen[n] {
			seen[n] = true
			todo = append(todo, c.nodes[n].deps...)
		}
	}
	return seen
}

func (d *driver) BeginCapture(dev int, h gpu.Stream) error {
	const op = "BeginCapture"
	d.lock()
	defer d.mu.Unlock()
	s, err := d.stream(op, dev, h)
	if err != nil {
		return err
	}
	if s.capture != nil {
		return fail(op, dev, gpu.ErrCapture, "the stream is capturing already")
	}
	s.capture = &capture{origin: s, streams: []*stream{s}}
	s.deps = s.deps[:0]
	return nil
}

func (d *driver) EndCapture(dev int, h gpu.Stream) (gpu.Graph, error) {
	const op = "EndCapture"
	d.lock()
	defer d.mu.Unlock()
	s, err := d.stream(op, dev, h)
	if err != nil {
		return 0, err
	}
	c := s.capture
	switch {
	case c == nil:
		return 0, fail(op, dev, gpu.ErrCapture, "the stream is not capturing")
	case c.origin != s:
		return 0, c.spoil(op, dev, "the capture began on another stream, and ends there")
	}
	if why := c.end(); why != "" {
		return 0, fail(op, dev, gpu.ErrCapture, "the capture is void: %s", why)
	}
	g := gpu.Graph(d.handle())
	d.graphs[g] = &graph{dev: s.dev, nodes: c.nodes}
	d.counts.Graphs++
	return g, nil
}
