package probe

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/topo"
)

// written is a machine and what was found on it, for the writers.
func written() (*topo.Machine, *topo.Measurement) {
	m := &topo.Machine{Devices: []topo.Device{{Name: "A", PCI: "0000:1b:00.0"}, {Name: "B", PCI: "0000:43:00.0"}, {Name: "C"}},
		Pairs: [][]topo.Pair{{{}, {Access: topo.Yes}, {Access: topo.No}}, {{Access: topo.Yes}, {}, {}}, {{Access: topo.No}, {}, {}}}}
	ok := topo.Check{Answer: topo.Yes}
	found := empty(m, &Options{})
	found.Pairs[0][0] = topo.Measured{Read: ok, Write: ok, Flags: ok, Atomics: ok, CopyRate: 3950.25, CopyNoP2P: 3949, KernelRate: 3800, LoadLatency: 262}
	found.Pairs[0][1] = topo.Measured{Read: ok, Write: ok, Flags: ok, Atomics: topo.Check{Detail: "not probed: the driver claims no native atomics"},
		CopyRate: 24.687, CopyNoP2P: 11.04, CopyBoth: 48.1, BothNoP2P: 17.5, KernelRate: 23.9, KernelBoth: 44, FlagLatency: 1480, LoadLatency: 1300}
	found.Pairs[1][0] = topo.Measured{Read: topo.Check{Answer: topo.No, Detail: "child process timed out after 2s and was killed"}, Write: ok, Flags: ok}
	return m, found
}

func TestWriteChecks(t *testing.T) {
	m, found := written()
	var b bytes.Buffer
	require.NoError(t, WriteChecks(&b, m, found))
	require.Equal(t, `pair  read  write  flags  atomics
0→0   ok    ok     ok     ok
0→1   ok    ok     ok     -
1→0   FAIL  ok     ok     -

0→1 atomics: not probed: the driver claims no native atomics
1→0 read: child process timed out after 2s and was killed
`, b.String())
}

// What is the same of several checks or pairs is said once.
func TestWriteChecksOnce(t *testing.T) {
	m, _ := written()
	found := empty(m, &Options{})
	why := topo.Check{Detail: "not probed: the driver gives no peer access"}
	late := topo.Check{Answer: topo.No, Detail: "timed out"}
	for _, p := range []Pair{{0, 2}, {1, 2}, {2, 0}} {
		found.Pairs[p.From][p.To] = topo.Measured{Read: why, Write: why, Flags: why, Atomics: why}
	}
	for _, p := range []Pair{{0, 1}, {1, 0}} {
		found.Pairs[p.From][p.To] = topo.Measured{Read: late, Write: late, Flags: topo.Check{Detail: "not probed: x"}, Atomics: topo.Check{Answer: topo.No, Got: 1}}
	}
	var b bytes.Buffer
	require.NoError(t, WriteChecks(&b, m, found))
	_, below, _ := strings.Cut(b.String(), "\n\n")
	require.Equal(t, "0→1, 1→0 read, write: timed out\n0→1, 1→0 flags: not probed: x\n0→1, 1→0 atomics: expected 0x0, got 0x1 at offset 0\n"+
		"0→2, 1→2, 2→0: not probed: the driver gives no peer access\n", below)
	require.Equal(t, "0→1, 0→1, 0→1, 0→1, 0→1, 0→1, 0→1, 0→1 and 2 more read: x", (&note{pairs: slices.Repeat([]string{"0→1"}, 10), checks: "read", text: "x"}).String())
}

func TestWriteNumbers(t *testing.T) {
	m, found := written()
	var b bytes.Buffer
	require.NoError(t, WriteNumbers(&b, m, found))
	require.Equal(t, `[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Device: 0, A, pciBusID: 0000:1b:00.0
Device: 1, B, pciBusID: 0000:43:00.0
Device: 2, C, pciBusID: -
Device=0 CAN Access Peer Device=1
Device=0 CANNOT Access Peer Device=2
Device=1 CAN Access Peer Device=0
Device=1 MAY OR MAY NOT Access Peer Device=2
Device=2 CANNOT Access Peer Device=0
Device=2 MAY OR MAY NOT Access Peer Device=1

P2P Connectivity Matrix
     D\D     0     1     2
     0	     1     1     0
     1	     1     1     ?
     2	     0     ?     1
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\D      0      1      2
     0 3949.00  11.04      -
     1      -      -      -
     2      -      -      -
Unidirectional P2P=Enabled Bandwidth (P2P Reads, copy engine) Matrix (GB/s)
   D\D      0      1      2
     0 3950.25  24.69      -
     1      -      -      -
     2      -      -      -
Bidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\D      0      1      2
     0      -  17.50      -
     1      -      -      -
     2      -      -      -
Bidirectional P2P=Enabled Bandwidth (P2P Reads, copy engine) Matrix (GB/s)
   D\D      0      1      2
     0      -  48.10      -
     1      -      -      -
     2      -      -      -
Unidirectional P2P=Enabled Bandwidth (P2P Reads, kernel) Matrix (GB/s)
   D\D      0      1      2
     0 3800.00  23.90      -
     1      -      -      -
     2      -      -      -
Bidirectional P2P=Enabled Bandwidth (P2P Reads, kernel) Matrix (GB/s)
   D\D      0      1      2
     0      -  44.00      -
     1      -      -      -
     2      -      -      -
P2P=Enabled Latency (one dependent load) Matrix (us)
   GPU      0      1      2
     0   0.26   1.30      -
     1      -      -      -
     2      -      -      -
P2P=Enabled Latency (P2P Writes, one flag one way) Matrix (us)
   GPU      0      1      2
     0      -   1.48      -
     1      -      -      -
     2      -      -      -
`, b.String())
}

type shut struct{}

func (shut) Write([]byte) (int, error) { return 0, errors.New("shut") }

func TestWriteRefuses(t *testing.T) {
	m, found := written()
	require.ErrorContains(t, WriteChecks(shut{}, m, found), "shut")
	require.ErrorContains(t, WriteNumbers(shut{}, m, found), "shut")
	found.Pairs = found.Pairs[:2]
	require.ErrorIs(t, WriteChecks(shut{}, m, found), ErrOptions)
	require.ErrorIs(t, WriteNumbers(shut{}, m, found), ErrOptions)
	var b bytes.Buffer
	require.NoError(t, WriteNumbers(&b, &topo.Machine{}, &topo.Measurement{}))
	require.Contains(t, b.String(), "No numbers were taken.")
}
