package ptx

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// flat is memory of one piece for tests.
type flat struct {
	base uint64
	data []byte
	gen  uint64
}

const flatBase = 0x10000

func newFlat(size int) *flat { return &flat{base: flatBase, data: make([]byte, size)} }

var errUnmapped = errors.New("unmapped")

func (f *flat) Resolve(addr uint64, size int, write bool) (Segment, error) {
	if addr < f.base || addr+uint64(size) > f.base+uint64(len(f.data)) || addr+uint64(size) < addr {
		return Segment{}, fmt.Errorf("%w: memory is [%#x, %#x)", errUnmapped, f.base, f.base+uint64(len(f.data)))
	}
	return Segment{Base: f.base, Data: f.data}, nil
}

func (f *flat) Generation() uint64 { return f.gen }

func (f *flat) u32(i int) uint32      { return binary.LittleEndian.Uint32(f.data[4*i:]) }
func (f *flat) u64(i int) uint64      { return binary.LittleEndian.Uint64(f.data[8*i:]) }
func (f *flat) set32(i int, v uint32) { binary.LittleEndian.PutUint32(f.data[4*i:], v) }
func (f *flat) set64(i int, v uint64) { binary.LittleEndian.PutUint64(f.data[8*i:], v) }
func (f *flat) words(n int) (r []uint32) {
	for i := range n {
		r = append(r, f.u32(i))
	}
	return r
}

const header = ".version 8.0\n.target sm_90\n.address_size 64\n"

// parse returns the only kernel of src.
func parse(t testing.TB, src string) *Kernel {
	t.Helper()
	m, err := Parse("test.ptx", []byte(src))
	require.NoError(t, err)
	require.Len(t, m.Info.Entries, 1)
	k, ok := m.Kernel(m.Info.Entries[0].Name)
	require.True(t, ok)
	return k
}

// entry wraps a body into a kernel k(u64 p) with plenty of registers; %rd0 holds p.
func entry(body string) string {
	return header + `.visible .entry k(.param .u64 p) {
	.reg .pred %p<10>; .reg .b16 %h<20>; .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .f32 %f<20>; .reg .f64 %d<20>;
	ld.param.u64 %rd0, [p];
` + body + "\n\tret;\n}\n"
}

type runOpts struct {
	grid, block [3]uint32
	shared      int
	limit       uint64
	seed        uint64
	globals     []uint64
	params      []byte
	clock       func() uint64
	racy        bool // what is written depends on the schedule
}

// run runs a whole grid over mem, blocks in turn, and returns the counts.
func run(t testing.TB, k *Kernel, mem Memory, o runOpts) (warpInsts, threadInsts uint64, err error) {
	t.Helper()
	for i := range 3 {
		o.grid[i], o.block[i] = max(o.grid[i], 1), max(o.block[i], 1)
	}
	if o.params == nil {
		o.params = binary.LittleEndian.AppendUint64(nil, flatBase)
	}
	if o.limit == 0 {
		o.limit = 10_000_000
	}
	l := &Launch{Kernel: k, Grid: o.grid, Block: o.block, Shared: o.shared, Params: o.params, Globals: o.globals,
		Memory: mem, Clock: o.clock, StepLimit: o.limit}
	if f, ok := mem.(*flat); ok && !o.racy && !masks(k) {
		defer replay(t, l, f, bytes.Clone(f.data), &err)
	}
	var blocks []*Block
	for z := range o.grid[2] {
		for y := range o.grid[1] {
			for x := range o.grid[0] {
				b, err := NewBlock(l, [3]uint32{x, y, z})
				require.NoError(t, err)
				blocks = append(blocks, b)
			}
		}
	}
	rng := rand.New(rand.NewPCG(o.seed, 1))
	running := append([]*Block{}, blocks...)
	for len(running) > 0 {
		i := rng.IntN(len(running))
		state, err := running[i].Run(Quantum{Warps: 1 + rng.IntN(500), Rand: rng})
		if err != nil {
			return 0, 0, err
		}
		if state == Done {
			running = append(running[:i], running[i+1:]...)
		}
	}
	for _, b := range blocks {
		w, th := b.Counts()
		warpInsts, threadInsts = warpInsts+w, threadInsts+th
	}
	return warpInsts, threadInsts, nil
}

// mustRun runs a kernel made by entry and returns its memory.
func mustRun(t testing.TB, body string, mem *flat, o runOpts) {
	t.Helper()
	_, _, err := run(t, parse(t, entry(body)), mem, o)
	require.NoError(t, err)
}

// masks tells whether the kernel asks which lanes are in step.
func masks(k *Kernel) bool {
	return slices.ContainsFunc(k.ops, func(o op) bool { return o.code == opActive })
}

// replay runs what run ran once more, by stepping threads over the memory as it was, and wants the same to come of
// it: once with values at once, once with values put off.
func replay(t testing.TB, l *Launch, after *flat, before []byte, err *error) {
	t.Helper()
	if *err != nil || t.Failed() {
		return
	}
	for _, putOff := range []bool{false, true} {
		mem := &flat{base: after.base, data: bytes.Clone(before)}
		s, e := newStepper(mem, l)
		require.NoError(t, e)
		s.putOff = putOff
		require.NoError(t, s.run())
		require.True(t, bytes.Equal(after.data, mem.data), "a Block and its Threads differ")
	}
}
