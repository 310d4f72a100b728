//go:build linux && cgo

package cuda

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/gpu"
)

func TestReadHeader(t *testing.T) {
	for name, tt := range map[string]struct {
		ptx  string
		want ptxHeader
		err  string
	}{
		"plain":             {".version 7.0\n.target sm_70\n", ptxHeader{70, "sm_70", 70}, ""},
		"comments":          {"//\n// Generated\n/* a\n .version 1.0 */ .version 8.7 // x\n\n\t.target sm_90a, debug\n", ptxHeader{87, "sm_90a", 90}, ""},
		"one line":          {".version 7.8 .target sm_80 .address_size 64", ptxHeader{78, "sm_80", 80}, ""},
		"split":             {".version\n 9.0\n.target\n sm_120f\n", ptxHeader{90, "sm_120f", 120}, ""},
		"carriage returns":  {".version 7.0\r\n.target sm_70\r\n", ptxHeader{70, "sm_70", 70}, ""},
		"empty":             {"", ptxHeader{}, "no .version"},
		"comment only":      {"/* .version 7.0", ptxHeader{}, "no .version"},
		"version only":      {".version 7.0\n", ptxHeader{}, "no .target"},
		"target first":      {"\n.target sm_70\n.version 7.0\n", ptxHeader{}, "line 2"},
		"something between": {".version 7.0\n.address_size 64\n.target sm_70\n", ptxHeader{}, "line 2"},
		"words":             {"hello", ptxHeader{}, "line 1: want .version"},
		"long line":         {strings.Repeat("x", 500), ptxHeader{}, "…"},
	} {
		got, err := readHeader([]byte(tt.ptx))
		if tt.err != "" {
			require.ErrorContains(t, err, tt.err, name)
			require.Less(t, len(err.Error()), 200, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, tt.want, got, name)
	}
}

func FuzzReadHeader(f *testing.F) {
	f.Add([]byte(".version 7.0\n.target sm_70\n"))
	f.Add([]byte("/* */ // .version 8.7\n/"))
	f.Fuzz(func(t *testing.T, ptx []byte) {
		h, err := readHeader(ptx)
		if err == nil && (h.target == "" || !strings.HasPrefix(h.target, "sm_")) {
			t.Fatalf("accepted without a target: %+v", h)
		}
		explainLog("x.ptx", ptx, string(ptx))
	})
}

func TestExplainLog(t *testing.T) {
	ptx := []byte("one\n  two \nthree")
	require.Equal(t, "k.ptx:2 in `two`: ptxas line 2; bad", explainLog("k.ptx", ptx, "ptxas line 2;\n  bad\n\x00\x00"))
	require.Equal(t, "k.ptx:9: line 9; bad", explainLog("k.ptx", ptx, "line 9; bad"))
	require.Equal(t, "k.ptx: unresolved extern", explainLog("k.ptx", ptx, "unresolved extern"))
	require.Equal(t, "k.ptx: the driver's compiler left no log", explainLog("k.ptx", ptx, " \x00"))
}

func TestLookup(t *testing.T) {
	for code, r := range results {
		require.True(t, strings.HasPrefix(r.name, "CUDA_ERROR_"), "%d", code)
		require.NotNil(t, r.kind, r.name)
		require.Equal(t, r.kind == gpu.ErrNoDriver, code == resNoDevice, "%s: only an absent device may look like an absent driver", r.name)
	}
	require.Equal(t, gpu.ErrCapture, lookup(904).kind)
	require.Equal(t, "CUDA_ERROR_CAPTURED_EVENT", lookup(907).name)
	require.Equal(t, gpu.ErrUnknown, lookup(909).kind)
}

func TestSpans(t *testing.T) {
	var s spans
	for _, base := range []gpu.Ptr{300, 100, 200} {
		s.add(span{base: base, size: 50})
	}
	s.add(span{base: 400, size: 8, host: make([]byte, 8)})
	dev, host := s.counts()
	require.Equal(t, []int{3, 1}, []int{dev, host})
	for p, want := range map[gpu.Ptr]gpu.Ptr{100: 100, 149: 100, 200: 200, 349: 300, 407: 400} {
		sp, ok := s.holding(p)
		require.True(t, ok, p)
		require.Equal(t, want, sp.base)
	}
	for _, p := range []gpu.Ptr{0, 99, 150, 199, 350, 408, ^gpu.Ptr(0)} {
		_, ok := s.holding(p)
		require.False(t, ok, p)
	}
	s.take(200)
	s.take(201)
	s.take(400)
	_, ok := s.holding(210)
	require.False(t, ok)
	dev, host = s.counts()
	require.Equal(t, []int{2, 0}, []int{dev, host})
}
