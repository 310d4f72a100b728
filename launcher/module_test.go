package launcher

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

// argsPTX has one parameter of each kind. Its body is empty; only declarations matter here.
const argsPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry many(
	.param .u64 p0,
	.param .u32 p1,
	.param .s32 p2,
	.param .u8 p3,
	.param .u16 p4,
	.param .f32 p5,
	.param .f64 p6,
	.param .b32 p7,
	.param .align 8 .b8 p8[24],
	.param .b64 p9,
	.param .s8 p10,
	.param .f16 p11
) { ret; }
.visible .entry small(.param .u64 p0, .param .u32 p1)
.maxntid 128, 1, 1
{ ret; }
.visible .entry none() { ret; }
`

func header(version, target string) []byte {
	return fmt.Appendf(nil, ".version %s\n.target %s\n.address_size 64\n.visible .entry k() { ret; }\n", version, target)
}

func TestLoad(t *testing.T) {
	rt, f := openFake(t, 1)
	m, err := rt.Load(0, "args.ptx", []byte(argsPTX))
	require.NoError(t, err)
	require.Equal(t, []string{"many", "small", "none"}, m.Entries())
	require.Equal(t, "args.ptx", m.Name())
	require.Zero(t, m.Device())

	k, err := m.Kernel("small")
	require.NoError(t, err)
	again, err := m.Kernel("small")
	require.NoError(t, err)
	require.Same(t, k, again)
	require.Equal(t, "small", k.Name())
	require.Equal(t, 8, k.Info().Registers)
	sig := k.Signature()
	require.Equal(t, 12, sig.ParamBytes)
	require.Equal(t, Param{Name: "p1", Type: "u32", Size: 4, Align: 4, Offset: 8}, sig.Params[1])
	sig.Params[1].Offset = 1000
	require.Equal(t, 8, k.Signature().Params[1].Offset, "Signature must return a copy")

	blocks, err := k.MaxActiveBlocks(128, 0)
	require.NoError(t, err)
	require.Equal(t, 16, blocks)
	for _, threads := range []int{-1, 0, 129} {
		_, err = k.MaxActiveBlocks(threads, 0)
		require.ErrorIs(t, err, ErrInvalidValue, "%d threads; .maxntid is 128", threads)
	}

	_, err = m.Kernel("tiny")
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorContains(t, err, `args.ptx has no entry "tiny", but many, small, none`)
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	_, err = m.Kernel("small")
	require.ErrorIs(t, err, ErrClosed)
	_, err = k.MaxActiveBlocks(128, 0)
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, f.Live().Modules)
}

func TestLoadRefuses(t *testing.T) {
	tests := []struct {
		name string
		dev  int
		ptx  []byte
		kind error
		msgs []string
	}{
		{"newest the driver reads", 0, header("8.2", "sm_90"), nil, nil},
		{"too new", 0, header("8.3", "sm_70"), ErrDriverTooOld, []string{"load k.ptx on device 0", ".version 8.3", "CUDA 12.3 or newer", "this one is 12.2", "for .version 8.2"}},
		{"much too new", 0, header("9.5", "sm_70"), ErrDriverTooOld, []string{"CUDA 13.5"}},
		{"beyond what is known", 0, header("12.0", "sm_70"), nil, nil},
		{"newer target", 0, header("7.0", "sm_100"), ErrInvalidPTX, []string{"sm_100", "sm_90", "Fake GPU"}},
		{"exact target", 0, header("8.0", "sm_90a"), nil, nil},
		{"older exact target", 0, header("8.0", "sm_80a"), ErrInvalidPTX, []string{"exactly sm_80"}},
		{"family of another generation", 0, header("8.0", "sm_80f"), ErrInvalidPTX, []string{"same family"}},
		{"no such device", 1, header("7.0", "sm_70"), ErrInvalidValue, []string{"the machine has 1"}},
		{"empty", 0, nil, ErrInvalidPTX, []string{"k.ptx:1"}},
		{"not PTX", 0, []byte("\x7fELF\x02"), ErrInvalidPTX, []string{"k.ptx:1"}},
		{"broken", 0, []byte(".version 7.0\n.target sm_70\n.visible .entry k(.param .u65 p) { ret; }"), ErrInvalidPTX, []string{"k.ptx:3", "u65"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rt, f := openFake(t, 1)
			m, err := rt.Load(tt.dev, "k.ptx", tt.ptx)
			if tt.kind == nil {
				require.NoError(t, err)
				require.NoError(t, m.Close())
				return
			}
			require.ErrorIs(t, err, tt.kind)
			for _, msg := range tt.msgs {
				require.ErrorContains(t, err, msg)
			}
			require.Zero(t, f.Live().Modules)
			var pe *PTXError
			if strings.Contains(err.Error(), "k.ptx:") {
				require.ErrorAs(t, err, &pe)
			}
		})
	}
}

func TestLoadAll(t *testing.T) {
	rt, f := openFake(t, 3)
	ms, err := rt.LoadAll([]int{2, 0, 2}, "args.ptx", []byte(argsPTX))
	require.NoError(t, err)
	require.Len(t, ms, 3)
	require.Same(t, ms[0], ms[2], "one module for a device named twice")
	require.Equal(t, 2, ms[0].Device())
	require.Equal(t, 0, ms[1].Device())
	require.Equal(t, 2, f.Live().Modules)
	for _, m := range ms {
		require.NoError(t, m.Close())
	}

	f.failOn = "module 1"
	f.fail.Store(&gpu.Error{Op: "cuModuleLoadDataEx", Device: 1, Kind: gpu.ErrInvalidPTX, Detail: "line 7"})
	_, err = rt.LoadAll([]int{0, 1, 2}, "args.ptx", []byte(argsPTX))
	require.ErrorIs(t, err, ErrInvalidPTX)
	require.ErrorContains(t, err, "device 1")
	require.Zero(t, f.Live().Modules, "nothing stays loaded")
	_, err = rt.LoadAll(nil, "args.ptx", []byte(argsPTX))
	require.ErrorIs(t, err, ErrInvalidValue)
	_, err = rt.LoadAll([]int{0, 3}, "args.ptx", []byte(argsPTX))
	require.ErrorIs(t, err, ErrInvalidValue)
}
