package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/fenceline/fenceline/internal/gpu"
)

// Serve is a child's part of RunChild: it reads from in what to probe, probes it on d, and writes the results to out.
// It returns when all is done, when a probe has cost it a device, when in ends, or with what kept it from probing,
// which it has told its parent too. The caller should then exit without closing the driver if it could wait for a
// probe that never ends.
func Serve(ctx context.Context, d gpu.Driver, in io.Reader, out io.Writer) error {
	say := func(l line) error {
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		_, err = out.Write(append(b, '\n'))
		return err
	}
	err := serve(ctx, d, in, say)
	if err != nil {
		_ = say(line{Tag: tagFailed, Error: err.Error()}) // if the parent cannot be told, the caller still is
		return fmt.Errorf("probe child: %w", err)
	}
	return nil
}

func serve(ctx context.Context, d gpu.Driver, in io.Reader, say func(line) error) error {
	var req request
	dec := json.NewDecoder(in)
	if err := dec.Decode(&req); err != nil {
		return fmt.Errorf("read what to probe: %w", err)
	}
	if err := req.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // until in ends, or the process
		_, _ = io.Copy(io.Discard, in)
		cancel(errParentGone)
	}()
	e, err := newEngine(d, req.Machine, req.Pairs, &req.Options)
	if err != nil {
		return err
	}
	defer e.close()
	for _, it := range req.Items { // contexts and kernels take longer than a probe may
		for _, i := range []int{it.Pair.From, it.Pair.To} {
			if _, err := e.device(i); err != nil {
				return err
			}
		}
	}
	if err := say(line{Tag: tagReady}); err != nil {
		return err
	}
	for _, it := range req.Items {
		r, err := e.do(ctx, it)
		if err != nil {
			return err
		}
		r.apply(req.Pairs)
		if err := say(line{Tag: tagResult, Result: &r}); err != nil {
			return err
		}
		if r.Lost {
			return nil
		}
	}
	return nil
}

// check refuses a request that this build cannot serve.
func (r *request) check() error {
	if r.Machine == nil {
		return fmt.Errorf("%w: no machine", ErrOptions)
	}
	n := len(r.Machine.Devices)
	if len(r.Machine.Pairs) != n || len(r.Pairs) != n {
		return fmt.Errorf("%w: matrices of %d and %d rows for %d devices", ErrOptions, len(r.Machine.Pairs), len(r.Pairs), n)
	}
	for i := range n {
		if len(r.Machine.Pairs[i]) != n || len(r.Pairs[i]) != n {
			return fmt.Errorf("%w: row %d is not of %d devices", ErrOptions, i, n)
		}
	}
	for _, it := range r.Items {
		if findStep(it.Step) == nil {
			return fmt.Errorf("%w: there is no probe %q", ErrOptions, it.Step)
		}
		if p := it.Pair; p.From < 0 || p.From >= n || p.To < 0 || p.To >= n {
			return fmt.Errorf("%w: pair %v of %d devices", ErrOptions, p, n)
		}
	}
	var err error
	r.Options, err = r.Options.validate(r.Machine)
	return err
}
