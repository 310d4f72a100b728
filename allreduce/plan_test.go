package allreduce

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/topo"
)

// machine makes a topology from rows: "X" self, "1" access, "0" none, "?" unknown; row i, column j is i reaching j.
func machine(rows ...string) *topo.Machine {
	m := &topo.Machine{Devices: make([]topo.Device, len(rows)), Pairs: make([][]topo.Pair, len(rows))}
	for i, row := range rows {
		m.Pairs[i] = make([]topo.Pair, len(rows))
		for j, c := range row {
			m.Pairs[i][j].Access = map[rune]topo.Tri{'1': topo.Yes, '0': topo.No, '?': topo.Unknown}[c]
		}
	}
	return m
}

func TestChoose(t *testing.T) {
	blocked := machine("X1", "1X")
	blocked.Pairs[1][0].Read, blocked.Pairs[1][0].ReadCode = topo.No, "NS"
	noWrites := machine("X1", "1X")
	noWrites.Pairs[0][1].Write, noWrites.Pairs[0][1].WriteCode = topo.No, "CNS"
	for name, c := range map[string]struct {
		m       *topo.Machine
		devices []int
		want    Algorithm
		got     Algorithm
		reason  string
	}{
		"all":         {machine("X11", "1X1", "11X"), []int{0, 1, 2}, Auto, OneshotPush, "all 3 devices reach each other directly; the default up to 16384 bytes of 3 ranks without NVLink"},
		"one":         {machine("X"), []int{0}, Auto, OneshotPull, "a single rank"},
		"virtual":     {machine("X0", "0X"), []int{1, 1, 1}, Auto, OneshotPush, "all ranks share device 1; the default up to 77824 bytes of 3 ranks on one device"},
		"one way":     {machine("X1", "0X"), []int{0, 1}, Auto, Copy, "1→0: device 1 cannot read the memory of device 0, and direct kernels need both directions"},
		"none":        {machine("X0", "0X"), []int{0, 1}, Auto, Host, "devices 0 and 1 have no peer access in either direction, so direct kernels cannot run and copies would pass through host memory anyway"},
		"subset":      {machine("X10", "1X0", "00X"), []int{0, 1}, Auto, OneshotPush, "all 2 devices reach each other directly; the default up to 65536 bytes of 2 ranks without NVLink"},
		"one missing": {machine("X11", "1X0", "11X"), []int{0, 1, 2}, Auto, Copy, "1→2: device 1 cannot read the memory of device 2, and direct kernels need both directions"},
		"unknown":     {machine("X?", "1X"), []int{0, 1}, Auto, Copy, "0→1: it is not known whether device 0 can read the memory of device 1, for nothing states it; direct kernels are not risked on that, and the driver finds copies a way"},
		"code":        {blocked, []int{0, 1}, Auto, OneshotPush, "1→0: device 1 cannot read the memory of device 0 (NS), so peers are only written to"},
		"writes":      {noWrites, []int{0, 1}, Auto, Copy, "0→1: device 0 cannot write the memory of device 1 (CNS), and direct kernels need both directions"},
		"forced":      {machine("X1", "1X"), []int{0, 1}, Host, Host, "asked for"},
		"forced pull": {machine("X1", "1X"), []int{0, 1}, OneshotPull, OneshotPull, "asked for"},
		"forced push": {blocked, []int{0, 1}, OneshotPush, OneshotPush, "asked for"},
		"forced copy": {machine("X0", "0X"), []int{0, 1}, Copy, Copy, "asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			got, reason, err := Choose(c.m, c.devices, c.want)
			require.NoError(t, err)
			require.Equal(t, c.got, got)
			require.Equal(t, c.reason, reason)
		})
	}
	_, _, err := Choose(machine("X0", "1X"), []int{0, 1}, OneshotPull)
	require.ErrorIs(t, err, ErrNoPlan)
	require.EqualError(t, err, "algorithm oneshot-pull: 0→1: device 0 cannot read the memory of device 1: use auto, copy or host")
	_, _, err = Choose(machine("X"), []int{0}, Algorithm(77))
	require.ErrorIs(t, err, ErrNoPlan)
}

