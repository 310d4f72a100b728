package launcher

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// loadKernel loads argsPTX on device 0 and finds an entry.
func loadKernel(t testing.TB, rt *Runtime, entry string) *Kernel {
	m, err := rt.Load(0, "args.ptx", []byte(argsPTX))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	k, err := m.Kernel(entry)
	require.NoError(t, err)
	return k
}

func TestPackLayout(t *testing.T) {
	rt, _ := openFake(t, 1)
	k := loadKernel(t, rt, "many")
	b, h := must[Buffer](t)(rt.Alloc(0, 64)), must[*HostBuffer](t)(rt.AllocHost(64))
	type pair struct {
		A uint32
		_ uint32
		B uint64
		C [2]int32
	}
	a, err := k.Pack(b, 1<<31, -2, uint8(3), true, float32(1.5), -2.5, float32(0.5),
		pair{A: 1, B: 2, C: [2]int32{3, -4}}, h, int8(-128), uint16(0x3c00))
	require.NoError(t, err)
	want := make([]byte, 0, 96)
	le := binary.LittleEndian
	want = le.AppendUint64(want, b.Ptr())
	want = le.AppendUint32(want, 1<<31)
	want = le.AppendUint32(want, 0xfffffffe)
	want = append(want, 3, 0, 1, 0) // u8, padding, u16
	want = le.AppendUint32(want, math.Float32bits(1.5))
	want = le.AppendUint64(want, math.Float64bits(-2.5))
	want = le.AppendUint32(want, math.Float32bits(0.5))
	want = append(want, 0, 0, 0, 0) // padding to 8
	want = le.AppendUint32(want, 1)
	want = append(want, 0, 0, 0, 0)
	want = le.AppendUint64(want, 2)
	want = le.AppendUint32(want, 3)
	want = le.AppendUint32(want, 0xfffffffc)
	want = le.AppendUint64(want, h.Ptr())
	want = append(want, 0x80, 0, 0, 0x3c)
	require.Equal(t, want, a.Bytes())
	require.Same(t, k, a.Kernel())

	a.Bytes()[0] ^= 0xff
	require.Equal(t, want, a.Bytes(), "Bytes must return a copy")
	require.NoError(t, b.Free())
	require.NoError(t, h.Free())
}

func TestPackRefuses(t *testing.T) {
	rt, _ := openFake(t, 1)
	k := loadKernel(t, rt, "many")
	type named uint32
	tests := []struct {
		name string
		i    int // parameter to replace
		arg  any
		got  string // part of ArgError.Got, "" when accepted
	}{
		{"pointer from uintptr", 0, uintptr(8), ""},
		{"pointer from nil", 0, nil, "nil"},
		{"pointer from float", 0, 1.0, "float64 1"},
		{"pointer from string", 0, "x", "string"},
		{"pointer from bytes", 0, make([]byte, 8), "[]byte of 8"},
		{"pointer from nil host buffer", 0, (*HostBuffer)(nil), "null *HostBuffer"},
		{"pointer from zero host buffer", 0, &HostBuffer{}, "null *HostBuffer"},
		{"u64 from narrower", 0, int32(-1), ""},
		{"u32 from int", 1, math.MaxUint32, ""},
		{"u32 from negative int", 1, math.MinInt32, ""},
		{"u32 from large int", 1, math.MaxUint32 + 1, "out of range"},
		{"u32 from small int", 1, math.MinInt32 - 1, "out of range"},
		{"u32 from uint64", 1, uint64(1), "uint64 1, a wider type"},
		{"u32 from int64", 1, int64(1), "a wider type"},
		{"u32 from named", 1, named(7), ""},
		{"u32 from float", 1, float32(1), "float32 1"},
		{"u32 from buffer", 1, Buffer{}, "a Buffer"},
		{"s32 from int", 2, math.MaxInt32, ""},
		{"s32 from large int", 2, math.MaxInt32 + 1, "out of range"},
		{"s32 from uint32", 2, uint32(math.MaxUint32), "out of range"},
		{"u8 from int", 3, 255, ""},
		{"u8 from large int", 3, 256, "out of range"},
		{"u8 from bool", 3, true, ""},
		{"u16 from int8", 4, int8(-1), ""},
		{"u16 from uint32", 4, uint32(1), "a wider type"},
		{"f32 from float64", 5, 1.5, "float64 1.5"},
		{"f32 from int", 5, 1, "int 1"},
		{"f32 from bool", 5, true, "a bool"},
		{"f32 from uint32", 5, uint32(1), "uint32 1"},
		{"f64 from float32", 6, float32(1), "float32 1"},
		{"b32 from uint32", 7, uint32(1), ""},
		{"b32 from float64", 7, 1.0, "float64 1"},
		{"struct from bytes", 8, make([]byte, 24), ""},
		{"struct from few bytes", 8, make([]byte, 23), "23 bytes"},
		{"struct from array", 8, [3]uint64{1, 2, 3}, ""},
		{"struct from short array", 8, [5]uint32{}, "[5]uint32 of 20 bytes without padding"},
		{"struct from slice", 8, []uint64{1, 2, 3}, ""},
		{"struct of int", 8, struct{ A, B, C int }{}, "no fixed size"},
		{"struct from int", 8, 7, "no fixed size"},
		{"s8 from int", 10, -128, ""},
		{"s8 from large int", 10, 128, "out of range"},
		{"f16 from uint16", 11, uint16(1), ""},
		{"f16 from uint32", 11, uint32(1), "uint32 1"},
		{"f16 from float32", 11, float32(1), "float32 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := []any{uint64(0), 0, 0, 0, 0, float32(0), 0.0, 0, make([]byte, 24), 0, 0, uint16(0)}
			args[tt.i] = tt.arg
			a, err := k.Pack(args...)
			if tt.got == "" {
				require.NoError(t, err)
				require.Len(t, a.Bytes(), k.Signature().ParamBytes)
				return
			}
			require.Nil(t, a)
			var ae *ArgError
			require.ErrorAs(t, err, &ae)
			require.ErrorIs(t, err, ErrInvalidValue)
			require.Equal(t, "many", ae.Kernel)
			require.Equal(t, tt.i, ae.Index)
			require.Equal(t, k.Signature().Params[tt.i].Name, ae.Param)
			require.Contains(t, ae.Got, tt.got)
			require.NotEmpty(t, ae.Want)
		})
	}

	_, err := k.Pack(1, 2)
	require.ErrorContains(t, err, "kernel many: want 12 arguments (u64 p0, u32 p1, s32 p2,")
	require.ErrorContains(t, err, "b8[24] p8, b64 p9, s8 p10, f16 p11), got 2")
	_, err = loadKernel(t, rt, "none").Pack(1)
	require.ErrorContains(t, err, "want 0 arguments (none), got 1")
	small := loadKernel(t, rt, "small")
	_, err = small.Pack(Buffer{}, 1)
	require.ErrorContains(t, err, "kernel small: argument 0 (p0)")
	require.ErrorContains(t, err, "null buffer")
	gone := must[Buffer](t)(rt.Alloc(0, 4))
	require.NoError(t, gone.Free())
	_, err = small.Pack(gone, 1)
	require.ErrorIs(t, err, ErrClosed)
	other := OpenWith(newFake(1))
	foreign := must[Buffer](t)(other.Alloc(0, 4))
	_, err = small.Pack(foreign, 1)
	require.ErrorContains(t, err, "a buffer of another runtime")
	require.NoError(t, foreign.Free())
	require.NoError(t, other.Close())
}

