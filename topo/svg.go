package topo

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// Sizes of the drawing, in pixels.
const (
	deviceW, deviceH = 104, 52
	nicW, nicH       = 76, 16
	gap, margin      = 16, 24
	switchHead       = 20
	socketHead       = 24
	crossing         = 96 // between two rows, for links across
	cellW, cellH     = 76, 36
)

// classColours are dark enough for white text on them.
var classColours = [...]string{
	ClassUnknown: "#777777", ClassSelf: "#dddddd", ClassNVLink: "#3f8f1f", ClassPIX: "#1f68a4", ClassPXB: "#3c86c0",
	ClassPHB: "#a87400", ClassNODE: "#c45f1a", ClassSYS: "#8a4f9e",
}

const badColour = "#c62828"

// WriteSVG draws the machine: a row for each socket, its PCIe switches as boxes with their devices and NICs, NVLinks as
// lines, and under that every ordered pair by the class of its path, with its measured rate (of kernels, else of
// copies) or what is wrong with it. measured may be nil. The same machine gives the same bytes.
func (m *Machine) WriteSVG(w io.Writer, measured *Measurement) error {
	if measured != nil && len(measured.Pairs) != len(m.Devices) {
		return fmt.Errorf("draw machine: %w: measured were %d devices, the machine has %d", ErrFormat, len(measured.Pairs), len(m.Devices))
	}
	d := &drawing{m: m, measured: measured, sockets: m.sockets(), at: make([]point, len(m.Devices))}
	d.mesh = d.uniform()
	d.rows()
	d.links()
	d.matrix()
	d.legend()
	head := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" font-family="DejaVu Sans, Verdana, sans-serif" font-size="12">`+"\n",
		d.width+margin, d.y+margin/2)
	head += "<title>" + escape(d.count()+", "+d.source()) + "</title>\n" + `<rect width="100%" height="100%" fill="#ffffff"/>` + "\n"
	return flush(w, "drawing", head+d.back.String()+d.under.String()+d.over.String()+"</svg>\n")
}

// SaveSVG writes what WriteSVG draws to a file, as Baseline.Save writes.
func (m *Machine) SaveSVG(path string, measured *Measurement) error {
	var b bytes.Buffer
	if err := m.WriteSVG(&b, measured); err != nil {
		return err
	}
	return writeFile(path, "drawing", b.Bytes())
}

type point struct{ x, y int }

// drawing is an SVG being made, in layers: sockets and switches at the back, then lines, and over them what has text.
type drawing struct {
	m           *Machine
	measured    *Measurement
	sockets     []socket
	right       int     // edge of the widest socket
	mesh        string  // the path of every pair, where NVLinks join all alike
	at          []point // left upper corner of each device
	back        strings.Builder
	under, over strings.Builder
	width, y    int
	used        [len(classColours)]bool
}

func (d *drawing) count() string {
	if len(d.m.Devices) == 1 {
		return "1 device"
	}
	return fmt.Sprintf("%d devices", len(d.m.Devices))
}

// source says what the machine was read from.
func (d *drawing) source() string {
	if d.m.Driver.Detail == "" {
		return d.m.Driver.Name
	}
	return d.m.Driver.Name + ", " + d.m.Driver.Detail
}

func escape(s string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(s)) //nolint:errcheck // a Builder takes everything
	return b.String()
}

func (d *drawing) box(b *strings.Builder, x, y, w, h int, style string) {
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" %s/>`+"\n", x, y, w, h, style)
	d.width = max(d.width, x+w)
}

