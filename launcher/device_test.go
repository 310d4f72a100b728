package launcher

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

//go:embed testdata/kernels.ptx
var kernelsPTX []byte

// onBackends runs a test on the emulator and on the GPUs of this machine. Without a GPU that part is
// skipped, and fails where REQUIRE_GPU=1 says that there must be one.
func onBackends(t *testing.T, test func(t *testing.T, rt *Runtime)) {
	for _, backend := range []string{Emu, CUDA} {
		t.Run(backend, func(t *testing.T) {
			rt, err := Open(Config{Backend: backend})
			if backend == CUDA && (errors.Is(err, ErrNoDriver) || errors.Is(err, ErrNotSupported)) {
				if os.Getenv("REQUIRE_GPU") == "1" {
					t.Fatal(err)
				}
				t.Skipf("no GPU here: %v", err)
			}
			require.NoError(t, err)
			test(t, rt)
			if !t.Failed() {
				require.NoError(t, rt.Close())
			}
		})
	}
}

// patience bounds the waits of these tests.
func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func kernel(t *testing.T, rt *Runtime, dev int, entry string) *Kernel {
	m := must[*Module](t)(rt.Load(dev, "kernels.ptx", kernelsPTX))
	return must[*Kernel](t)(m.Kernel(entry))
}

func encode(t *testing.T, v any) []byte {
	return must[[]byte](t)(binary.Append(nil, binary.LittleEndian, v))
}

func floats(n int, f func(i int) float32) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = f(i)
	}
	return v
}

// closeAll closes in order and wants no error.
func closeAll(t *testing.T, closers ...interface{ Close() error }) {
	for _, c := range closers {
		require.NoError(t, c.Close())
	}
}

func TestDeviceKernelAndGraph(t *testing.T) {
	onBackends(t, func(t *testing.T, rt *Runtime) {
		const n = 1003
		ctx := patience(t)
		k := kernel(t, rt, 0, "axpy")
		require.LessOrEqual(t, k.Info().MaxThreads, 1024)
		blocks, err := k.MaxActiveBlocks(256, 0)
		require.NoError(t, err)
		require.Positive(t, blocks)
		s := must[*Stream](t)(rt.NewStream(0))
		x, y := must[Buffer](t)(rt.Alloc(0, 4*n)), must[Buffer](t)(rt.Alloc(0, 4*n))
		require.NoError(t, s.CopyIn(ctx, x, encode(t, floats(n, func(i int) float32 { return float32(i) }))))
		require.NoError(t, s.Memset(y, 0))
		args := must[*Args](t)(k.Pack(y, x, float32(2), n))
		require.NoError(t, k.Launch(s, Linear(8, 128), args))

		out, got := make([]byte, 4*n), make([]float32, n)
		check := func(factor float32) {
			t.Helper()
			require.NoError(t, s.CopyOut(ctx, out, y))
			_, err := binary.Decode(out, binary.LittleEndian, got)
			require.NoError(t, err)
			require.Equal(t, floats(n, func(i int) float32 { return factor * float32(i) }), got)
		}
		check(2)

		require.NoError(t, s.BeginCapture())
		require.NoError(t, k.Launch(s, Linear(8, 128), args))
		require.NoError(t, args.SetF32(2, 3)) // the capture has copied the old value; the next launch takes this
		require.NoError(t, k.Launch(s, Linear(8, 128), args))
		g := must[*Graph](t)(s.EndCapture())
		check(2) // nothing ran
		exec := must[*Exec](t)(g.Instantiate())
		for range 3 {
			require.NoError(t, exec.Launch(s))
		}
		check(2 + 3*(2+3))
		closeAll(t, g, exec, s, k.m)
		require.NoError(t, x.Free())
		require.NoError(t, y.Free())
	})
}

