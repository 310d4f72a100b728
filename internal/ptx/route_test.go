package ptx

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// split is memory whose upper half lies behind a route.
type split struct {
	*flat
	route Route
}

const far = 2048 // where the upper half begins

func (s *split) Resolve(addr uint64, size int, write bool) (Segment, error) {
	seg, err := s.flat.Resolve(addr, size, write)
	if err != nil {
		return seg, err
	}
	at := addr - s.base
	if at < far {
		return Segment{Base: s.base, Data: s.data[:far]}, nil
	}
	return Segment{Base: s.base + far, Data: s.data[far:], Route: s.route}, nil
}

// TestRoutes: what loads, stores and atomics find and leave behind each route that lets them end.
func TestRoutes(t *testing.T) {
	const body = `
	mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 64; add.s64 %rd1, %rd0, %rd1; add.s64 %rd2, %rd1, 2048;
	ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd1], %r1;
	ld.acquire.sys.global.u32 %r1, [%rd2]; st.global.u32 [%rd1+4], %r1;
	ld.global.v2.u64 {%rd3, %rd4}, [%rd2+16]; st.global.v2.u64 [%rd1+16], {%rd3, %rd4};
	ld.u8 %r2, [%rd2]; st.u32 [%rd1+8], %r2;
	ld.s16 %r2, [%rd2]; st.u32 [%rd1+12], %r2;
	atom.global.add.u32 %r3, [%rd2+32], 5; st.global.u32 [%rd1+32], %r3;
	red.release.sys.global.add.u32 [%rd2+36], 7;
	atom.global.exch.b64 %rd5, [%rd2+40], 99; st.global.u64 [%rd1+40], %rd5;
	st.global.u32 [%rd2+48], 11;
	st.release.sys.global.u32 [%rd2+52], 12;
	st.global.v2.u32 [%rd2+56], {13, 14};`
	const all = ^uint32(0)
	type seen struct {
		near [16]uint32 // what the loads gave
		far  [8]uint32  // what the atomics and stores left, from byte 32
	}
	good := seen{
		near: [16]uint32{0x8281, 0x8281, 0x81, 0xffff8281, 3, 4, 5, 6, 20, 0, 22, 23},
		far:  [8]uint32{25, 28, 99, 0, 11, 12, 13, 14},
	}
	ones, zeroes, lost := good, good, good
	ones.near = [16]uint32{all, all, 0xff, all, all, all, all, all, all, 0, all, all}
	zeroes.near = [16]uint32{}
	lost.far = [8]uint32{20, 21, 22, 23, 24, 25, 26, 27}
	for name, tt := range map[string]struct {
		route Route
		want  seen
	}{
		"good":            {Route{}, good},
		"ones":            {Route{Loads: Ones}, ones},
		"zeroes":          {Route{Loads: Zeroes}, zeroes},
		"lost":            {Route{Stores: Vanishes}, lost},
		"zeroes and lost": {Route{Loads: Zeroes, Stores: Vanishes}, seen{zeroes.near, lost.far}},
		"ones and lost":   {Route{Loads: Ones, Stores: Vanishes}, seen{ones.near, lost.far}},
	} {
		for _, threads := range []uint32{1, 5, 32} {
			mem := &split{newFlat(2 * far), tt.route}
			for i := range 32 {
				word := (far + 64*i) / 4
				mem.set32(word, 0x8281)
				for k := range 4 {
					mem.set32(word+4+k, uint32(3+k))
				}
				for k := range 8 {
					mem.set32(word+8+k, uint32(20+k))
				}
			}
			_, _, err := run(t, parse(t, entry(body)), mem, runOpts{block: [3]uint32{threads, 1, 1}})
			require.NoError(t, err, name)
			for i := range int(threads) {
				var got seen
				for k := range got.near {
					got.near[k] = mem.u32(16*i + k)
				}
				for k := range got.far {
					got.far[k] = mem.u32(far/4 + 16*i + 8 + k)
				}
				require.Equal(t, tt.want, got, "%s, thread %d of %d", name, i, threads)
			}
		}
	}
}

