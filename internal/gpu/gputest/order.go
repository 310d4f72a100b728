package gputest

import (
	"fmt"
	"math/rand/v2"

	"github.com/fenceline/fenceline/internal/gpu"
)

// testRandomOrder queues kernels on random streams of device 0 with random event waits between them. Each
// takes a ticket, and the tickets must respect every stream's order and every wait. The same work is then
// captured and replayed.
func testRandomOrder(c *ctx) {
	const streams, steps = 4, 60
	m := c.kernels(0)
	o := &orders{c: c, ticket: c.function(0, m, "ticket"), out: c.alloc(0, 4*(steps+1))}
	for range streams {
		o.streams = append(o.streams, c.stream(0))
	}
	for range streams + 1 {
		o.events = append(o.events, c.event(0, false))
	}
	for seed := range uint64(6) {
		c.NoError(c.d.Memset(0, o.streams[0], o.out, 0, 4*(steps+1)))
		c.wait(0, o.streams[0])
		n := o.queue(seed, steps)
		for _, s := range o.streams {
			c.wait(0, s)
		}
		o.check(n, fmt.Sprintf("seed %d", seed))

		c.NoError(c.d.BeginCapture(0, o.streams[0]))
		c.NoError(c.d.Memset(0, o.streams[0], o.out, 0, 4*(steps+1)))
		o.fork()
		n = o.queue(seed, steps)
		o.join()
		x := c.exec(0, o.streams[0])
		for replay := range 3 {
			c.NoError(c.d.GraphLaunch(0, x, o.streams[replay%streams]))
			c.wait(0, o.streams[replay%streams])
			o.check(n, fmt.Sprintf("seed %d, replay %d", seed, replay))
		}
		// Launched on two streams at once, the graph runs twice, one after the other.
		c.NoError(c.d.GraphLaunch(0, x, o.streams[1]))
		c.NoError(c.d.GraphLaunch(0, x, o.streams[2]))
		c.wait(0, o.streams[1])
		c.wait(0, o.streams[2])
		o.check(n, fmt.Sprintf("seed %d, twice", seed))
	}
}

// orders is the state of testRandomOrder.
type orders struct {
	c       *ctx
	ticket  gpu.Function
	out     gpu.Ptr
	streams []gpu.Stream
	events  []gpu.Event
	before  [][2]uint32 // pairs of marks, the first of which must come first
}

// queue launches kernels and waits, and returns how many kernels it launched.
func (o *orders) queue(seed uint64, steps int) int {
	r := rand.New(rand.NewPCG(seed, 1))
	o.before = nil
	last := make([]uint32, len(o.streams)) // the newest mark on each stream, 0: none
	seen := make([]uint32, len(o.events))  // the newest mark before each event's recording
	owed := make([][]uint32, len(o.streams))
	mark := uint32(0)
	for int(mark) < steps {
		s := r.IntN(len(o.streams))
		e := r.IntN(len(o.streams)) // the last event is for joining
		switch r.IntN(3) {
		case 0:
			mark++
			o.c.launch(0, o.streams[s], o.ticket, 1, 1, o.out, mark)
			for _, b := range append(owed[s], last[s]) {
				if b != 0 {
					o.before = append(o.before, [2]uint32{b, mark})
				}
			}
			last[s], owed[s] = mark, nil
		case 1:
			o.c.NoError(o.c.d.EventRecord(0, o.events[e], o.streams[s]))
			seen[e] = last[s]
		case 2:
			if seen[e] != 0 {
				o.c.NoError(o.c.d.StreamWaitEvent(0, o.streams[s], o.events[e]))
				owed[s] = append(owed[s], seen[e])
			}
		}
	}
	return int(mark)
}

// fork draws every stream into the capture on the first one, and join brings them back.
func (o *orders) fork() {
	e := o.events[len(o.events)-1]
	o.c.NoError(o.c.d.EventRecord(0, e, o.streams[0]))
	for _, s := range o.streams[1:] {
		o.c.NoError(o.c.d.StreamWaitEvent(0, s, e))
	}
}

func (o *orders) join() {
	e := o.events[len(o.events)-1]
	for _, s := range o.streams[1:] {
		o.c.NoError(o.c.d.EventRecord(0, e, s))
		o.c.NoError(o.c.d.StreamWaitEvent(0, o.streams[0], e))
	}
}

func (o *orders) check(n int, what string) {
	o.c.t.Helper()
	w := o.c.getWords(0, o.streams[0], o.out, n+1)
	o.c.EqualValues(n, w[0], what)
	at := make([]int, n+1)
	for i, mark := range w[1:] {
		o.c.LessOrEqual(mark, uint32(n), what)
		at[mark] = i + 1
	}
	for mark := range n {
		o.c.NotZero(at[mark+1], "%s: kernel %d never ran", what, mark+1)
	}
	for _, b := range o.before {
		o.c.Less(at[b[0]], at[b[1]], "%s: kernel %d ran after %d", what, b[0], b[1])
	}
}
