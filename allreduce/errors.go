package allreduce

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fenceline/fenceline/launcher"
)

// Sentinels, to be matched with errors.Is.
var (
	ErrInvalidArgument = errors.New("invalid argument")                // *ArgumentError
	ErrUnknownName     = errors.New("unknown name")                    // *NameError
	ErrMismatch        = errors.New("ranks disagree")                  // *MismatchError
	ErrAbsent          = errors.New("a rank did not arrive")           // *AbsentError
	ErrNoPlan          = errors.New("no algorithm fits")               // *PlanError
	ErrKnob            = errors.New("bad environment variable")        // *KnobError
	ErrNCCL            = errors.New("NCCL failed")                     // *NCCLError
	ErrFailed          = errors.New("the group has failed")            // *FailedError
	ErrClosed          = errors.New("the group is closed")             //
	ErrGraphClosed     = errors.New("the graph is closed")             // Graph.Launch; the group may go on
	ErrBusy            = errors.New("the group still has work queued") // Close could not wait it out
)

// ArgumentError is an argument that cannot be used. Nothing was queued.
type ArgumentError struct {
	Rank   int    // -1 when no single rank is concerned
	Arg    string // "in", "out", "count", …
	Detail string // what is wrong, and what would be right
	Err    error  // the launcher's own refusal, or nil
}

func (e *ArgumentError) Error() string {
	var b strings.Builder
	b.WriteString("all-reduce")
	if e.Rank >= 0 {
		fmt.Fprintf(&b, " rank %d", e.Rank)
	}
	fmt.Fprintf(&b, ": %s: %s", e.Arg, e.Detail)
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap gives ErrInvalidArgument and the cause, if there is one.
func (e *ArgumentError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrInvalidArgument}
	}
	return []error{ErrInvalidArgument, e.Err}
}

// NameError is a dtype, algorithm or P2P level that does not exist.
type NameError struct {
	Kind  string // "dtype", "algorithm", "P2P level"
	Name  string
	Known []string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("unknown %s %q: use one of %s", e.Kind, e.Name, strings.Join(e.Known, ", "))
}

// Unwrap gives ErrUnknownName.
func (e *NameError) Unwrap() error { return ErrUnknownName }

// MismatchError is two ranks whose calls do not belong together. The group has failed; in a capture, only the capture.
type MismatchError struct {
	Call       uint64 // number of the call on this group, from 0; in a capture, of the call in it
	Rank       int    // the rank that found it
	Other      int    // a rank that came earlier
	Mine       string
	Theirs     string
	Difference string // "count", "dtype", …
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("call %d: rank %d and rank %d differ in %s (%s against %s): all ranks must make the same calls in the same order",
		e.Call, e.Rank, e.Other, e.Difference, e.Mine, e.Theirs)
}

// Unwrap gives ErrMismatch.
func (e *MismatchError) Unwrap() error { return ErrMismatch }

// AbsentError is a rank that did not come to a meeting point on the host in time. The group has failed; in a
// capture, only the capture. (A rank that is missed by a kernel is a *flags.StuckError.)
type AbsentError struct {
	Rank    int           // the rank that waited
	Missing []int         // the ranks that did not arrive
	Where   string        // "before the copies", "after the copies", "256 calls ahead"
	Waited  time.Duration // Config.Timeout
	Remedy  string        // the likely cause, and what to do unless the missing ranks are dead
}

func (e *AbsentError) Error() string {
	s := fmt.Sprintf("rank %d, %s: rank(s) %s did not come within %v",
		e.Rank, e.Where, strings.Trim(fmt.Sprint(e.Missing), "[]"), e.Waited)
	if e.Remedy != "" {
		s += ": " + e.Remedy
	}
	return s
}

// Unwrap gives ErrAbsent.
func (e *AbsentError) Unwrap() error { return ErrAbsent }

// PlanError says why no algorithm, or not the one asked for, can run.
type PlanError struct {
	Algorithm Algorithm
	Reason    string
	Remedy    string
}

func (e *PlanError) Error() string {
	return fmt.Sprintf("algorithm %s: %s: %s", e.Algorithm, e.Reason, e.Remedy)
}

// Unwrap gives ErrNoPlan.
func (e *PlanError) Unwrap() error { return ErrNoPlan }

// NCCLError is a failure of NCCL's. The group has failed; in a capture, only the capture.
type NCCLError struct {
	Rank int   // -1 when no single rank is concerned
	Err  error // NCCL's words
}

func (e *NCCLError) Error() string {
	if e.Rank < 0 {
		return fmt.Sprintf("all-reduce by nccl: %v", e.Err)
	}
	return fmt.Sprintf("all-reduce by nccl, rank %d: %v", e.Rank, e.Err)
}

// Unwrap gives ErrNCCL and the cause.
func (e *NCCLError) Unwrap() []error { return []error{ErrNCCL, e.Err} }

// FailedError is the refusal of a group that failed earlier.
type FailedError struct {
	Cause error // the first failure
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("the group has failed and takes no more work (close it and make a new one): %v", e.Cause)
}

// Unwrap gives ErrFailed and the cause.
func (e *FailedError) Unwrap() []error { return []error{ErrFailed, e.Cause} }

// failures are several errors, each different.
type failures []error

func (f failures) Error() string { return errors.Join(f...).Error() }

// Unwrap gives all of them.
func (f failures) Unwrap() []error { return f }

// joined is errors.Join with each failure once: a fault is met again by every call on its device.
func joined(errs ...error) error {
	var distinct failures
	seen := map[string]bool{}
	var add func(errs []error)
	add = func(errs []error) {
		for _, err := range errs {
			if several, ok := err.(failures); ok {
				add(several)
				continue
			}
			if err == nil {
				continue
			}
			key := err.Error()
			var fault *launcher.FaultError
			if errors.As(err, &fault) {
				key = fault.Error()
			}
			if !seen[key] {
				seen[key] = true
				distinct = append(distinct, err)
			}
		}
	}
	add(errs)
	switch len(distinct) {
	case 0:
		return nil
	case 1:
		return distinct[0]
	}
	return distinct
}