func TestDeviceParameterLayout(t *testing.T) {
	onBackends(t, func(t *testing.T, rt *Runtime) {
		k := kernel(t, rt, 0, "echo")
		s, out := must[*Stream](t)(rt.NewStream(0)), must[Buffer](t)(rt.Alloc(0, 16))
		args := must[*Args](t)(k.Pack(uint8(200), out, 40000, struct {
			X uint64
			Y int32
			_ [4]byte
		}{X: 1<<40 + 7, Y: -5}))
		require.NoError(t, k.Launch(s, Linear(1, 1), args))
		got := make([]byte, 16)
		require.NoError(t, s.CopyOut(patience(t), got, out))
		require.Equal(t, encode(t, []uint32{200, 40000, 7, 0xfffffffb}), got)
		closeAll(t, s, k.m)
		require.NoError(t, out.Free())
	})
}

func TestDeviceHostWord(t *testing.T) {
	onBackends(t, func(t *testing.T, rt *Runtime) {
		k := kernel(t, rt, 0, "await")
		s, h := must[*Stream](t)(rt.NewStream(0)), must[*HostBuffer](t)(rt.AllocHost(64))
		require.NoError(t, h.Store32(0, 0))
		require.NoError(t, h.Store32(32, 0))
		seen := must[Buffer](t)(h.Buffer().Slice(32, 4))
		args := must[*Args](t)(k.Pack(h, seen, uint64(20*time.Second)))
		require.NoError(t, k.Launch(s, Linear(1, 1), args))

		brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var te *TimeoutError
		require.ErrorAs(t, s.Sync(brief), &te, "the kernel waits for the host")
		require.Equal(t, "kernel await", te.Last)
		done, err := s.Query()
		require.NoError(t, err)
		require.False(t, done)

		require.NoError(t, h.Store32(0, 1))
		require.Eventually(t, func() bool {
			v, err := h.Load32(32)
			return err == nil && v == 1
		}, 15*time.Second, time.Millisecond, "the kernel answers while it runs or after")
		require.NoError(t, s.Sync(patience(t)))
		closeAll(t, s, k.m)
		require.NoError(t, h.Free())
	})
}

func TestDeviceEvents(t *testing.T) {
	onBackends(t, func(t *testing.T, rt *Runtime) {
		ctx := patience(t)
		k := kernel(t, rt, 0, "await")
		first, second := must[*Stream](t)(rt.NewStream(0)), must[*Stream](t)(rt.NewStream(0))
		from, to := must[*Event](t)(rt.NewEvent(0, true)), must[*Event](t)(rt.NewEvent(0, true))
		flag, seen := must[Buffer](t)(rt.Alloc(0, 4)), must[Buffer](t)(rt.Alloc(0, 4))
		require.NoError(t, first.Memset(flag, 0))
		require.NoError(t, first.Memset(seen, 0))
		require.NoError(t, first.Sync(ctx))

		// The first stream idles for 20 ms in a kernel, and the second must not overtake it.
		args := must[*Args](t)(k.Pack(flag, seen, uint64(20*time.Millisecond)))
		require.NoError(t, first.Record(from))
		require.NoError(t, k.Launch(first, Linear(1, 1), args))
		require.NoError(t, first.Record(to))
		require.NoError(t, second.Wait(to))
		require.NoError(t, second.Memset(flag, 1))
		require.NoError(t, second.Sync(ctx))
		require.NoError(t, to.Sync(ctx))
		d, err := to.Elapsed(from)
		require.NoError(t, err)
		require.GreaterOrEqual(t, d, 15*time.Millisecond)
		out := make([]byte, 4)
		require.NoError(t, second.CopyOut(ctx, out, seen))
		require.Equal(t, make([]byte, 4), out, "the kernel must not have seen the flag set after it")
		closeAll(t, first, second, from, to, k.m)
		require.NoError(t, flag.Free())
		require.NoError(t, seen.Free())
	})
}

