package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progressAfter is how long a run must last before progress is worth showing.
const progressAfter = 2 * time.Second

// progress is a bar on a terminal for runs that take long, and nothing elsewhere.
type progress struct {
	w     io.Writer // nil: show nothing
	label string    // what makes progress
	total int
	start time.Time
	bar   *progressbar.ProgressBar
}

func newProgress(stderr io.Writer, total int) *progress {
	p := &progress{label: "all-reduce", total: total, start: time.Now()}
	if f, ok := stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.w = stderr
	}
	return p
}

// done says that n of the total are finished.
func (p *progress) done(n int) {
	if p.w == nil || p.bar == nil && time.Since(p.start) < progressAfter {
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions(p.total, progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription(p.label),
			progressbar.OptionShowCount(), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetElapsedTime(false), progressbar.OptionSetPredictTime(false)) // it starts late, and sizes differ
	}
	_ = p.bar.Set(n) // a bar that cannot be drawn is no reason to stop
}

// hide takes the bar away so that a line of results can be printed where it stood.
func (p *progress) hide() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// close takes the bar away for good.
func (p *progress) close() {
	p.hide()
	p.w, p.bar = nil, nil
}
