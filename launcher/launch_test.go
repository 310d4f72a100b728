package launcher

import (
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLaunch(t *testing.T) {
	rt, f := openFake(t, 2)
	k, small := loadKernel(t, rt, "none"), loadKernel(t, rt, "small")
	s, far := must[*Stream](t)(rt.NewStream(0)), must[*Stream](t)(rt.NewStream(1))
	b := must[Buffer](t)(rt.Alloc(0, 4))
	none, two := must[*Args](t)(k.Pack()), must[*Args](t)(small.Pack(b, 7))
	other := OpenWith(newFake(1))
	stranger := must[*Stream](t)(other.NewStream(0))
	shape := func(gx, gy, gz, bx, by, bz uint32) LaunchConfig {
		return LaunchConfig{Grid: Dim3{X: gx, Y: gy, Z: gz}, Block: Dim3{X: bx, Y: by, Z: bz}}
	}
	one := Linear(1, 1)
	tests := []struct {
		name string
		k    *Kernel
		s    *Stream
		cfg  LaunchConfig
		a    *Args
		msg  string // "" when launched
	}{
		{"fine", small, s, Linear(3, 128), two, ""},
		{"largest block", k, s, shape(1, 1, 1, 16, 1, 64), none, ""},
		{"largest grid", k, s, shape(math.MaxInt32, 65535, 65535, 1, 1, 1), none, ""},
		{"nil stream", k, nil, one, none, "nil stream"},
		{"nil args", k, s, one, nil, "nil arguments"},
		{"zero args", k, s, one, &Args{}, "packed for nothing"},
		{"args of another kernel", k, s, one, two, "packed for small of module args.ptx of device 0"},
		{"stream of another device", k, far, one, none, "belongs to device 1"},
		{"stream of another runtime", k, stranger, one, none, "another runtime"},
		{"grid of none", k, s, shape(1, 0, 1, 1, 1, 1), none, "at least 1"},
		{"block of none", k, s, shape(1, 1, 1, 1, 1, 0), none, "at least 1"},
		{"zero config", k, s, LaunchConfig{}, none, "at least 1"},
		{"grid x", k, s, shape(math.MaxInt32+1, 1, 1, 1, 1, 1), none, "grid"},
		{"grid y", k, s, shape(1, 65536, 1, 1, 1, 1), none, "grid"},
		{"grid z", k, s, shape(1, 1, 65536, 1, 1, 1), none, "grid"},
		{"block z", k, s, shape(1, 1, 1, 1, 1, 65), none, "z at most 64"},
		{"threads", k, s, shape(1, 1, 1, 1025, 1, 1), none, "at most 1024 threads"},
		{"threads by .maxntid", small, s, Linear(1, 129), two, "at most 128 threads"},
		{"threads that overflow", k, s, shape(1, 1, 1, 1<<31, 1<<31, 4), none, "at most 1024 threads"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := f.launches.Load()
			err := tt.k.Launch(tt.s, tt.cfg, tt.a)
			if tt.msg != "" {
				require.ErrorIs(t, err, ErrInvalidValue)
				require.ErrorContains(t, err, tt.msg)
				require.ErrorContains(t, err, tt.k.Name())
				require.Equal(t, before, f.launches.Load(), "refused before anything is launched")
				return
			}
			require.NoError(t, err)
			require.Equal(t, before+1, f.launches.Load(), "one call of the driver")
			if len(f.lastArgs) > 0 {
				require.Equal(t, tt.a.Bytes(), f.lastArgs)
			}
		})
	}

	f.stuck.Store(true)
	canceled, cancel := contextCanceled(t)
	defer cancel()
	require.NoError(t, small.Launch(s, one, two))
	require.ErrorContains(t, s.Sync(canceled), "(queued last: kernel small)")
	f.stuck.Store(false)

	require.NoError(t, b.Free())
	err := small.Launch(s, one, two)
	require.ErrorIs(t, err, ErrClosed, "an argument points to freed memory")
	require.ErrorContains(t, err, "kernel small: buffer")
	require.NoError(t, two.SetU64(0, 0))
	require.NoError(t, small.Launch(s, one, two), "replaced by a plain address")
	require.NoError(t, s.Close())
	require.ErrorIs(t, k.Launch(s, one, none), ErrClosed)
	s = must[*Stream](t)(rt.NewStream(0))
	require.NoError(t, k.m.Close())
	require.ErrorContains(t, k.Launch(s, one, none), "module args.ptx of device 0 is closed")
	for _, c := range []interface{ Close() error }{s, far, stranger, other} {
		require.NoError(t, c.Close())
	}
}