func TestDevicePeers(t *testing.T) {
	onBackends(t, func(t *testing.T, rt *Runtime) {
		if len(rt.Devices()) < 2 {
			t.Skip("one device only")
		}
		const n = 500
		ctx := patience(t)
		s, far := must[*Stream](t)(rt.NewStream(0)), must[*Stream](t)(rt.NewStream(1))
		local, remote, back := must[Buffer](t)(rt.Alloc(0, 4*n)), must[Buffer](t)(rt.Alloc(1, 4*n)), must[Buffer](t)(rt.Alloc(0, 4*n))
		want := encode(t, floats(n, func(i int) float32 { return float32(i) / 2 }))
		require.NoError(t, far.CopyIn(ctx, remote, want))
		require.NoError(t, s.Copy(back, remote), "a peer copy needs no peer access")
		got := make([]byte, 4*n)
		require.NoError(t, s.CopyOut(ctx, got, back))
		require.Equal(t, want, got)

		info, err := rt.P2P(0, 1)
		require.NoError(t, err)
		ms := must[[]*Module](t)(rt.LoadAll([]int{0, 1}, "kernels.ptx", kernelsPTX))
		if info.Access {
			require.NoError(t, rt.EnablePeer(0, 1))
			require.NoError(t, rt.EnablePeer(0, 1), "already enabled is success")
			k := must[*Kernel](t)(ms[0].Kernel("axpy"))
			require.NoError(t, s.Memset(local, 0))
			require.NoError(t, k.Launch(s, Linear(4, 128), must[*Args](t)(k.Pack(local, remote, float32(1), n))))
			require.NoError(t, s.CopyOut(ctx, got, local))
			require.Equal(t, want, got)
			require.NoError(t, rt.DisablePeer(0, 1))
		} else {
			require.ErrorIs(t, rt.EnablePeer(0, 1), ErrPeerAccess)
		}
		closeAll(t, s, far, ms[0], ms[1])
		for _, b := range []Buffer{local, remote, back} {
			require.NoError(t, b.Free())
		}
	})
}

// TestEmulatorFault checks that a fault comes out typed and located. Not on a GPU: there it would
// take the whole process's context down.
func TestEmulatorFault(t *testing.T) {
	rt := must[*Runtime](t)(Open(Config{Backend: Emu, Devices: 2}))
	k := kernel(t, rt, 0, "axpy")
	s := must[*Stream](t)(rt.NewStream(0))
	local, remote := must[Buffer](t)(rt.Alloc(0, 64)), must[Buffer](t)(rt.Alloc(1, 64))
	require.NoError(t, k.Launch(s, Linear(1, 16), must[*Args](t)(k.Pack(local, remote, float32(1), 16))))
	err := s.Sync(patience(t))
	require.ErrorIs(t, err, ErrIllegalAddress)
	var fe *FaultError
	require.ErrorAs(t, err, &fe)
	require.Equal(t, 0, fe.Device)
	require.Equal(t, "axpy", fe.Kernel)
	require.Equal(t, "kernels.ptx", fe.File)
	require.Contains(t, fe.Text, "ld.global.f32")
	require.Contains(t, fe.Detail, "peer access")
	require.ErrorIs(t, s.Memset(local, 0), ErrIllegalAddress, "faults are sticky")
	var leak *LeakError
	require.ErrorAs(t, rt.Close(), &leak)
	require.Equal(t, LeakError{Allocs: 2, Streams: 1, Modules: 1}, *leak)
}

func TestEmulatorConfig(t *testing.T) {
	rt := must[*Runtime](t)(Open(Config{Backend: Emu, Machine: "no-p2p", Devices: 3, Seed: 5}))
	require.Len(t, rt.Devices(), 3)
	require.True(t, rt.Info().Emulated)
	require.ErrorIs(t, rt.EnablePeer(0, 1), ErrPeerAccess)
	require.NoError(t, rt.Close())
	_, err := Open(Config{Machine: "abacus"})
	require.ErrorIs(t, err, ErrInvalidValue)
	require.ErrorContains(t, err, "nvlink", "the machines there are must be listed")
	_, err = Open(Config{Backend: Emu, Devices: 1000})
	require.ErrorIs(t, err, ErrInvalidValue)
}