func TestShape(t *testing.T) {
	fit := func(limit int) func(int) int { return func(int) int { return limit } }
	for _, a := range Algorithms()[1:] {
		for n := uint64(0); n <= 1<<24; n = n*2 + 1 {
			for world := 1; world <= 16; world++ {
				for _, limit := range []int{1, 16, 1000} {
					blocks, threads := shape(a, n, world, grid{}, fit(limit))
					require.GreaterOrEqual(t, blocks, 1)
					require.LessOrEqual(t, blocks, min(limit, mostBlocks(a, workOf(a, n, world), world)))
					require.GreaterOrEqual(t, threads, 64)
					require.LessOrEqual(t, threads, maxThreads)
					require.Zero(t, threads%32)
				}
			}
		}
	}
	for _, c := range []struct {
		a                          Algorithm
		world, kb, blocks, threads int
	}{
		{OneshotPull, 2, 1, 1, 64}, {OneshotPull, 2, 8, 2, 256}, {Copy, 2, 64, 16, 256}, {OneshotPull, 2, 512, 32, 512}, {OneshotPull, 2, 1024, 64, 512}, {TwoshotPull, 2, 512, 32, 512}, {TwoshotPull, 2, 1024, 64, 512},
		{OneshotPull, 4, 64, 16, 256}, {Host, 4, 128, 16, 512}, {OneshotPull, 8, 8, 2, 256}, {TwoshotPull, 8, 64, 8, 512},
		{OneshotPush, 8, 8, 8, 128}, {OneshotPush, 2, 2, 2, 128}, {OneshotPush, 2, 3, 2, 192}, {OneshotPush, 2, 4, 4, 128}, {OneshotPush, 2, 32, 32, 128}, {OneshotPush, 2, 64, 64, 128}, {OneshotPush, 2, 256, 64, 512}, {OneshotPush, 2, 512, 64, 512}, {OneshotPush, 4, 256, 32, 512},
		{TwoshotPush, 8, 64, 8, 128}, {TwoshotPush, 8, 1024, 32, 512}, {TwoshotPush, 8, 1, 1, 64},
	} {
		blocks, threads := shape(c.a, uint64(c.kb)<<10, c.world, grid{}, fit(64))
		require.Equal(t, []int{c.blocks, c.threads}, []int{blocks, threads}, "%+v", c)
	}
	// The grids of wide packets that were fastest on one H200, or near, where all but one rank leave an SM empty: an SM holds 16 warps of theirs.
	for _, c := range []struct {
		a                          Algorithm
		world, kb, blocks, threads int
	}{
		{OneshotWide, 2, 128, 43, 64}, {OneshotWide, 2, 256, 57, 96}, {OneshotWide, 2, 512, 57, 192}, {OneshotWide, 2, 1024, 57, 384}, {OneshotWide, 2, 1536, 64, 512},
		{TwoshotWide, 4, 128, 15, 192}, {TwoshotWide, 4, 256, 15, 384}, {TwoshotWide, 4, 512, 43, 256}, {TwoshotWide, 4, 1024, 33, 384},
		{TwoshotWide, 8, 64, 7, 192}, {TwoshotWide, 8, 128, 7, 384}, {TwoshotWide, 8, 256, 8, 384}, {TwoshotWide, 8, 512, 16, 384},
	} {
		n := uint64(c.kb) << 10
		shared := func(threads int) int {
			return fits(c.a, n, c.world, min(16/(threads/32)*132/c.world, leavingOne(132, c.world-1)), 2)
		}
		blocks, threads := shape(c.a, n, c.world, grid{}, shared)
		require.Equal(t, []int{c.blocks, c.threads}, []int{blocks, threads}, "%+v", c)
	}
	// One device with 132 SMs, each of which holds one block of 512 threads: all ranks' blocks, and the next call's, share it.
	for _, c := range []struct{ world, kb, blocks, threads int }{
		{4, 256, 32, 256}, {4, 512, 32, 256}, {8, 128, 16, 128}, {8, 256, 32, 128}, {8, 512, 16, 256},
	} {
		shared := func(threads int) int { return 512 / threads * 132 / (2 * c.world) }
		blocks, threads := shape(TwoshotPush, uint64(c.kb)<<10, c.world, grid{}, shared)
		require.Equal(t, []int{c.blocks, c.threads}, []int{blocks, threads}, "%+v", c)
		blocks, threads = shape(TwoshotPush, uint64(c.kb)<<10, c.world, grid{4, 64}, shared)
		require.Equal(t, []int{4, 64}, []int{blocks, threads}, "what is preferred")
		blocks, _ = shape(TwoshotPush, uint64(c.kb)<<10, c.world, grid{64, 512}, shared)
		require.Equal(t, min(shared(512), int(slotsOf(TwoshotPush, uint64(c.kb)<<10, c.world)+511)/512), blocks, "as many as there are room and work for")
	}
}

// A group keeps room for the grids that its own calls can have, and no more.
func TestMostBlocks(t *testing.T) {
	for _, c := range []struct {
		cfg           Config
		a             Algorithm
		threads, want int
	}{
		{Config{Ranks: 1}, OneshotPull, 512, 64}, {Config{Ranks: 1, MaxBytes: 64 << 10}, OneshotPull, 512, 32},
		{Config{Ranks: 2}, OneshotPush, 512, 64}, {Config{Ranks: 2, Blocks: 7}, OneshotPush, 512, 7},
		{Config{Ranks: 4}, TwoshotWide, 192, 64}, {Config{Ranks: 4}, TwoshotWide, 512, 32}, {Config{Ranks: 4}, OneshotPush, 512, 32}, {Config{Ranks: 2}, OneshotWide, 256, 64}, {Config{Ranks: 2}, OneshotWide, 512, 32},
		{Config{Ranks: 4, Table: Table{{Algorithm: OneshotPush, Blocks: 48}}}, OneshotPush, 512, 48},
		{Config{Ranks: 4, Table: Table{{Algorithm: TwoshotWide, Blocks: 64}}}, TwoshotWide, 512, 64},
		{Config{Ranks: 4, Table: Table{{Algorithm: TwoshotWide, Blocks: 64}}}, OneshotPush, 512, 32},
		{Config{Ranks: 2, Algorithm: TwoshotPush}, TwoshotPush, 512, 64}, {Config{Ranks: 2, Algorithm: TwoshotPull}, TwoshotPull, 512, 64},
		{Config{Ranks: 2, Algorithm: OneshotPull, MaxBytes: 64 << 10}, OneshotPull, 512, 32},
	} {
		if c.cfg.MaxBytes == 0 {
			c.cfg.MaxBytes = 4 << 20
		}
		require.Equal(t, c.want, newGroup(t, openEmu(t, "nvlink", 4), c.cfg).mostBlocks(c.a, c.threads), "%+v %v", c.cfg, c.a)
	}
}

