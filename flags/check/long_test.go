package check

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A long execution keeps no more than what threads may still see, whatever it does over and over.
func TestLongExecutions(t *testing.T) {
	loop := func(body string) string { return "L:\n" + body + "\nsetp.ge.u32 p, v, 0;\n@p bra L;" }
	for _, c := range []struct{ name, body string }{
		{"add", "atom.relaxed.gpu.global.add.u32 v, [a], 1;"},
		{"poll", "st.relaxed.gpu.global.u32 [a], 1;\nld.relaxed.gpu.global.u32 v, [o];"},
		{"poll by cas", "st.relaxed.gpu.global.u32 [a], 1;\natom.relaxed.gpu.global.cas.b32 v, [o], 1, 2;"},
		{"releases", "atom.release.gpu.global.add.u32 v, [a], 1;"},
		{"acquires and releases", "atom.acq_rel.gpu.global.add.u32 v, [a], 1;"},
		{"gathers", "st.release.gpu.global.u32 [a], 1;\nld.relaxed.gpu.global.u32 v, [a];"},
		{"fences", "st.relaxed.gpu.global.u32 [a], 1;\nfence.sc.gpu;\nld.relaxed.gpu.global.u32 v, [a];"},
		{"constant", "st.relaxed.gpu.global.u32 [a], 1;\nld.global.nc.u32 v, [o];"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := specced(t, kernel("k", loop(c.body)), twoWords+"launch k grid 2 block 2")
			o := Options{Steps: 400_000}
			x, err := newExec(t.Context(), p, &o)
			require.NoError(t, err)
			r := newRandomly(false)
			r.seed = 1
			x.choose = r
			x.run()
			require.Len(t, x.found, 1)
			require.Equal(t, Endless, x.found[0].Kind)
			require.NotZero(t, x.evicted)
			require.LessOrEqual(t, len(x.allWrites), writesKept)
			require.LessOrEqual(t, len(x.slab.used), slabsKept)
			require.LessOrEqual(t, len(x.scs), 4)
			require.LessOrEqual(t, len(x.constant), mostConstant)
			kept := map[*write]bool{}
			for _, l := range x.allLocs[:x.usedLocs] {
				require.LessOrEqual(t, len(l.order), x.maxWrites)
				for _, w := range l.order {
					kept[w] = true
					require.LessOrEqual(t, len(w.readers), mostReaders)
					require.LessOrEqual(t, len(w.heads), 8)
				}
			}
			for _, n := range x.threads {
				require.LessOrEqual(t, len(n.gathered), mostGathered)
			}
			forgotten := 0
			for _, w := range x.allWrites[:x.used] {
				if !kept[w] {
					require.Nil(t, w.source) // else each would keep all before it
					require.Nil(t, w.clocks)
					forgotten++
				}
			}
			require.NotZero(t, forgotten)
			again, err := Check(t.Context(), p, Options{Replay: x.p.Key + "-" + r.token(), Steps: o.Steps})
			require.NoError(t, err)
			require.Equal(t, Endless, again.Findings[0].Kind)
			require.False(t, again.Exhaustive)
		})
	}
}

// Of many reads of one value those are kept that tell a race, by whoever made them: the first, the last, and those of atomics that wrote.
func TestReadersKept(t *testing.T) {
	w := &write{}
	for n := range uint32(10 * mostReaders) {
		for id := range int32(3) {
			require.False(t, w.readBy(reader{actor: actor{event: event{id: id, n: n + 1}}, choice: -1, wrote: id == 2 && n == 100}))
		}
	}
	require.LessOrEqual(t, len(w.readers), mostReaders)
	for id := range int32(3) {
		has := func(n uint32) bool {
			return slices.ContainsFunc(w.readers, func(r reader) bool { return r.id == id && r.n == n })
		}
		require.True(t, has(1))
		require.True(t, has(10*mostReaders))
		require.Equal(t, id == 2, has(101))
	}
	w = &write{}
	forgotten := false
	for n := range uint32(4 * mostChoices) {
		if now := w.readBy(reader{actor: actor{event: event{n: n + 1}}, choice: int32(n)}); now && !forgotten {
			forgotten = true
			require.Greater(t, n, uint32(mostChoices))
		}
	}
	require.True(t, forgotten)
}

// A race with a read long ago is found after many others of the same value.
func TestRaceWithOneOfManyReads(t *testing.T) {
	reads := "mov.u32 w, 0;\nL:\nld.relaxed.cta.global.u32 v, [a];\nadd.u32 w, w, 1;\nsetp.lt.u32 p, w, 3000;\n@p bra L;\n"
	post := "st.release.sys.global.u32 [o], 1;\n"
	wait := "M:\nld.acquire.sys.global.u32 v, [o];\nsetp.eq.u32 p, v, 0;\n@p bra M;\nst.relaxed.cta.global.u32 [a], 1;"
	faulty(t, between(t, post+reads, wait, ""), Race, "nothing orders")
	all, random := found(t, between(t, reads+post, wait, ""))
	require.Empty(t, all.Findings)
	require.Empty(t, random.Findings)
}

// A systematic search does not fill memory with the choices of one execution.
func TestTooManyChoices(t *testing.T) {
	p := specced(t, kernel("k", "L:\nst.relaxed.gpu.global.u32 [a], 1;\nld.relaxed.gpu.global.u32 v, [o];\nsetp.eq.u32 p, v, 0;\n@p bra L;"), twoWords+"launch k block 1")
	x, err := newExec(t.Context(), p, &Options{})
	require.NoError(t, err)
	s := &systematically{}
	x.choose = s
	x.run()
	require.Len(t, x.found, 1)
	require.Equal(t, Endless, x.found[0].Kind)
	require.Contains(t, x.found[0].Message, "2097152 choices")
	require.NotZero(t, x.found[0].B.Line)
	require.LessOrEqual(t, len(s.path), mostDecisions+1)
	require.Contains(t, x.why, "reads of one value")
}
