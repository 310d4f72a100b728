package gputest

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

// childEnv names the fault case that a child process runs.
const childEnv = "GPUTEST_FAULT"

// ranMark is what a child prints when its case has passed.
const ranMark = "gputest: fault case passed: "

// fault is one way of making device 0 unusable.
type fault struct {
	name   string
	kernel string
	kind   error
	skip   func(d gpu.Driver) string // why it cannot be tried; nil: always can
	cause  func(c *ctx, s gpu.Stream)
}

var faults = []fault{
	{name: "illegal load", kernel: "touch", kind: gpu.ErrIllegalAddress, cause: func(c *ctx, s gpu.Stream) {
		c.launch(0, s, c.kernel(0, "touch"), 1, 32, gpu.Ptr(0x100), c.alloc(0, 4))
	}},
	{name: "illegal store", kernel: "fill", kind: gpu.ErrIllegalAddress, cause: func(c *ctx, s gpu.Stream) {
		c.launch(0, s, c.kernel(0, "fill"), 1, 32, gpu.Ptr(0x100), uint32(1), uint32(32))
	}},
	{name: "misaligned load", kernel: "touch", kind: gpu.ErrMisaligned, cause: func(c *ctx, s gpu.Stream) {
		p := c.alloc(0, 64)
		c.launch(0, s, c.kernel(0, "touch"), 1, 1, p+1, p+32)
	}},
	{name: "trap", kernel: "trapped", kind: gpu.ErrLaunchFailed, cause: func(c *ctx, s gpu.Stream) {
		c.launch(0, s, c.kernel(0, "trapped"), 1, 1)
	}},
	{name: "in a graph", kernel: "trapped", kind: gpu.ErrLaunchFailed, cause: func(c *ctx, s gpu.Stream) {
		f := c.kernel(0, "trapped")
		c.NoError(c.d.BeginCapture(0, s))
		c.launch(0, s, f, 1, 1)
		x := c.exec(0, s)
		c.NoError(c.d.GraphLaunch(0, x, s))
	}},
	// Access from 1 to 0 is on; the kernel on 0 reads 1 all the same.
	{name: "peer without access", kernel: "touch", kind: gpu.ErrIllegalAddress, skip: noReverseAccess, cause: func(c *ctx, s gpu.Stream) {
		if info, err := c.d.P2P(1, 0); err == nil && info.Access {
			c.NoError(c.d.EnablePeerAccess(1, 0))
		}
		c.launch(0, s, c.kernel(0, "touch"), 1, 1, c.alloc(1, 64), c.alloc(0, 64))
	}},
	{name: "peer after disable", kernel: "touch", kind: gpu.ErrIllegalAddress, skip: noForwardAccess, cause: func(c *ctx, s gpu.Stream) {
		p, q, f := c.alloc(1, 64), c.alloc(0, 64), c.kernel(0, "touch")
		c.NoError(c.d.EnablePeerAccess(0, 1))
		c.launch(0, s, f, 1, 1, p, q)
		c.wait(0, s)
		c.NoError(c.d.DisablePeerAccess(0, 1))
		c.launch(0, s, f, 1, 1, p, q)
	}},
}

// noReverseAccess: on a real machine only peers map each other's memory, so there the case needs a pair.
func noReverseAccess(d gpu.Driver) string {
	if d.DeviceCount() < 2 {
		return "one device, needs 2"
	}
	if info, err := d.P2P(1, 0); err == nil && !info.Access && !d.Info().Emulated {
		return "device 1 has no P2P access to device 0"
	}
	return ""
}

func noForwardAccess(d gpu.Driver) string {
	if d.DeviceCount() < 2 {
		return "one device, needs 2"
	}
	if info, err := d.P2P(0, 1); err != nil || !info.Access {
		return "device 0 has no P2P access to device 1"
	}
	return ""
}

// runFault causes the fault on a driver that nothing else uses, looks at what follows, and closes it.
func runFault(t *testing.T, d gpu.Driver, f fault) {
	// No cleanup of single objects may be expected to work on a faulted device: Close takes them all.
	ok := t.Run("run", func(t *testing.T) {
		c := &ctx{Assertions: require.New(t), t: t, d: &lenient{d}}
		s := c.stream(0)
		f.cause(c, s)
		c.stuck(s, f)
	})
	if err := d.Close(); ok {
		require.NoError(t, err)
	}
}

// stuck checks that device 0 answers everything with the fault. Other devices do not care on the emulator; CUDA may lose
// all contexts of the process, and then they must say so.
func (c *ctx) stuck(s gpu.Stream, f fault) {
	d := c.d
	_, err := d.StreamWait(0, s, patience)
	var first *gpu.FaultError
	c.ErrorAs(err, &first)
	c.ErrorIs(err, f.kind)
	c.Zero(first.Device)
	if d.Info().Emulated {
		c.Equal(f.kernel, first.Kernel)
		c.Equal("kernels.ptx", first.File)
		c.Positive(first.Line)
		c.NotEmpty(first.Text)
	}
	later := map[string]func() error{
		"StreamWait":   func() error { _, err := d.StreamWait(0, s, 0); return err },
		"MemAlloc":     func() error { _, err := d.MemAlloc(0, 64); return err },
		"StreamCreate": func() error { _, err := d.StreamCreate(0); return err },
		"EventCreate":  func() error { _, err := d.EventCreate(0, false); return err },
	}
	for name, call := range later {
		var again *gpu.FaultError
		err := call()
		c.ErrorAs(err, &again, name)
		c.ErrorIs(err, f.kind, name)
		c.Zero(again.Device, name)
	}
	if d.DeviceCount() < 2 {
		return
	}
	if !d.Info().Emulated {
		if t, err := d.StreamCreate(1); err != nil {
			var lost *gpu.FaultError
			c.ErrorAs(err, &lost)
			c.ErrorIs(err, f.kind)
			return
		} else {
			c.NoError(d.StreamDestroy(1, t))
		}
	}
	t := c.stream(1)
	p := c.alloc(1, 400)
	c.launch(1, t, c.kernel(1, "fill"), 1, 128, p, uint32(8), uint32(100))
	c.Equal(count(8, 100), c.getWords(1, t, p, 100), "another device suffers")
}

// lenient drops the errors of frees and destroys, which on a faulted device are the fault.
type lenient struct{ gpu.Driver }

func (l *lenient) MemFree(dev int, p gpu.Ptr) error { return ignore(l.Driver.MemFree(dev, p)) }
func (l *lenient) StreamDestroy(dev int, s gpu.Stream) error {
	return ignore(l.Driver.StreamDestroy(dev, s))
}
func (l *lenient) ModuleUnload(dev int, m gpu.Module) error {
	return ignore(l.Driver.ModuleUnload(dev, m))
}
func (l *lenient) GraphExecDestroy(dev int, x gpu.GraphExec) error {
	return ignore(l.Driver.GraphExecDestroy(dev, x))
}

func ignore(error) error { return nil }

// inChild runs one fault case in a child process, where the GPU's context can be spoiled.
func inChild(t *testing.T, name string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	caller := t.Name()[:strings.LastIndex(t.Name(), "/")]
	var pattern []string
	for _, part := range strings.Split(caller, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run="+strings.Join(pattern, "/"), "-test.v", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), ranMark+name)
}

// runChild is the child's side.
func runChild(t *testing.T, open func(t *testing.T) gpu.Driver, name string) {
	for _, f := range faults {
		if f.name != name {
			continue
		}
		runFault(t, open(t), f)
		if !t.Failed() {
			t.Log(ranMark + name)
		}
		return
	}
	t.Fatalf("%s=%q names no fault case", childEnv, name)
}
