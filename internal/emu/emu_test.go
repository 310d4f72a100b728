package emu_test

import (
	_ "embed"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/emu"
	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/internal/gpu/gputest"
)

//go:embed testdata/emu.ptx
var emuPTX []byte

func open(t *testing.T, cfg emu.Config) gpu.Driver {
	t.Helper()
	d, err := emu.Open(cfg)
	require.NoError(t, err)
	return d
}

func TestConformance(t *testing.T) {
	for _, machine := range emu.Machines() {
		t.Run(machine, func(t *testing.T) {
			gputest.Run(t, func(t *testing.T) gpu.Driver {
				d := open(t, emu.Config{Machine: machine})
				if slices.Contains(broken, machine) {
					return unpaired{d}
				}
				return d
			})
		})
	}
	t.Run("one device", func(t *testing.T) {
		gputest.Run(t, func(t *testing.T) gpu.Driver { return open(t, emu.Config{Devices: 1, Seed: 7}) })
	})
	t.Run("custom", func(t *testing.T) {
		m := custom()
		for i := range m.Devices {
			m.Devices[i] = emu.Device{SM: []int{86, 75, 80}[i]}
			for j := range m.Links[i] {
				m.Links[i][j].Loads, m.Links[i][j].Stores = emu.Arrives, emu.Arrives
			}
		}
		gputest.Run(t, func(t *testing.T) gpu.Driver { return open(t, emu.Config{Custom: m, Seed: 9}) })
	})
	t.Run("sixteen devices", func(t *testing.T) {
		gputest.Run(t, func(t *testing.T) gpu.Driver { return open(t, emu.Config{Devices: 16, Seed: 8}) })
	})
}

// broken are the machines whose peer access does not do what it claims.
var broken = []string{"write-only", "read-garbage", "lying"}

// unpaired leaves its machine's broken peer access out, so that the suite checks all the rest.
type unpaired struct{ gpu.Driver }

func (u unpaired) P2P(dev, peer int) (gpu.P2PInfo, error) {
	info, err := u.Driver.P2P(dev, peer)
	info.Access = false
	return info, err
}

func (u unpaired) EnablePeerAccess(dev, peer int) error {
	if _, err := u.Driver.P2P(dev, peer); err != nil {
		return err
	}
	return &gpu.Error{Op: "EnablePeerAccess", Device: dev, Kind: gpu.ErrPeerAccess}
}

// posing is an emulated driver that says it is real, which makes the suite run its faults in child processes.
type posing struct{ gpu.Driver }

func (p posing) Info() gpu.DriverInfo {
	return gpu.DriverInfo{Name: "cuda", Version: 13000, Detail: "emulated, to test the suite's child processes"}
}

func TestConformanceInChildren(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a dozen processes")
	}
	gputest.Run(t, func(t *testing.T) gpu.Driver { return posing{open(t, emu.Config{Devices: 2})} })
}

func TestConfig(t *testing.T) {
	for name, cfg := range map[string]emu.Config{
		"unknown machine": {Machine: "quantum"},
		"case":            {Machine: "NVLink"},
		"negative":        {Devices: -1},
		"too many":        {Devices: 17},
	} {
		d, err := emu.Open(cfg)
		require.Nil(t, d, name)
		require.ErrorIs(t, err, gpu.ErrInvalidValue, name)
		var typed *gpu.Error
		require.ErrorAs(t, err, &typed, name)
		require.Equal(t, "Open", typed.Op, name)
	}
	_, err := emu.Open(emu.Config{Machine: "quantum"})
	require.ErrorContains(t, err, "nvlink, pcie, one-way, no-p2p")
	_, err = emu.Open(emu.Config{Devices: 17})
	require.ErrorContains(t, err, "1 to 16")
	_, err = emu.Open(emu.Config{Machine: "dgx1-v100", Devices: 9})
	require.ErrorIs(t, err, gpu.ErrInvalidValue)
	require.ErrorContains(t, err, "1 to 8")

	d := open(t, emu.Config{})
	require.Equal(t, 4, d.DeviceCount())
	require.Contains(t, d.Info().Detail, "nvlink")
	require.NoError(t, d.Close())
	require.NotEmpty(t, emu.Describe("one-way"))
	require.Empty(t, emu.Describe("quantum"))
}

// bench is a driver with what most tests need.
type bench struct {
	*require.Assertions
	t *testing.T
	d gpu.Driver
}

func newBench(t *testing.T, cfg emu.Config) *bench {
	d := open(t, cfg)
	t.Cleanup(func() { _ = d.Close() })
	return &bench{Assertions: require.New(t), t: t, d: d}
}

func (b *bench) alloc(dev int, size uint64) gpu.Ptr {
	p, err := b.d.MemAlloc(dev, size)
	b.NoError(err)
	return p
}

// zeroed is alloc of memory that holds zeroes.
func (b *bench) zeroed(dev int, size uint64) gpu.Ptr {
	p := b.alloc(dev, size)
	s := b.stream(dev)
	b.NoError(b.d.CopyIn(dev, s, p, make([]byte, size)))
	b.NoError(b.d.StreamDestroy(dev, s))
	return p
}

func (b *bench) stream(dev int) gpu.Stream {
	s, err := b.d.StreamCreate(dev)
	b.NoError(err)
	return s
}

func (b *bench) kernel(dev int, entry string) gpu.Function {
	m, err := b.d.ModuleLoad(dev, "emu.ptx", emuPTX)
	b.NoError(err)
	f, err := b.d.ModuleFunction(dev, m, entry)
	b.NoError(err)
	return f
}

// launch packs arguments of one size after another: all tests here pass 64-bit ones first.
func (b *bench) launch(dev int, s gpu.Stream, f gpu.Function, blocks, threads uint32, args ...any) {
	b.t.Helper()
	b.NoError(launch(b.d, dev, s, f, blocks, threads, args...))
}

func launch(d gpu.Driver, dev int, s gpu.Stream, f gpu.Function, blocks, threads uint32, args ...any) error {
	var buf []byte
	for _, a := range args {
		switch v := a.(type) {
		case gpu.Ptr:
			buf = binary.LittleEndian.AppendUint64(buf, uint64(v))
		case uint32:
			buf = binary.LittleEndian.AppendUint32(buf, v)
		}
	}
	cfg := gpu.LaunchConfig{Grid: gpu.Dim3{X: blocks, Y: 1, Z: 1}, Block: gpu.Dim3{X: threads, Y: 1, Z: 1}}
	return d.Launch(dev, s, f, &cfg, buf)
}

const patience = 60 * time.Second

func (b *bench) wait(dev int, s gpu.Stream) {
	b.t.Helper()
	done, err := b.d.StreamWait(dev, s, patience)
	b.NoError(err)
	b.True(done)
}

// faults waits for a stream and returns the fault that ends it.
func (b *bench) faults(dev int, s gpu.Stream) *gpu.FaultError {
	b.t.Helper()
	_, err := b.d.StreamWait(dev, s, patience)
	var f *gpu.FaultError
	b.ErrorAs(err, &f)
	return f
}

func (b *bench) words(dev int, s gpu.Stream, p gpu.Ptr, n int) []uint32 {
	b.t.Helper()
	out := make([]byte, 4*n)
	b.NoError(b.d.CopyOut(dev, s, out, p))
	w := make([]uint32, n)
	for i := range w {
		w[i] = binary.LittleEndian.Uint32(out[4*i:])
	}
	return w
}
