// Command demo shows that the small all-reduce works on this machine: through the peer kernels on GPUs, or,
// where there is none, through the same PTX on emulated devices.
//
// Results go to stdout, diagnostics and progress to stderr. It exits with 0 when all is right, 1 when a result
// is wrong or a fault was found, 2 on wrong usage, and 130 when interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const (
	exitGood        = 0
	exitFault       = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() { os.Exit(doMain(os.Args[1:], os.Stdout, os.Stderr)) }

// doMain runs the program and returns its exit code. The first SIGINT or SIGTERM stops it cleanly, a second one
// at once.
func doMain(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return execute(ctx, args, stdout, stderr)
}

func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	a := &app{stdout: &sticky{w: stdout}, stderr: stderr}
	cmd := a.root()
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil && a.stdout.err != nil {
		err = fmt.Errorf("write results: %w", a.stdout.err)
	}
	return a.exitCode(ctx, err)
}

// exitCode reports err and turns it into the exit code.
func (a *app) exitCode(ctx context.Context, err error) int {
	var wrong *usageError
	switch {
	case err == nil:
		return exitGood
	case ctx.Err() != nil && err == errInterrupted:
		fmt.Fprintln(a.stderr, "demo: interrupted; everything was closed")
		return exitInterrupted
	case ctx.Err() != nil:
		fmt.Fprintln(a.stderr, "demo: interrupted:", err)
		return exitInterrupted
	case errors.Is(err, errReported):
		return exitFault
	case errors.As(err, &wrong):
		fmt.Fprintln(a.stderr, "demo:", err)
		return exitUsage
	case !a.ran: // cobra's own: unknown command, unknown flag, value of the wrong kind
		fmt.Fprintf(a.stderr, "demo: %v: see demo --help\n", err)
		return exitUsage
	}
	fmt.Fprintln(a.stderr, "demo:", err)
	return exitFault
}

// errReported is a fault that the printed results already tell.
var errReported = errors.New("a fault was found")

// usageError is a flag that cannot be used. The detail ends with the remedy.
type usageError struct {
	Flag   string // "--sizes"; empty when Err names what was wrong by itself
	Value  string
	Detail string
	Err    error // the refusal of the package that knows, or nil
}

func (e *usageError) Error() string {
	s := e.Flag
	if e.Value != "" {
		s += fmt.Sprintf(" %q", e.Value)
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	switch {
	case e.Err != nil && s == "":
		return e.Err.Error()
	case e.Err != nil:
		s += fmt.Sprintf(": %v", e.Err)
	}
	return s
}

func (e *usageError) Unwrap() error { return e.Err }

func usagef(flag, value, format string, args ...any) error {
	return &usageError{Flag: flag, Value: value, Detail: fmt.Sprintf(format, args...)}
}

// sticky remembers the first failed write, so that a full disk is not taken for success.
type sticky struct {
	w   io.Writer
	err error
}

func (s *sticky) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	s.err = err
	return n, err
}
