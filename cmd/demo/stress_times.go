package main

import (
	"math/bits"
	"time"
)

// stressTimes counts durations in classes of about 3 %.
type stressTimes struct {
	n    uint64
	most time.Duration
	of   []uint64 // by class
}

const timeSteps = 32 // classes for each power of two

func timeClass(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < timeSteps {
		return int(v)
	}
	shift := bits.Len64(v) - 6 // leaves 32 to 63
	return shift*timeSteps + int(v>>shift)
}

// classEnd is the longest duration of a class.
func classEnd(c int) time.Duration {
	if c < timeSteps {
		return time.Duration(c)
	}
	shift := c/timeSteps - 1
	return time.Duration(uint64(c-shift*timeSteps+1)<<shift - 1)
}

func (t *stressTimes) add(d time.Duration) {
	if t.of == nil {
		t.of = make([]uint64, 64*timeSteps)
	}
	t.n++
	t.of[timeClass(d)]++
	t.most = max(t.most, d)
}

func (t *stressTimes) merge(o *stressTimes) {
	if o.n == 0 {
		return
	}
	if t.of == nil {
		t.of = make([]uint64, 64*timeSteps)
	}
	t.n, t.most = t.n+o.n, max(t.most, o.most)
	for i, n := range o.of {
		t.of[i] += n
	}
}

// quantile is the duration that a share q of all do not exceed; 0 of none.
func (t *stressTimes) quantile(q float64) time.Duration {
	var seen uint64
	for c, n := range t.of {
		if seen += n; n > 0 && float64(seen) >= q*float64(t.n) {
			return min(classEnd(c), t.most)
		}
	}
	return 0
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
