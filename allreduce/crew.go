package allreduce

import (
	"sync"

	"github.com/fenceline/fenceline/flags"
)

// crew queues a whole-group call on several devices side by side, with a goroutine for each device but the first. A launch takes the
// host some microseconds, and the kernels that are there wait for the last one: one after another, eight devices would begin a
// call 20 µs apart. g.queue guards it: one call at a time.
type crew struct {
	g     *Group
	ops   [flags.MaxRanks]operation
	errs  [flags.MaxRanks]error
	hands []hand
	done  chan struct{}
	gone  sync.WaitGroup
}

// crewDevices is how many devices it takes. A goroutine costs more than a launch: on two H200 a call took the host 6.1 to 6.4 µs one after
// the other, and 8.1 to 9.8 side by side.
const crewDevices = 3

// hand is the ranks of one device.
type hand struct {
	ranks []*Rank
	begin chan struct{}
}

// newCrew starts the goroutines, which end with close. nil: the ranks are on fewer than so many devices, and launches are made one at a time.
func newCrew(g *Group, least int) *crew {
	c := &crew{g: g}
	of := map[int]int{}
	for _, r := range g.ranks {
		i, ok := of[r.dev]
		if !ok {
			i = len(c.hands)
			of[r.dev] = i
			c.hands = append(c.hands, hand{begin: make(chan struct{}, 1)})
		}
		c.hands[i].ranks = append(c.hands[i].ranks, r)
	}
	if len(c.hands) < least {
		return nil
	}
	c.done = make(chan struct{}, len(c.hands))
	for _, h := range c.hands[1:] {
		c.gone.Go(func() {
			for range h.begin {
				c.work(h)
				c.done <- struct{}{}
			}
		})
	}
	return c
}

func (c *crew) close() {
	for _, h := range c.hands[1:] {
		close(h.begin)
	}
	c.gone.Wait()
}

// enqueue queues a direct call on every rank. It allocates nothing.
func (c *crew) enqueue(ops []operation) error {
	copy(c.ops[:], ops)
	for _, h := range c.hands[1:] {
		h.begin <- struct{}{}
	}
	c.work(c.hands[0])
	for range c.hands[1:] {
		<-c.done
	}
	return cause(c.errs[:len(c.g.ranks)])
}

func (c *crew) work(h hand) {
	for _, r := range h.ranks {
		c.errs[r.id] = r.enqueue(&c.ops[r.id])
	}
}
