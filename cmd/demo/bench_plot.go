package main

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/topo"
)

const (
	panelWidth  = 11 * vg.Centimeter
	panelHeight = 9 * vg.Centimeter
	headHeight  = 1.2 * vg.Centimeter
	keyHeight   = 0.6 * vg.Centimeter // of a line of the legend
	keyWidth    = 5 * vg.Centimeter
	plotGap     = 0.4 * vg.Centimeter
	mostAcross  = 3 // panels
	plotDPI     = 150
)

// colours that stay apart for most colour-blind readers (Okabe and Ito); each name has its own, whatever is drawn beside it.
var plotColours = map[string]color.RGBA{
	"auto": {0, 0, 0, 255}, "oneshot-pull": {0, 114, 178, 255}, "oneshot-push": {213, 94, 0, 255}, "twoshot-pull": {86, 180, 233, 255},
	"twoshot-push": {230, 159, 0, 255}, "oneshot-wide": {102, 51, 0, 255}, "twoshot-wide": {190, 174, 40, 255}, "copy": {0, 158, 115, 255}, "host": {204, 121, 167, 255}, compareNCCL: {118, 185, 0, 255},
	floorName: {150, 150, 150, 255}, "torch-oneshot": {238, 51, 119, 255}, "torch-oneshot-copy": {136, 34, 85, 255}, "torch-twoshot": {119, 170, 221, 255},
}

const floorName = "floor"

// series is one line of a panel.
type series struct {
	name   string
	dtype  allreduce.DType
	points plotter.XYs
}

// panel is one number of ranks.
type panel struct {
	ranks  int
	series []series
}

// panels sorts the medians out of place into lines.
func (r *benchReport) panels() []panel {
	var list []panel
	for _, w := range r.Worlds {
		p := panel{ranks: w.Ranks}
		add := func(name string, dt allreduce.DType, bytes uint64, us float64) {
			if us <= 0 {
				return
			}
			i := slices.IndexFunc(p.series, func(s series) bool { return s.name == name && s.dtype == dt })
			if i < 0 {
				i = len(p.series)
				p.series = append(p.series, series{name: name, dtype: dt})
			}
			p.series[i].points = append(p.series[i].points, plotter.XY{X: float64(bytes), Y: us})
		}
		for i := range r.Results {
			if res := &r.Results[i]; res.Ranks == w.Ranks {
				add(res.Name, res.DType, res.Bytes, res.Out.TimeUS)
			}
		}
		first := allreduce.DType(0)
		for i := range r.Results {
			res := &r.Results[i]
			if res.Ranks != w.Ranks {
				continue
			}
			if len(r.Results) > 0 {
				first = r.Results[0].DType
			}
			k := slices.IndexFunc(p.series, func(s series) bool { return s.name == floorName })
			drawn := k >= 0 && slices.ContainsFunc(p.series[k].points, func(xy plotter.XY) bool { return xy.X == float64(res.Bytes) })
			if res.DType == first && !drawn {
				add(floorName, first, res.Bytes, res.FloorUS)
			}
		}
		if len(p.series) > 0 {
			list = append(list, p)
		}
	}
	return list
}

// draw writes latency against size into a file: whole, in the place of an older one, or not at all.
func (r *benchReport) draw(path string) error {
	text, err := r.picture(strings.ToLower(filepath.Ext(path)))
	if err != nil {
		return fmt.Errorf("draw %s: %w", path, err)
	}
	return topo.WriteFile(path, "plot", text)
}