// A second group finds room beside the first, whatever its calls are: by threads, since emulated SMs have registers for all.
func TestRoomForTwoGroups(t *testing.T) {
	for _, ranks := range []int{2, 4, 8} {
		rt := openEmu(t, "nvlink-8", 8)
		var groups []*Group
		for range 2 {
			g := newGroup(t, rt, Config{Ranks: ranks, MaxBytes: 4 << 20})
			plan, err := g.Plan(4000, F32)
			require.NoError(t, err)
			require.True(t, plan.Algorithm.Direct(), "%d ranks: %+v", ranks, plan)
			groups = append(groups, g)
		}
		for _, g := range groups {
			require.NoError(t, g.Close())
		}
	}
}

// Where a rank's blocks have all had what they wait for, every peer's blocks are there: each has sent something to it.
func TestHeardAll(t *testing.T) {
	require.False(t, heardAll(TwoshotWide, lateFrom(TwoshotWide, 4)-1, 4, 16))
	require.True(t, heardAll(TwoshotWide, lateFrom(TwoshotWide, 4), 4, 16))
	require.False(t, heardAll(TwoshotPush, 4<<20, 4, 16))
	require.True(t, heardAll(OneshotWide, lateFrom(OneshotWide, 4), 4, 16))
	sound := 0
	for world := 2; world <= flags.MaxRanks; world++ {
		for _, n := range []uint64{lateFrom(TwoshotWide, world), lateFrom(TwoshotWide, world) + 2, 512 << 10, 1 << 20, 1536 << 10} {
			tiles := int(tilesOf(n, world))
			for blocks := 1; blocks <= flags.MaxBlocks; blocks++ {
				all := true
				for peer := range world - 1 {
					from := map[int]bool{}
					for tile := range tiles { // as the kernel counts shares
						from[(tile*(world-1)+peer)%blocks] = true
					}
					all = all && len(from) == blocks
				}
				require.Equal(t, all, heardAll(TwoshotWide, n, world, blocks), "world %d, %d bytes, %d blocks", world, n, blocks)
				if all {
					sound++
				}
			}
			columns := int(columnsOf(n, world))
			require.GreaterOrEqual(t, int(packsOf(n)), (world-1)*wideRows*columns+columns, "world %d, %d bytes: the last chunk has all of its first row", world, n)
			for _, most := range []int{1, 16, 33, 49, 64} {
				blocks := heard(TwoshotWide, n, world, most)
				require.True(t, heardAll(TwoshotWide, n, world, blocks), "world %d, %d bytes, %d blocks of %d", world, n, blocks, most)
				require.GreaterOrEqual(t, blocks, min(most, tiles)*2/3, "few are given up for it")
			}
		}
	}
	require.Positive(t, sound)
}

// A grid is made smaller for that only where two launches have no room together, and never one that was asked for.
func TestHeardGrid(t *testing.T) {
	for _, c := range []struct{ asked, room, want int }{{0, 128, 63}, {0, 126, 63}, {0, 125, 27}, {0, 63, 27}, {49, 63, 49}} {
		g := newGroup(t, openEmu(t, "nvlink-8", 8), Config{Ranks: 8, Algorithm: TwoshotWide, Blocks: c.asked, Threads: 96, MaxBytes: 1 << 20})
		g.rooms[TwoshotWide][96/32] = c.room
		blocks, threads := g.shape(TwoshotWide, 320<<10, grid{})
		require.Equal(t, []int{c.want, 96}, []int{blocks, threads}, "%+v", c)
	}
}

// What is chosen for an empty device is what a group takes there.
func TestSelectAsGroup(t *testing.T) {
	rt := openEmu(t, "nvlink", 2)
	m, err := describe(rt, nil)
	require.NoError(t, err)
	for _, kb := range []uint64{8, 64, 512, 1024, 1536, 4096} {
		g := newGroup(t, rt, Config{Ranks: 2, MaxBytes: 4 << 20})
		want, err := g.Plan(kb<<8, F32)
		require.NoError(t, err)
		got, err := Select(SelectInput{Machine: m, Devices: []int{0, 1}, Bytes: kb << 10, MaxBytes: 4 << 20})
		require.NoError(t, err)
		require.Equal(t, []int{want.Blocks, want.Threads}, []int{got.Blocks, got.Threads}, "%d KB: %v and %v", kb, want.Algorithm, got.Algorithm)
		require.NoError(t, g.Close())
	}
}