// fastLaunch is a launch over a driver that does nothing.
func fastLaunch(t testing.TB) (launch func(), done func()) {
	rt, f := openFake(t, 1)
	k := loadKernel(t, rt, "small")
	s, b := must[*Stream](t)(rt.NewStream(0)), must[Buffer](t)(rt.Alloc(0, 4))
	a := must[*Args](t)(k.Pack(b, 7))
	f.log = false
	cfg := Linear(16, 128)
	launch = func() {
		if err := k.Launch(s, cfg, a); err != nil {
			t.Fatal(err)
		}
	}
	return launch, func() {
		require.NoError(t, s.Close())
		require.NoError(t, b.Free())
	}
}

func TestLaunchDoesNotAllocate(t *testing.T) {
	launch, done := fastLaunch(t)
	require.Zero(t, testing.AllocsPerRun(1000, launch))
	done()
}

func BenchmarkLaunch(b *testing.B) {
	launch, done := fastLaunch(b)
	b.ReportAllocs()
	for b.Loop() {
		launch()
	}
	done()
}

// TestConcurrentUse lets goroutines use handles while others close them: each call works or says
// that the handle is closed, and the fake driver sees no dead handle.
func TestConcurrentUse(t *testing.T) {
	for range 20 {
		rt, _ := openFake(t, 1)
		k := loadKernel(t, rt, "small")
		b := must[Buffer](t)(rt.Alloc(0, 4))
		s := must[*Stream](t)(rt.NewStream(0))
		x, y := must[*Event](t)(rt.NewEvent(0, true)), must[*Event](t)(rt.NewEvent(0, true))
		calls := []func() error{
			func() error {
				a, err := k.Pack(b, 1)
				if err != nil {
					return err
				}
				return k.Launch(s, Linear(1, 1), a)
			},
			func() error { return s.Sync(t.Context()) },
			func() error { return s.Record(x) },
			func() error { return s.Wait(y) },
			func() error { _, err := x.Elapsed(y); return err },
			func() error { _, err := y.Elapsed(x); return err },
			func() error { return s.CopyIn(t.Context(), b, make([]byte, 4)) },
		}
		var wg sync.WaitGroup
		for _, call := range calls {
			wg.Go(func() {
				for range 2000 {
					if err := call(); err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		for _, close := range []func() error{y.Close, s.Close, x.Close, k.m.Close, s.Close, y.Close} {
			wg.Go(func() {
				if err := close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.NoError(t, b.Free())
	}
}

// A kernel that never waits for what is ahead of it is launched behind all of it: work behind the kernel relies on that.
func TestDependentOnlyIfItWaits(t *testing.T) {
	rt, f := openFake(t, 1)
	src := []byte(".version 7.8\n.target sm_90\n.address_size 64\n" +
		".visible .entry waits() { griddepcontrol.wait; ret; }\n.visible .entry never() { griddepcontrol.launch_dependents; ret; }\n")
	m := must[*Module](t)(rt.Load(0, "k.ptx", src))
	s := must[*Stream](t)(rt.NewStream(0))
	for name, waits := range map[string]bool{"waits": true, "never": false} {
		k := must[*Kernel](t)(m.Kernel(name))
		require.Equal(t, waits, k.Signature().Waits)
		a := must[*Args](t)(k.Pack())
		cfg := Linear(1, 32)
		require.NoError(t, k.Launch(s, cfg, a))
		require.False(t, f.dependent, name)
		cfg.Dependent = true
		require.NoError(t, k.Launch(s, cfg, a))
		require.Equal(t, waits, f.dependent, name)
	}
	require.NoError(t, s.Close())
	require.NoError(t, m.Close())
}
