package probe

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/emu"
	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/kernels"
	"github.com/fenceline/fenceline/topo"
)

// hooked is a driver some of whose calls are changed.
type hooked struct {
	gpu.Driver
	enable func(dev, peer int) error
	launch func(dev int, args []byte)
	out    func(dev int, dst []byte)
	alloc  error
	n      int // launches so far
}

func (h *hooked) EnablePeerAccess(dev, peer int) error {
	if h.enable != nil {
		return h.enable(dev, peer)
	}
	return h.Driver.EnablePeerAccess(dev, peer)
}

func (h *hooked) Launch(dev int, s gpu.Stream, f gpu.Function, cfg *gpu.LaunchConfig, args []byte) error {
	h.n++
	if h.launch != nil {
		h.launch(dev, args)
	}
	return h.Driver.Launch(dev, s, f, cfg, args)
}

func (h *hooked) CopyOut(dev int, s gpu.Stream, dst []byte, src gpu.Ptr) error {
	err := h.Driver.CopyOut(dev, s, dst, src)
	if h.out != nil {
		h.out(dev, dst)
	}
	return err
}

func (h *hooked) MemAlloc(dev int, n uint64) (gpu.Ptr, error) {
	if h.alloc != nil {
		return 0, h.alloc
	}
	return h.Driver.MemAlloc(dev, n)
}

// TestFault: after a fault nothing more runs on the devices, and the probes say so.
func TestFault(t *testing.T) {
	d := open(t, emu.Config{Devices: 3})
	h := &hooked{Driver: d, enable: func(dev, peer int) error {
		if dev == 0 && peer == 1 {
			return nil // but it is not
		}
		return d.EnablePeerAccess(dev, peer)
	}}
	var lost []string
	found, err := Run(context.Background(), h, nil, Options{Pairs: []Pair{{0, 1}, {1, 2}, {2, 0}}, Report: func(r Result) {
		if r.Lost {
			lost = append(lost, r.Pair.String()+" "+r.Step)
		}
	}})
	require.NoError(t, err)
	require.Equal(t, []string{"-n--", "----", "----"},
		[]string{answers(found.Pairs[0][1]), answers(found.Pairs[1][2]), answers(found.Pairs[2][0])})
	require.Contains(t, found.Pairs[0][1].Write.Detail, "illegal address")
	require.Contains(t, found.Pairs[0][1].Read.Detail, "not probed: the process cannot use the device after probe 0→1, write:")
	require.Contains(t, found.Pairs[2][0].Write.Detail, "after probe 0→1, write")
	require.Equal(t, []string{"0→1 write"}, lost)
}

// TestRefused: a driver that claims access and then gives none.
func TestRefused(t *testing.T) {
	d := open(t, emu.Config{Devices: 2})
	h := &hooked{Driver: d, enable: func(dev, peer int) error {
		return &gpu.Error{Op: "cuCtxEnablePeerAccess", Device: dev, Kind: gpu.ErrPeerAccess}
	}}
	found, err := Run(context.Background(), h, nil, Options{Numbers: true, EmulatedNumbers: true})
	require.NoError(t, err)
	require.Equal(t, "nn--", answers(found.Pairs[0][1]))
	require.Contains(t, found.Pairs[0][1].Read.Detail, "no peer access")
	require.Positive(t, found.Pairs[0][1].CopyNoP2P)
	require.Zero(t, found.Pairs[0][1].CopyRate)
	require.Zero(t, d.Live())
}

// TestDenied: what is stated not to be supported is not tried.
func TestDenied(t *testing.T) {
	d := open(t, emu.Config{Custom: faulty(emu.Stalls, emu.Arrives, false)})
	m, err := topo.FromDriver(d)
	require.NoError(t, err)
	m.Pairs[0][1].Read, m.Pairs[0][1].ReadCode = topo.No, topo.CodeCNS
	m.Pairs[1][0].Write = topo.No
	start := time.Now()
	found, err := Run(context.Background(), d, m, Options{Timeout: time.Minute})
	require.NoError(t, err)
	require.Less(t, time.Since(start), 30*time.Second)
	require.Equal(t, []string{"-yy-", "y---"}, []string{answers(found.Pairs[0][1]), answers(found.Pairs[1][0])})
	require.Equal(t, "not probed: reading is stated as not supported (CNS)", found.Pairs[0][1].Read.Detail)
	require.Equal(t, "not probed: writing is stated as not supported (NS)", found.Pairs[1][0].Write.Detail)
	require.Equal(t, "not probed: it is not known whether writes arrive", found.Pairs[1][0].Flags.Detail)
}

// TestNotAFinding: what says nothing about a pair is an error.
func TestNotAFinding(t *testing.T) {
	d := open(t, emu.Config{Devices: 2})
	_, err := Run(context.Background(), &hooked{Driver: d, alloc: &gpu.Error{Op: "MemAlloc", Kind: gpu.ErrOutOfMemory}}, nil, Options{})
	require.ErrorIs(t, err, gpu.ErrOutOfMemory)
	require.ErrorContains(t, err, "probe 0→1, write: ")
	require.Zero(t, d.Live())

	_, err = Run(context.Background(), &hooked{Driver: d, out: func(_ int, dst []byte) { dst[len(dst)-1] ^= 1 }}, nil, Options{})
	require.ErrorIs(t, err, ErrOwn)
	require.ErrorContains(t, err, "device 1: ")
	require.Zero(t, d.Live())
}

