package allreduce

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/kernels"
)

var field = regexp.MustCompile(`(?m)^\s*(?:const )?(void|Pad|Control|Status|u64|u32)(\*?) (\w+)(\[MAX_RANKS\])?(?:, (\w+))?;`)

// offsets reads a struct of kernel arguments from its source.
func offsets(t *testing.T, file, name string) (map[string]int, int) {
	text, err := os.ReadFile("../kernels/" + file)
	require.NoError(t, err)
	body := regexp.MustCompile(`(?s)struct ` + name + ` \{(.*?)\n\};`).FindStringSubmatch(string(text))
	require.NotNil(t, body, "no struct %s in %s", name, file)
	at, out := 0, map[string]int{}
	for _, m := range field.FindAllStringSubmatch(body[1], -1) {
		size := 8
		if m[1] == "u32" {
			size = 4
		}
		require.Zero(t, at%size, "%s is not aligned", m[3])
		out[m[3]] = at
		if m[4] != "" {
			size *= flags.MaxRanks
		}
		at += size
		if m[5] != "" {
			out[m[5]] = at
			at += size
		}
	}
	return out, at
}

func TestArgumentsMirrorSources(t *testing.T) {
	pull := map[string]int{"peer": pullPeer, "pad": pullPad, "in": pullIn, "out": pullOut, "stage": pullStage,
		"control": pullControl, "status": pullStatus, "count": pullCount, "half": pullHalf, "timeout_ns": pullTimeout,
		"rank": pullRank, "world": pullWorld, "head": pullHead, "reserved": pullHead + 4}
	got, size := offsets(t, "oneshot_pull.cu", "AllReduceArgs")
	require.Equal(t, pull, got)
	require.Equal(t, pullBytes, size)
	got, size = offsets(t, "reduce_local.cu", "ReduceArgs")
	require.Equal(t, map[string]int{"part": reducePart, "out": reduceOut, "count": reduceCount, "world": reduceWorld, "head": reduceHead}, got)
	require.Equal(t, reduceBytes, size)
	push := map[string]int{"box": pushBox, "in": pushIn, "out": pushOut, "control": pushControl, "status": pushStatus, "count": pushCount,
		"slots": pushSlots, "timeout_ns": pushTimeout, "rank": pushRank, "world": pushWorld, "early": pushEarly}
	for a := OneshotPush; a <= TwoshotPush; a++ {
		if a.pushes() {
			got, size = offsets(t, "packets.cuh", "PushArgs")
			require.Equal(t, push, got)
			require.Equal(t, pushBytes, size)
			continue
		}
		got, size = offsets(t, sources[a].file+".cu", "TwoshotArgs")
		pull["result"] = twoshotResult
		require.Equal(t, pull, got)
		require.Equal(t, twoshotBytes, size)
	}

	m, err := kernels.Load()
	require.NoError(t, err)
	for a, source := range sources {
		var names []string
		for _, mod := range m.Modules {
			if mod.Source != source.file {
				continue
			}
			names = names[:0]
			for _, e := range mod.Entries {
				require.Equal(t, source.bytes, e.Bytes, "%s %s", mod.File, e.Name)
				names = append(names, e.Name)
			}
			for _, dt := range DTypes() {
				require.Contains(t, names, source.entry+dt.String())
			}
		}
		require.Equal(t, source.file != "", names != nil, "%v", Algorithm(a))
	}
}

// A device may lack builds of the wide kernels alone.
func TestOptionalKernels(t *testing.T) {
	for a, k := range sources {
		require.Equal(t, Algorithm(a).wide(), kernels.Optional(k.file), k.file)
	}
}

// Numbers that kernels and host both rely on are written once on each side.
func TestNumbersOfKernels(t *testing.T) {
	for text, file := range map[string]string{
		fmt.Sprintf("constexpr u64 EARLY_BYTES = %d << 10;", earlyBytes>>10): "reduce.cuh",
		"constexpr u32 REFRESH = 1u << 20;":                                  "fenceline.cuh", // refresh
		fmt.Sprintf("PACKETS = %d;", widePackets):                            "wide.cuh",
	} {
		source, err := kernels.Source(file)
		require.NoError(t, err)
		require.Contains(t, string(source), text, file)
	}
	require.Equal(t, 1<<20, refresh)
}
