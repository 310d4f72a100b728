package main

import (
	"fmt"
	"io"
	"time"
)

// heartbeat shows that a long run is alive: a bar on a terminal, otherwise a line now and then.
type heartbeat struct {
	w     io.Writer
	bar   *progress
	start time.Time
	last  time.Time
	total stressTally
	since stressTally // the last line
}

// beatEvery is how often a line comes.
const beatEvery = 10 * time.Second

func newHeartbeat(w io.Writer, length time.Duration) *heartbeat {
	now := time.Now()
	return &heartbeat{w: w, bar: newProgress(w, int(length/time.Second)+1), start: now, last: now}
}

// add counts a batch, and shows it when it is time. A nil heartbeat does nothing.
func (h *heartbeat) add(t *stressTally) {
	if h == nil {
		return
	}
	h.total.add(t)
	h.since.add(t)
	now := time.Now()
	if h.bar.w != nil {
		h.bar.done(min(int(now.Sub(h.start)/time.Second), h.bar.total))
		return
	}
	if now.Sub(h.last) < beatEvery {
		return
	}
	q := h.since.times.quantiles()
	fmt.Fprintf(h.w, "demo: stress %v: %d calls, %.0f calls/s, %d wrong; p50 %.1f p99 %.1f max %.1f µs\n", now.Sub(h.start).Round(time.Second),
		h.total.Calls, float64(h.since.Calls)/now.Sub(h.last).Seconds(), h.total.Wrong+h.total.Stray, q.P50, q.P99, q.Max)
	h.last, h.since = now, stressTally{}
}

func (h *heartbeat) close() { h.bar.close() }