// stallRun runs one block until it no longer moves, and returns how it then is.
func stallRun(t *testing.T, body string, mem Memory, threads uint32) (State, error) {
	b, err := NewBlock(&Launch{Kernel: parse(t, entry(body)), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{threads, 1, 1},
		Params: binary.LittleEndian.AppendUint64(nil, flatBase), Memory: mem, StepLimit: 100000}, [3]uint32{})
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	for {
		switch state, err := b.Run(Quantum{Warps: 50, Rand: rng}); {
		case state == Stalled:
			before, _ := b.Counts()
			again, err := b.Run(Quantum{Warps: 50, Rand: rng})
			after, _ := b.Counts()
			require.NoError(t, err)
			require.Equal(t, Stalled, again, "it stays so")
			require.Equal(t, before, after)
			return state, nil
		case state == Done:
			return state, err
		}
	}
}

// TestStalls: an access that never completes holds up its own threads, and whoever waits for them.
func TestStalls(t *testing.T) {
	const place = `
	mov.u32 %r0, %tid.x; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1; add.s64 %rd2, %rd1, 2048;
	`
	loads, stores := Route{Loads: Stalls}, Route{Stores: Stalls}
	for name, tt := range map[string]struct {
		route   Route
		body    string
		threads uint32
		want    State
		marks   int // threads that get to write their mark
	}{
		"load":               {loads, "ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd1], 1;", 64, Stalled, 0},
		"one lane's load":    {loads, "setp.ne.u32 %p1, %r0, 3; @%p1 bra ON; ld.u32 %r1, [%rd2]; ON: st.global.u32 [%rd1], 1;", 64, Stalled, 63},
		"of some lanes":      {loads, "setp.lt.u32 %p1, %r0, 16; selp.b64 %rd3, %rd1, %rd2, %p1; ld.u32 %r1, [%rd3]; st.global.u32 [%rd1], 1;", 64, Stalled, 0},
		"one warp's load":    {loads, "setp.lt.u32 %p1, %r0, 32; @%p1 ld.u32 %r1, [%rd2]; st.global.u32 [%rd1], 1;", 96, Stalled, 64},
		"barrier":            {loads, "setp.lt.u32 %p1, %r0, 32; @%p1 ld.u32 %r1, [%rd2]; bar.sync 0; st.global.u32 [%rd1], 1;", 96, Stalled, 0},
		"collective":         {loads, "setp.eq.u32 %p1, %r0, 0; @!%p1 bra ON; ld.u32 %r1, [%rd2]; ON: bar.warp.sync -1; st.global.u32 [%rd1], 1;", 32, Stalled, 0},
		"sleepers go on":     {loads, "setp.lt.u32 %p1, %r0, 32; @%p1 ld.u32 %r1, [%rd2]; nanosleep.u32 1000; st.global.u32 [%rd1], 1;", 64, Stalled, 32},
		"store goes through": {loads, "st.global.u32 [%rd2], 1; st.global.u32 [%rd1], 1;", 64, Done, 64},
		"red is a load too":  {loads, "red.global.add.u32 [%rd2], 1; st.global.u32 [%rd1], 1;", 64, Stalled, 0},
		"store":              {stores, "st.global.u32 [%rd2], 1; st.global.u32 [%rd1], 1;", 64, Stalled, 0},
		"load goes through":  {stores, "ld.volatile.global.u32 %r1, [%rd2]; st.global.u32 [%rd1], 1;", 64, Done, 64},
		"atom is both":       {stores, "atom.global.add.u32 %r1, [%rd2], 1; st.global.u32 [%rd1], 1;", 64, Stalled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			mem := &split{newFlat(2 * far), tt.route}
			state, err := stallRun(t, place+tt.body, mem, tt.threads)
			require.NoError(t, err)
			require.Equal(t, tt.want, state)
			marks := 0
			for i := range int(tt.threads) {
				marks += int(mem.u32(i))
			}
			require.Equal(t, tt.marks, marks)
		})
	}

	// Whoever spins on what a held-up thread would have written is still a deadlock, and told so.
	mem := &split{newFlat(2 * far), loads}
	_, err := stallRun(t, place+`setp.lt.u32 %p1, %r0, 32; @%p1 ld.u32 %r1, [%rd2]; @%p1 st.global.u32 [%rd0+1024], 1;
	AGAIN: ld.volatile.global.u32 %r2, [%rd0+1024]; setp.eq.u32 %p2, %r2, 0; @%p2 bra AGAIN;`, mem, 64)
	var f *Fault
	require.ErrorAs(t, err, &f)
	require.Equal(t, Deadlock, f.Kind)
}
