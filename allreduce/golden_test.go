package allreduce

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/topo"
)

// The plans for real machines, from what their nvidia-smi printed.
func TestGoldenPlans(t *testing.T) {
	read := func(name string) *topo.Machine {
		m, err := topo.ReadFile("../topo/testdata/" + name + ".txt")
		require.NoError(t, err)
		return m
	}
	hgx, gb200, dgx1 := read("hgx-h100-nv18-nics"), read("gb200-4gpu"), read("dgx1-v100")
	epyc, off, switches := read("epyc-5gpu-node"), read("two-5090-p2p-off"), read("two-socket-pcie-switches")
	const (
		links    = " devices reach each other directly, if their NVLinks mean what they usually do: nothing states their peer access"
		unstated = ", for nothing states it; direct kernels are not risked on that, and the driver finds copies a way"
		reading  = ", if they write as they read: only reading is stated"
		through  = ", so direct kernels cannot run and copies would pass through host memory anyway"
	)
	for name, c := range map[string]struct {
		m       *topo.Machine
		devices []int // nil: all
		knobs   Knobs
		want    string
	}{
		"hgx-h100":              {hgx, nil, Knobs{}, "oneshot-push: all 8" + links + "; the default up to 32768 bytes of 8 ranks over NVLink"},
		"hgx-h100, two":         {hgx, []int{0, 7}, Knobs{}, "oneshot-push: all 2" + links + "; the default up to 32768 bytes of 2 ranks over NVLink"},
		"gb200":                 {gb200, nil, Knobs{}, "oneshot-push: all 4" + links + "; the default up to 65536 bytes of 4 ranks over NVLink"},
		"dgx1":                  {dgx1, nil, Knobs{}, "copy: 0→5: it is not known whether device 0 can read the memory of device 5" + unstated},
		"dgx1, a mesh":          {dgx1, []int{0, 1, 2, 3}, Knobs{}, "oneshot-push: all 4" + links + "; the default up to 65536 bytes of 4 ranks over NVLink"},
		"dgx1, no mesh":         {dgx1, []int{0, 1, 2, 5}, Knobs{}, "copy: 0→5: it is not known whether device 0 can read the memory of device 5" + unstated},
		"dgx1, NVLink only":     {dgx1, nil, Knobs{P2PLevel: LevelNVL}, "host: the path between devices 0 and 5 is SYS, farther than FENCELINE_P2P_LEVEL=NVL allows" + through},
		"epyc":                  {epyc, nil, Knobs{}, "oneshot-push: all 5 devices reach each other directly" + reading + "; the default up to 4096 bytes of 5 ranks without NVLink"},
		"epyc, one bridge":      {epyc, nil, Knobs{P2PLevel: LevelPHB}, "host: the path between devices 0 and 1 is NODE, farther than FENCELINE_P2P_LEVEL=PHB allows" + through},
		"epyc, one bridge, two": {epyc, []int{3, 4}, Knobs{P2PLevel: LevelPHB}, "oneshot-push: all 2 devices reach each other directly" + reading + "; the default up to 65536 bytes of 2 ranks without NVLink"},
		"two-5090":              {off, nil, Knobs{}, "host: devices 0 and 1 have no peer access in either direction (GNS)" + through},
		"hgx-h100, NCCL":        {hgx, nil, Knobs{Algorithm: NCCL}, "nccl: asked for by FENCELINE_ALGO; NCCL does not sum in rank order, so bits can differ from the reference"},
		"hgx-h100, allowed":     {hgx, []int{0, 7}, Knobs{NCCL: true}, "oneshot-push: all 2" + links + "; the default up to 32768 bytes of 2 ranks over NVLink"},
		"switches":              {switches, nil, Knobs{}, "copy: 0→1: it is not known whether device 0 can read the memory of device 1" + unstated},
	} {
		t.Run(name, func(t *testing.T) {
			in := SelectInput{Machine: c.m, Devices: c.devices, Knobs: c.knobs}
			for i := range c.m.Devices {
				if c.devices == nil {
					in.Devices = append(in.Devices, i)
				}
			}
			p, err := Select(in)
			require.NoError(t, err)
			require.Equal(t, c.want, p.Algorithm.String()+": "+p.Reason)
		})
	}
}

// Emulated machines state what the drivers of such machines do: where a paste of dgx1-v100 leaves the peer access of pairs
// without NVLink open, which copies survive, its driver denies it.
func TestGoldenEmulated(t *testing.T) {
	for _, c := range []struct {
		machine string
		devices []int
		want    string
	}{
		{"dgx1-v100", []int{0, 1, 2, 3}, "oneshot-push: all 4 devices reach each other directly; the default up to 65536 bytes of 4 ranks over NVLink"},
		{"dgx1-v100", []int{0, 1, 2, 3, 4, 5, 6, 7}, "host: devices 0 and 5 have no peer access in either direction, so direct kernels cannot run and copies would pass through host memory anyway"},
		{"pcie-2socket", []int{4, 5, 6, 7}, "oneshot-push: all 4 devices reach each other directly; the default up to 16384 bytes of 4 ranks without NVLink"},
		{"one-way", []int{0, 1}, "copy: 1→0: device 1 cannot read the memory of device 0, and direct kernels need both directions"},
		{"mig", []int{0, 1}, "host: devices 0 and 1 have no peer access in either direction (MIG), so direct kernels cannot run and copies would pass through host memory anyway"},
	} {
		rt := openEmu(t, c.machine, 0)
		m, err := topo.FromDriver(rt.Driver())
		require.NoError(t, err)
		p, err := Select(SelectInput{Machine: m, Devices: c.devices})
		require.NoError(t, err)
		require.Equal(t, c.want, p.Algorithm.String()+": "+p.Reason)
	}
}