// picture draws the panels side by side, their title above and one legend for all below, where it covers nothing.
func (r *benchReport) picture(ext string) ([]byte, error) {
	panels := r.panels()
	if len(panels) == 0 {
		return nil, errors.New("there is nothing to draw: no size was measured")
	}
	keys, several := keysOf(panels)
	across := min(len(panels), mostAcross)
	if len(panels) == mostAcross+1 {
		across = 2
	}
	rows := (len(panels) + across - 1) / across
	width := vg.Length(across)*panelWidth + 2*plotGap
	keysAcross := max(1, int((width-2*plotGap)/keyWidth))
	keyRows := (len(keys) + keysAcross - 1) / keysAcross
	height := headHeight + vg.Length(rows)*panelHeight + vg.Length(keyRows)*keyHeight + 2*plotGap
	var canvas vg.CanvasWriterTo
	if ext == ".svg" {
		canvas = vgsvg.New(width, height)
	} else {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(plotDPI))}
	}
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())

	style := plot.New().Title.TextStyle
	style.Font.Variant, style.Font.Size = "Sans", vg.Points(12)
	style.XAlign, style.YAlign = draw.XCenter, draw.YTop
	head := func(size vg.Length, y vg.Length, text string) {
		style.Font.Size = size
		for style.Width(text) > width-2*plotGap && style.Font.Size > vg.Points(5) { // one panel is not wide
			style.Font.Size -= vg.Points(0.5)
		}
		all.FillText(style, vg.Point{X: width / 2, Y: y}, text)
	}
	head(vg.Points(12), height-plotGap, r.plotTitle())
	head(vg.Points(9), height-plotGap-vg.Points(15), r.plotSubtitle())
	style.Font.Size = vg.Points(9)

	for i := range panels {
		x, y := vg.Length(i%across), vg.Length(i/across)
		at := vg.Point{X: plotGap + x*panelWidth, Y: height - headHeight - plotGap - (y+1)*panelHeight}
		p, err := panels[i].plot(several)
		if err != nil {
			return nil, err
		}
		// The package places the label of a logarithmic axis off its middle, and makes room for it above: so it is drawn here.
		turned := style
		turned.Rotation, turned.XAlign, turned.YAlign = math.Pi/2, draw.XCenter, draw.YTop
		all.FillText(turned, at.Add(vg.Point{Y: panelHeight / 2}), "time of a call (µs)")
		at.X += 1.2 * plotGap
		p.Draw(draw.Canvas{Canvas: all.Canvas, Rectangle: vg.Rectangle{Min: at, Max: at.Add(vg.Point{X: panelWidth - 2.2*plotGap, Y: panelHeight - plotGap})}})
	}
	style.XAlign, style.YAlign = draw.XLeft, draw.YCenter
	for i, k := range keys {
		at := vg.Point{X: plotGap + vg.Length(i%keysAcross)*keyWidth, Y: plotGap + keyHeight*(vg.Length(keyRows-1-i/keysAcross)+0.5)}
		k.key(all, at, style, several)
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// keysOf are the lines of all panels, each once, and whether they are of several element types.
func keysOf(panels []panel) (keys []series, several bool) {
	for _, p := range panels {
		for _, s := range p.series {
			if !slices.ContainsFunc(keys, func(k series) bool { return k.name == s.name && k.dtype == s.dtype }) {
				keys = append(keys, s)
			}
			several = several || s.dtype != panels[0].series[0].dtype
		}
	}
	return keys, several
}

// line is how a series is drawn: a colour for each name, dashes for each element type, and a mark for each point.
func (s series) line() (draw.LineStyle, draw.GlyphStyle) {
	l := draw.LineStyle{Color: plotColours[s.name], Width: vg.Points(1.5)}
	g := draw.GlyphStyle{Color: plotColours[s.name], Radius: vg.Points(2.5), Shape: draw.CircleGlyph{}}
	switch s.dtype {
	case allreduce.F16:
		l.Dashes, g.Shape = []vg.Length{vg.Points(6), vg.Points(3)}, draw.SquareGlyph{}
	case allreduce.F32:
		l.Dashes, g.Shape = []vg.Length{vg.Points(2), vg.Points(2)}, draw.TriangleGlyph{}
	}
	if s.name == floorName {
		l.Dashes, g.Radius = []vg.Length{vg.Points(1), vg.Points(2)}, 0
	}
	return l, g
}

func (s series) key(c draw.Canvas, at vg.Point, style draw.TextStyle, several bool) {
	l, g := s.line()
	to := at.Add(vg.Point{X: vg.Points(24)})
	c.StrokeLine2(l, at.X, at.Y, to.X, to.Y)
	if g.Radius > 0 {
		c.DrawGlyph(g, vg.Point{X: (at.X + to.X) / 2, Y: at.Y})
	}
	text := s.name
	if several && s.name != floorName {
		text += " " + s.dtype.String()
	}
	c.FillText(style, to.Add(vg.Point{X: vg.Points(5)}), text)
}

func (p *panel) plot(several bool) (*plot.Plot, error) {
	pl := plot.New()
	pl.Title.Text = fmt.Sprintf("%d ranks", p.ranks)
	pl.X.Label.Text = "bytes per rank"
	for _, s := range []*draw.TextStyle{&pl.Title.TextStyle, &pl.X.Label.TextStyle, &pl.X.Tick.Label, &pl.Y.Tick.Label} {
		s.Font.Variant, s.Font.Size = "Sans", vg.Points(9)
	}
	pl.Title.TextStyle.Font.Size = vg.Points(10)
	pl.X.Scale, pl.Y.Scale = plot.LogScale{}, plot.LogScale{}
	pl.X.Tick.Marker, pl.Y.Tick.Marker = plot.TickerFunc(byteTicks), plot.TickerFunc(timeTicks)
	pl.Add(plotter.NewGrid())
	for _, s := range p.series {
		l, g := s.line()
		line, err := plotter.NewLine(s.points)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		line.LineStyle = l
		pl.Add(line)
		if g.Radius > 0 {
			pl.Add(&plotter.Scatter{XYs: s.points, GlyphStyle: g})
		}
	}
	// Room on all sides, so that no mark lies on the frame; a single size gets a width too.
	pl.X.Min, pl.X.Max = pl.X.Min/1.2, pl.X.Max*1.2
	pl.Y.Min, pl.Y.Max = pl.Y.Min/1.25, pl.Y.Max*1.25
	return pl, nil
}

// byteTicks are powers of two, at most nine of them with a label.
func byteTicks(lo, hi float64) []plot.Tick {
	first, last := int(math.Ceil(math.Log2(lo))), int(math.Floor(math.Log2(hi)))
	every := (last-first)/9 + 1
	var ticks []plot.Tick
	for e := first; e <= last; e++ {
		t := plot.Tick{Value: math.Exp2(float64(e))}
		if (e-first)%every == 0 {
			t.Label = byteLabel(e)
		}
		ticks = append(ticks, t)
	}
	if len(ticks) == 0 {
		ticks = append(ticks, plot.Tick{Value: lo, Label: fmt.Sprintf("%.0f", lo)})
	}
	return ticks
}

// byteLabel is 2^e in words: "64K".
func byteLabel(e int) string {
	if e < 0 {
		return fmt.Sprintf("%g", math.Exp2(float64(e)))
	}
	return fmt.Sprint(1<<(e%10)) + []string{"", "K", "M", "G", "T"}[min(e/10, 4)]
}

// timeTicks are 1, 2 and 5 of every decade, and without labels the digits between.
func timeTicks(lo, hi float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for d := 1.0; d < 10; d++ {
			v := d * math.Pow(10, e)
			if e < 0 {
				v = d / math.Pow(10, -e) // 0.2, not 0.2000…1
			}
			if v < lo || v > hi {
				continue
			}
			t := plot.Tick{Value: v}
			if d == 1 || d == 2 || d == 5 || hi/lo < 3 {
				t.Label = strconv.FormatFloat(v, 'f', -1, 64)
			}
			ticks = append(ticks, t)
		}
	}
	if len(ticks) == 0 {
		ticks = append(ticks, plot.Tick{Value: lo, Label: fmt.Sprintf("%.3g", lo)})
	}
	return ticks
}

func (r *benchReport) plotTitle() string {
	models := []string{}
	for _, d := range r.Devices {
		if !slices.Contains(models, d.Name) {
			models = append(models, d.Name)
		}
	}
	s := fmt.Sprintf("All-reduce latency: %d × %s (%s)", len(r.Devices), strings.Join(models, ", "), r.Backend.Backend)
	if r.Backend.Emulated {
		s = "EMULATED, times mean nothing: " + s
	}
	return s
}

func (r *benchReport) plotSubtitle() string {
	var types []string
	for i := range r.Results {
		if s := r.Results[i].DType.String(); !slices.Contains(types, s) {
			types = append(types, s)
		}
	}
	s := strings.Join(types, ", ") + ", out of place, median"
	if slices.ContainsFunc(r.Worlds, func(w worldReport) bool { return w.Shared }) {
		s += "; several ranks on one device"
	}
	return s
}
