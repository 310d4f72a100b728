package launcher

import (
	"context"
	"fmt"
	"time"

	"github.com/fenceline/fenceline/internal/gpu"
)

// Event marks a point in a stream's work.
type Event struct {
	rt     *Runtime
	dev    int
	timing bool
	h      gpu.Event
	life   life
}

// NewEvent makes an event on dev. Only events made with timing can be given to Elapsed; without,
// they are cheaper.
func (rt *Runtime) NewEvent(dev int, timing bool) (*Event, error) {
	if err := rt.check("NewEvent", dev); err != nil {
		return nil, err
	}
	h, err := rt.d.EventCreate(dev, timing)
	if err != nil {
		return nil, fmt.Errorf("new event: %w", err)
	}
	return &Event{rt: rt, dev: dev, timing: timing, h: h}, nil
}

// Device is the ordinal of the event's device.
func (e *Event) Device() int { return e.dev }

func (e *Event) String() string { return fmt.Sprintf("event of device %d", e.dev) }

// Sync waits for what the event recorded last; an event never recorded is done. It returns a
// *TimeoutError when ctx ends first.
func (e *Event) Sync(ctx context.Context) error {
	t := TimeoutError{What: e.String(), Device: e.dev}
	return e.rt.wait(ctx, t, func(limit time.Duration) (bool, error) { return e.poll("Sync", limit) })
}

// Query says whether what the event recorded last is done. It does not wait.
func (e *Event) Query() (bool, error) { return e.poll("Query", 0) }

func (e *Event) poll(op string, limit time.Duration) (bool, error) {
	if err := e.use(op); err != nil {
		return false, err
	}
	defer e.life.Leave()
	return e.rt.d.EventWait(e.dev, e.h, limit)
}

// Elapsed is the device time from the event from to e: both with timing, of one device, recorded
// and done; otherwise it is ErrInvalidValue.
func (e *Event) Elapsed(from *Event) (time.Duration, error) {
	const op = "Elapsed"
	switch {
	case from == nil:
		return 0, invalid(op, e.dev, "nil event")
	case from.rt != e.rt:
		return 0, invalid(op, e.dev, "the events belong to different runtimes")
	case from.dev != e.dev:
		return 0, invalid(op, e.dev, "the other event belongs to device %d; time two events of one device", from.dev)
	case !from.timing || !e.timing:
		return 0, invalid(op, e.dev, "an event was made without timing; pass true to NewEvent for both")
	}
	if err := e.use(op); err != nil {
		return 0, err
	}
	defer e.life.Leave()
	// Measuring an event against itself is odd but legal, and it is entered already.
	if from != e {
		if err := from.use(op); err != nil {
			return 0, err
		}
		defer from.life.Leave()
	}
	return e.rt.d.EventElapsed(e.dev, from.h, e.h)
}

// Close destroys the event. Closing again does nothing.
func (e *Event) Close() error {
	return e.life.end(e.rt, func() error {
		if err := e.rt.d.EventDestroy(e.dev, e.h); err != nil {
			return fmt.Errorf("close %s: %w", e, err)
		}
		return nil
	})
}

func (e *Event) use(op string) error {
	if err := e.rt.alive(op); err != nil {
		return err
	}
	if !e.life.Enter() {
		return &ClosedError{op, e.String()}
	}
	return nil
}