func TestArgsSet(t *testing.T) {
	rt, _ := openFake(t, 1)
	k := loadKernel(t, rt, "many")
	b := must[Buffer](t)(rt.Alloc(0, 64))
	a := must[*Args](t)(k.Pack(uint64(0), 0, 0, 0, 0, float32(0), 0.0, 0, make([]byte, 24), 0, 0, uint16(0)))
	raw := make([]byte, 24)
	raw[23] = 9
	set := func() {
		for _, err := range []error{a.SetBuffer(0, b), a.SetU32(1, 5), a.SetF32(5, 2), a.SetU64(9, 1<<40),
			a.SetBytes(8, raw), a.SetF32(7, 1), a.SetU32(7, 6)} {
			if err != nil {
				panic(err)
			}
		}
	}
	set()
	got := a.Bytes()
	le := binary.LittleEndian
	ps := k.Signature().Params
	require.Equal(t, b.Ptr(), le.Uint64(got[ps[0].Offset:]))
	require.EqualValues(t, 5, le.Uint32(got[ps[1].Offset:]))
	require.Equal(t, math.Float32bits(2), le.Uint32(got[ps[5].Offset:]))
	require.EqualValues(t, 6, le.Uint32(got[ps[7].Offset:]))
	require.Equal(t, raw, got[ps[8].Offset:][:24])
	require.EqualValues(t, 1<<40, le.Uint64(got[ps[9].Offset:]))

	n := testing.AllocsPerRun(100, set)
	require.Zero(t, n, "setting arguments must not allocate")

	for i := -1; i <= len(ps); i++ {
		var p Param
		if i >= 0 && i < len(ps) {
			p = ps[i]
		}
		for name, ok := range map[string]struct {
			err  error
			want bool
		}{
			"buffer": {a.SetBuffer(i, b), p.Type == "u64" || p.Type == "b64"},
			"u64":    {a.SetU64(i, 1), p.Type == "u64" || p.Type == "b64"},
			"u32":    {a.SetU32(i, 1), p.Type == "u32" || p.Type == "s32" || p.Type == "b32"},
			"f32":    {a.SetF32(i, 1), p.Type == "f32" || p.Type == "b32"},
			"bytes":  {a.SetBytes(i, raw), p.Size == 24},
		} {
			if ok.want {
				require.NoError(t, ok.err, "%s for %v", name, p)
				continue
			}
			var ae *ArgError
			require.ErrorAs(t, ok.err, &ae, "%s for %v", name, p)
			require.Equal(t, i, ae.Index)
		}
	}
	require.NoError(t, b.Free())
	require.ErrorIs(t, a.SetBuffer(0, b), ErrClosed)
}
