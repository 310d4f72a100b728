package main

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// checkProgress is a progress that counts cases.
type checkProgress struct{ *progress }

func newCheckProgress(stderr io.Writer, total int) *checkProgress {
	return &checkProgress{newProgress(stderr, total)}
}

// done says that n of the total are finished.
func (p *checkProgress) done(n int) {
	if p.w != nil && p.bar == nil && time.Since(p.start) >= progressAfter {
		p.bar = progressbar.NewOptions(p.total, progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription("check"),
			progressbar.OptionShowCount(), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
	}
	p.progress.done(n)
}
