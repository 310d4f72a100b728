package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Report is what Run found.
type Report struct {
	Version int    `json:"version"` // FormatVersion
	Status  Status `json:"status"`  // the worst finding's; what was skipped counts as ok
	First   string `json:"first,omitempty"`
	// Interrupted: not all was looked at, so there is no verdict.
	Interrupted bool      `json:"interrupted,omitempty"`
	Findings    []Finding `json:"findings"` // in causal order
}

// Blocker is the finding to mend first: the first that failed, or else the first warning. It is nil when there is neither.
func (r *Report) Blocker() *Finding {
	for _, s := range []Status{Fail, Warn} {
		for i := range r.Findings {
			if r.Findings[i].Status == s {
				return &r.Findings[i]
			}
		}
	}
	return nil
}

// Finding is the finding of that ID, nil when there is none.
func (r *Report) Finding(id string) *Finding {
	for i := range r.Findings {
		if r.Findings[i].ID == id {
			return &r.Findings[i]
		}
	}
	return nil
}

func (r *Report) worst() Status {
	worst := OK
	for _, f := range r.Findings {
		if f.Status != Skipped { // what does not apply is no fault
			worst = max(worst, f.Status)
		}
	}
	return worst
}

// WriteJSON writes the report as indented JSON with a final newline.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write doctor's report: %w", err)
	}
	return nil
}

// Write prints what to mend first and how, then all findings with what they rest on.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	r.headline(&b)
	b.WriteByte('\n')
	width := 0
	for _, f := range r.Findings {
		width = max(width, len(f.Title))
	}
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%-7s  %-*s  %s\n", f.Status, width, f.Title, f.Result)
		for _, e := range f.Evidence {
			fmt.Fprintf(&b, "         - %s: %s\n", e.Source, e.Said)
		}
		for _, s := range f.Remedy {
			fmt.Fprintf(&b, "         > %s\n", s)
		}
	}
	fmt.Fprintf(&b, "\n%s\n", r.counts())
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write doctor's report: %w", err)
	}
	return nil
}

func (r *Report) headline(b *strings.Builder) {
	if r.Interrupted {
		b.WriteString("Interrupted: not all was looked at, so this is no verdict. Run doctor again.\n")
		return
	}
	f := r.Blocker()
	if f == nil {
		b.WriteString("No blocker found.\n")
		return
	}
	word := "First blocker"
	if f.Status == Warn {
		word = "No blocker. First to mend"
	}
	fmt.Fprintf(b, "%s: %s: %s\n", word, f.Title, f.Result)
	for _, s := range f.Remedy {
		fmt.Fprintf(b, "Remedy: %s\n", s)
	}
}

// counts is the number of findings of each status, the worst first.
func (r *Report) counts() string {
	var parts []string
	for s := Fail; ; s-- {
		n := 0
		for _, f := range r.Findings {
			if f.Status == s {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
		if s == OK {
			break
		}
	}
	return fmt.Sprintf("%d checks: %s", len(r.Findings), strings.Join(parts, ", "))
}