// TestSeen: each check sees what it is there to see. The i-th launch of a probe is changed, or the pair is taken for
// better than it is.
func TestSeen(t *testing.T) {
	add := func(off int, v uint64) func(gpu.Driver, []byte) {
		return func(_ gpu.Driver, args []byte) {
			binary.LittleEndian.PutUint64(args[off:], binary.LittleEndian.Uint64(args[off:])+v)
		}
	}
	before := func(d gpu.Driver, args []byte) {
		s, err := d.StreamCreate(1)
		require.NoError(t, err)
		p := gpu.Ptr(binary.LittleEndian.Uint64(args[8:]))
		require.NoError(t, d.CopyIn(1, s, p-16, []byte{1, 0, 0, 0, 0, 0, 0, 0}))
		require.NoError(t, d.StreamDestroy(1, s))
	}
	const dst, packs, seed, rounds = 8, 48, 56, 72
	good, atomics := faulty(emu.Arrives, emu.Arrives, true), "atomics"
	for name, c := range map[string]struct {
		machine *emu.Machine
		step    string
		launch  int // counted from 1; 0: none is changed
		change  func(gpu.Driver, []byte)
		want    topo.Tri
		says    string
	}{
		"write":               {good, "write", 0, nil, topo.Yes, ""},
		"write beyond":        {good, "write", 4, add(packs, 1), topo.No, "memory 0 bytes after the buffer changed from 0x5a5a5a5a5a5a5a5a to 0x"},
		"write before":        {good, "write", 4, before, topo.No, "memory 16 bytes before the buffer changed from 0x5a5a5a5a5a5a5a5a to 0x1"},
		"write misplaced":     {good, "write", 4, add(dst, 16), topo.No, "at offset 0; 512 of 512 words wrong"},
		"second write lost":   {good, "write", 4, add(packs, ^uint64(4096/16-1)), topo.No, "all of them what was there before"},
		"write short":         {good, "write", 2, add(packs, ^uint64(0)), topo.No, "at offset 4080; 2 of 512 words wrong, all of them what was there before"},
		"read":                {good, "read", 0, nil, topo.Yes, ""},
		"read short":          {good, "read", 2, add(packs, ^uint64(1)), topo.No, "got 0x5a5a5a5a5a5a5a5a at offset 4064; 4 of 512 words wrong"},
		"read misplaced":      {good, "read", 4, add(0, 16), topo.No, "at offset 0; 512 of 512"},
		"flags":               {good, "flags", 0, nil, topo.Yes, ""},
		"flags with old data": {good, "flags", 4, add(seed, derive(0)-1), topo.No, "at offset 0; 512 of 512"},
		"flags, last missing": {good, "flags", 2, add(rounds, ^uint64(0)), topo.No, "timed out: flag 32 of 32 of block 0 was not seen within 200ms"},
		"flags, no writes":    {faulty(emu.Arrives, emu.Vanishes, true), "flags", 0, nil, topo.No, "timed out: flag 1 of 32"},
		"flags, reads zero":   {faulty(emu.Zeroes, emu.Arrives, true), "flags", 0, nil, topo.No, "flags polled by the reader: timed out: flag 1 of 32"},
		"flags, reads ones":   {faulty(emu.Ones, emu.Arrives, true), "flags", 0, nil, topo.No, "flags polled by the reader: timed out: flag 1 of 32"},
		"flags, reads stall":  {faulty(emu.Stalls, emu.Arrives, true), "flags", 0, nil, topo.No, "timed out after 200ms"},
		"atomics":             {good, atomics, 0, nil, topo.Yes, ""},
		"atomics lost":        {faulty(emu.Arrives, emu.Vanishes, true), atomics, 0, nil, topo.No, "2048 additions of 1 made 1024"},
		"atomics return 0":    {faulty(emu.Zeroes, emu.Arrives, true), atomics, 0, nil, topo.No, "what 2048 additions returned adds up to"},
		"atomics stall":       {faulty(emu.Stalls, emu.Arrives, true), atomics, 0, nil, topo.No, "timed out after 200ms"},
		"one too many":        {good, atomics, 2, add(rounds, 1), topo.No, "2048 additions of 1 made 2112"},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, emu.Config{Custom: c.machine})
			h := &hooked{Driver: d}
			h.launch = func(_ int, args []byte) {
				if h.n == c.launch {
					c.change(d, args)
				}
			}
			m, err := topo.FromDriver(d)
			require.NoError(t, err)
			o, err := Options{Timeout: 200 * time.Millisecond, Bytes: 4096}.validate(m)
			require.NoError(t, err)
			pairs := empty(m, &o).Pairs
			pairs[0][1].Write.Answer, pairs[0][1].Read.Answer = topo.Yes, topo.Yes
			e, err := newEngine(h, m, pairs, &o)
			require.NoError(t, err)
			r, err := e.do(context.Background(), item{Pair{0, 1}, c.step})
			require.NoError(t, err)
			require.Equal(t, c.want, r.Check.Answer, "%v", r)
			require.Contains(t, r.Check.Detail, c.says)
			e.close()
			require.GreaterOrEqual(t, h.n, c.launch, "the changed launch was never made")
		})
	}
}

// TestArguments: the kernels' parameter buffer is what launch fills.
func TestArguments(t *testing.T) {
	mod, err := kernels.Find("probe", 90, 13000)
	require.NoError(t, err)
	require.Len(t, mod.Entries, len(entries))
	for _, e := range mod.Entries {
		require.Equal(t, argBytes, e.Bytes, e.Name)
	}
}