// text writes a line no wider than about width pixels, with a tooltip of all of it where it was cut; 0 is any width.
func (d *drawing) text(b *strings.Builder, x, y, width int, style, s string) {
	short := []rune(s)
	if most := width * 10 / 62; width > 0 && len(short) > most { // 6.2 pixels a letter
		short = append(short[:max(most-1, 0)], '…')
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" %s>%s`, x, y, style, escape(string(short)))
	if string(short) != s {
		fmt.Fprintf(b, "<title>%s</title>", escape(s))
	}
	b.WriteString("</text>\n")
	if !strings.Contains(style, "middle") {
		d.width = max(d.width, x+len(short)*7)
	}
}

// uniform is the path of all pairs where NVLinks join three devices or more, all alike. A bar tells
// that better than a line for every pair.
func (d *drawing) uniform() string {
	if len(d.m.Devices) < 3 || !d.m.Mesh(nil) {
		return ""
	}
	link := d.m.Pairs[0][1].Link
	for i, row := range d.m.Pairs {
		for j, p := range row {
			if i != j && p.Link != link {
				return ""
			}
		}
	}
	return link
}

// rows places and draws the sockets from the top down.
func (d *drawing) rows() {
	d.y = margin + 8
	d.text(&d.over, margin, d.y, 0, `font-size="15" font-weight="bold"`, d.count())
	d.y += 16
	d.text(&d.over, margin, d.y, 700, `font-size="11" fill="#555555"`, d.source())
	d.y += 12
	for r, s := range d.sockets {
		if d.mesh == "" && !d.arcsBelow(r) {
			d.y += d.arcRoom(s)
		} else if d.mesh != "" && r == 0 && len(d.sockets) != 2 {
			d.y += crossing
		}
		d.socket(s)
		switch {
		case r+1 == len(d.sockets):
			if d.mesh == "" && d.arcsBelow(r) {
				d.y += d.arcRoom(s)
			}
		case d.crosses() || d.mesh != "" && len(d.sockets) == 2:
			d.y += crossing
		default:
			d.y += gap
		}
	}
}

// arcsBelow: of two rows the lower one has its arcs below, so that links across have the room between to themselves.
func (d *drawing) arcsBelow(row int) bool { return len(d.sockets) == 2 && row == 1 }

// crosses is whether NVLinks join sockets.
func (d *drawing) crosses() bool {
	for r, s := range d.sockets {
		for _, other := range d.sockets[:r] {
			for _, i := range s.members() {
				for _, j := range other.members() {
					if d.mesh == "" && d.m.Class(i, j) == ClassNVLink {
						return true
					}
				}
			}
		}
	}
	return false
}

func (s *socket) members() (all []int) {
	for _, g := range s.switches {
		all = append(all, g.devices...)
	}
	return all
}

// arcHeight is of an arc that spans so many places in a row.
func arcHeight(span int) int { return 14 + 30*span }

// arcRoom is the height that the arcs of a row need.
func (d *drawing) arcRoom(s socket) int {
	room := 0
	members := s.members()
	for a, i := range members {
		for b, j := range members[:a] {
			if d.m.Class(i, j) == ClassNVLink {
				room = max(room, arcHeight(a-b)*3/4+24)
			}
		}
	}
	return room
}

// socket draws one row.
func (d *drawing) socket(s socket) {
	top, x := d.y, margin+gap
	var switches strings.Builder
	for _, g := range s.switches {
		d.group(&switches, g, &x, top+socketHead+switchHead)
	}
	name := s.name
	if s.class > ClassPXB {
		name += " · at most " + s.class.String() + " inside"
	}
	name = strings.TrimPrefix(name, " · ")
	height := socketHead + switchHead + deviceH + gap + gap/2
	width := max(x-margin, len(name)*7+gap)
	d.right = max(d.right, margin+width)
	d.box(&d.back, margin, top, width, height, `rx="8" fill="#eceff1" stroke="#999999"`)
	d.back.WriteString(switches.String())
	d.text(&d.over, margin+10, top+16, 0, `fill="#333333" stroke="#eceff1" stroke-width="4" paint-order="stroke"`, name)
	d.y = top + height
}

// group draws the devices of one switch at *x, and moves it behind them. The switch itself goes to back.
func (d *drawing) group(back *strings.Builder, g group, x *int, y int) {
	left := *x
	shared := g.class == ClassPIX || g.class == ClassPXB
	if shared {
		*x += 10
	}
	for _, i := range g.devices {
		d.at[i] = point{*x, y}
		d.device(i)
		*x += deviceW + gap
	}
	for _, b := range g.bridges {
		first, last := d.at[b[0]], d.at[b[len(b)-1]]
		d.used[ClassPIX] = true
		d.box(&d.under, first.x-4, y-4, last.x-first.x+deviceW+8, deviceH+8, fmt.Sprintf(`rx="6" fill="none" stroke="%s" stroke-width="2.5"`, classColours[ClassPIX]))
	}
	const stack = (deviceH + 2) / (nicH + 2)
	for k, n := range g.nics {
		name := d.m.NICs[n].Name
		nx, ny := *x+k/stack*(nicW+6), y+k%stack*(nicH+2)
		d.box(&d.over, nx, ny, nicW, nicH, `rx="3" fill="#ffffff" stroke="#777777" stroke-dasharray="3 2"`)
		d.text(&d.over, nx+nicW/2, ny+12, nicW-4, `font-size="10" text-anchor="middle" fill="#555555"`, name)
	}
	if len(g.nics) > 0 {
		*x += (len(g.nics)+stack-1)/stack*(nicW+6) - 6 + gap
	}
	if shared {
		d.used[g.class] = true
		*x += 10 - gap
		d.box(back, left, y-switchHead, *x-left, switchHead+deviceH+gap-4, fmt.Sprintf(`rx="6" fill="#ffffff" stroke="%s" stroke-width="1.5"`, classColours[g.class]))
		d.text(&d.over, left+8, y-8, 0, fmt.Sprintf(`font-size="10" fill="%s" stroke="#ffffff" stroke-width="4" paint-order="stroke"`, classColours[g.class]), g.class.String())
		*x += gap
	}
}

func (d *drawing) device(i int) {
	p, dev := d.at[i], d.m.Devices[i]
	d.box(&d.over, p.x, p.y, deviceW, deviceH, `rx="4" fill="#263238"`)
	var lines []string
	for _, line := range []string{strings.TrimPrefix(dev.Name, "NVIDIA "), dev.PCI} {
		if line != "" && line != "unknown" {
			lines = append(lines, line)
		}
	}
	y := p.y + (deviceH+8)/2 - 7*len(lines)
	d.text(&d.over, p.x+deviceW/2, y, 0, `text-anchor="middle" fill="#ffffff" font-weight="bold"`, fmt.Sprintf("GPU%d", i))
	for k, line := range lines {
		d.text(&d.over, p.x+deviceW/2, y+14*(k+1), deviceW-4, `text-anchor="middle" fill="#cfd8dc" font-size="10"`, line)
	}
}

// rate is what was measured of i reaching j, GB/s; 0 when nothing was.
func (d *drawing) rate(i, j int) float64 {
	if d.measured == nil {
		return 0
	}
	p := d.measured.Pairs[i][j]
	if p.KernelRate > 0 {
		return p.KernelRate
	}
	return p.CopyRate
}

// problem is what keeps i from using j's memory, in a word or two; "" when nothing is known to.
func (d *drawing) problem(i, j int) string {
	if d.measured != nil {
		m := &d.measured.Pairs[i][j]
		for _, c := range m.checks() {
			if c.Answer == No && c.name != "atomics" {
				return c.name + " fails"
			}
		}
	}
	p := d.m.Pairs[i][j]
	switch read, write := p.CanRead(), p.CanWrite(); {
	case read == No && write == No && status(read, p.ReadCode) == status(write, p.WriteCode):
		return status(read, p.ReadCode)
	case read == No && write == No:
		return status(read, p.ReadCode) + "/" + status(write, p.WriteCode)
	case read == No:
		return "read " + status(read, p.ReadCode)
	case write == No:
		return "write " + status(write, p.WriteCode)
	}
	return ""
}

// matrix draws every ordered pair as a cell.
func (d *drawing) matrix() {
	d.y += gap + 18
	d.text(&d.over, margin, d.y, 0, `font-weight="bold"`, "From row to column: path, and the measured rate in GB/s or what does not work")
	d.y += 12
	left := margin + 56
	for j := range d.m.Devices {
		d.text(&d.over, left+j*cellW+cellW/2, d.y+12, 0, `text-anchor="middle" fill="#333333"`, fmt.Sprintf("GPU%d", j))
	}
	d.y += 18
	for i, row := range d.m.Pairs {
		d.text(&d.over, margin, d.y+cellH/2+4, 0, `fill="#333333"`, fmt.Sprintf("GPU%d", i))
		for j, p := range row {
			x, c := left+j*cellW, d.m.Class(i, j)
			d.used[c] = d.used[c] || i != j
			d.box(&d.over, x, d.y, cellW-2, cellH-2, fmt.Sprintf(`fill="%s"`, classColours[c]))
			if i == j {
				continue
			}
			link, second := p.Link, d.problem(i, j)
			if link == "" {
				link = "?"
			}
			style := `text-anchor="middle" fill="#ffffff"`
			if second != "" {
				d.box(&d.over, x, d.y+cellH/2-1, cellW-2, cellH/2-1, fmt.Sprintf(`fill="%s"`, badColour))
			} else if r := d.rate(i, j); r > 0 {
				second = fmt.Sprintf("%.1f", r)
			}
			first := d.y + cellH/2 - 5
			if second == "" {
				first = d.y + cellH/2 + 3
			}
			d.text(&d.over, x+cellW/2-1, first, cellW, style+` font-weight="bold"`, link)
			if second != "" {
				d.text(&d.over, x+cellW/2-1, d.y+cellH-7, cellW, style+` font-size="10"`, second)
			}
		}
		d.y += cellH
	}
}

// legend explains the colours that are in use.
func (d *drawing) legend() {
	d.y += gap
	for c := ClassUnknown; c <= ClassSYS; c++ {
		if d.used[c] && c != ClassSelf {
			d.box(&d.over, margin, d.y, 22, 12, fmt.Sprintf(`fill="%s"`, classColours[c]))
			d.text(&d.over, margin+30, d.y+11, 0, `font-size="11"`, classMeaning(c))
			d.y += 18
		}
	}
}

// classMeaning is a class and nvidia-smi's words for it.
func classMeaning(c Class) string {
	name := c.String()
	switch c {
	case ClassNVLink:
		name = "NV#"
	case ClassUnknown:
		name = "U"
	}
	for _, l := range linkLegend {
		if l.word == name {
			return c.String() + ": " + l.text
		}
	}
	return c.String()
}
