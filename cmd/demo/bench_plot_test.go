package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/color"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
)

// drawable is a report of two world sizes, two algorithms and two element types.
func drawable() *benchReport {
	r := &benchReport{machineReport: machineReport{Backend: launcher.Info{Backend: "cuda"}, Devices: []topo.Device{{Name: "NVIDIA Test"}}}}
	for _, n := range []int{2, 4} {
		r.Worlds = append(r.Worlds, worldReport{Ranks: n, Shared: true})
		for _, name := range []string{"auto", "oneshot-pull"} {
			for _, dt := range []allreduce.DType{allreduce.BF16, allreduce.F32} {
				for e := 10; e <= 20; e++ {
					r.Results = append(r.Results, benchResult{Ranks: n, Name: name, DType: dt, Bytes: 1 << e, FloorUS: 1, Out: benchTimes{TimeUS: float64(e * n)}})
				}
			}
		}
	}
	return r
}

func TestPlot(t *testing.T) {
	dir := t.TempDir()
	svg, image := filepath.Join(dir, "p.SVG"), filepath.Join(dir, "p.png")
	require.NoError(t, os.WriteFile(image, []byte("older"), 0o600))
	r := drawable()
	require.NoError(t, r.draw(svg))
	require.NoError(t, r.draw(image))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2, "no temporary file stays")

	text, err := os.ReadFile(svg)
	require.NoError(t, err)
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
	}
	for _, want := range []string{"All-reduce latency: 1 × NVIDIA Test (cuda)", "bf16, f32, out of place, median; several ranks on one device",
		">2 ranks<", ">4 ranks<", ">auto bf16<", ">auto f32<", ">oneshot-pull bf16<", ">floor<", ">bytes per rank<", ">time of a call (µs)<", ">64K<", ">1M<", ">50<"} {
		require.Contains(t, string(text), want)
	}
	require.Equal(t, 1, strings.Count(string(text), ">auto bf16<"), "one legend for all panels")
	require.NotContains(t, string(text), "EMULATED")

	f, err := os.Open(image)
	require.NoError(t, err)
	defer f.Close()
	picture, err := png.Decode(f)
	require.NoError(t, err)
	seen := map[color.RGBA]int{}
	for x := range picture.Bounds().Dx() {
		for y := range picture.Bounds().Dy() {
			r, g, b, a := picture.At(x, y).RGBA()
			seen[color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), uint8(a >> 8)}]++
		}
	}
	for _, name := range []string{"auto", "oneshot-pull", floorName} {
		require.Greater(t, seen[plotColours[name]], 100, name)
	}
	require.Zero(t, seen[plotColours["copy"]])
	require.Greater(t, seen[color.RGBA{255, 255, 255, 255}], picture.Bounds().Dx()*picture.Bounds().Dy()/2)
}

// One size, or one point, has no width of its own; without any there is nothing to draw, and no file.
func TestPlotEdges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.svg")
	r := drawable()
	r.Results = r.Results[:1]
	r.Backend.Emulated = true
	require.NoError(t, r.draw(path))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), "EMULATED, times mean nothing")
	require.NotContains(t, string(text), "NaN")
	require.NotContains(t, string(text), "Inf")
	r.Results = nil
	require.ErrorContains(t, r.draw(path), "there is nothing to draw")
	require.ErrorContains(t, drawable().draw(t.TempDir()+"/gone/p.svg"), "make its folder first")
}

// Every name that may be drawn has a colour of its own.
func TestPlotColours(t *testing.T) {
	seen := map[color.RGBA]bool{}
	for _, a := range allreduce.Algorithms() {
		require.Contains(t, plotColours, a.String())
	}
	for name, c := range plotColours {
		require.False(t, seen[c], name)
		seen[c] = true
	}
}

func TestTicks(t *testing.T) {

	bytesOf := func(lo, hi float64) string {
		var s []string
		for _, k := range byteTicks(lo, hi) {
			if k.Label != "" {
				s = append(s, k.Label)
			}
		}
		return strings.Join(s, " ")
	}
	timesOf := func(lo, hi float64) string {
		var s []string
		for _, k := range timeTicks(lo, hi) {
			if k.Label != "" {
				s = append(s, k.Label)
			}
		}
		return strings.Join(s, " ")
	}
	require.Equal(t, "1K 2K 4K 8K", bytesOf(1000, 9000))
	require.Equal(t, "256 1K 4K 16K 64K 256K 1M", bytesOf(250, 1<<21))
	require.Equal(t, "0.5 1 2 5 10 20", timesOf(0.4, 21))
	require.Equal(t, "2 3 4", timesOf(1.7, 4.4))
	require.NotEmpty(t, bytesOf(1100, 1200))
	require.NotEmpty(t, timesOf(1.1, 1.2))
}
