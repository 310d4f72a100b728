package topo

import (
	"fmt"
	"slices"
)

// links draws the NVLinks.
func (d *drawing) links() {
	if d.mesh != "" {
		d.bar()
		return
	}
	rowOf, place := map[int]int{}, map[int]int{}
	for r, s := range d.sockets {
		for k, i := range s.members() {
			rowOf[i], place[i] = r, k
		}
	}
	ends := d.ends(rowOf, place)
	odd, lanes := 0, 0
	for i := range d.m.Devices {
		for j := i + 1; j < len(d.m.Devices); j++ {
			if d.m.Class(i, j) != ClassNVLink {
				continue
			}
			a, b := d.at[i].x+ends[[2]int{i, j}], d.at[j].x+ends[[2]int{j, i}]
			if rowOf[i] == rowOf[j] {
				d.arc(i, j, a, b, abs(place[i]-place[j]), d.arcsBelow(rowOf[i]))
				continue
			}
			up, down := i, j // the upper row's end
			if rowOf[i] > rowOf[j] {
				up, down, a, b = j, i, b, a
			}
			y1, y2 := d.at[up].y+deviceH, d.at[down].y
			if abs(rowOf[i]-rowOf[j]) > 1 {
				d.around(i, j, a, b, y1, y2, lanes)
				lanes++
				continue
			}
			x, y := (a+b)/2, (y1+y2)/2-socketHead/2
			if a != b { // labels of crossing lines would meet in the middle
				x, y = a+(b-a)*(2+odd%2)/5, y1+(y2-y1)*(2+odd%2)/5
				odd++
			}
			d.line(i, j, fmt.Sprintf("M %d %d L %d %d", a, y1, b, y2), x, y)
		}
	}
}

// around draws a link past the rows between its ends, through a lane of its own to the right of all of them: a straight
// line would run behind their devices.
func (d *drawing) around(i, j, a, b, y1, y2, lane int) {
	const apart, steps = 12, 6
	x := d.right + gap + apart*lane
	below := y1 + gap + gap/2 + 6 + 5*(lane%steps)             // in the room below the upper row
	above := y2 - socketHead - switchHead - 6 - 5*(lane%steps) // and in that above the lower one
	d.width = max(d.width, x+apart+40)
	d.line(i, j, fmt.Sprintf("M %d %d L %d %d L %d %d L %d %d L %d %d L %d %d", a, y1, a, below, x, below, x, above, b, above, b, y2),
		x, below+14+(above-below-14)*(lane%steps)/steps)
}

// ends spreads the ends of links along a device's edge, in the order of the peers, so that lines do not run into one
// another. Keys are the device and its peer; values are pixels from the left.
func (d *drawing) ends(rowOf, place map[int]int) map[[2]int]int {
	out := map[[2]int]int{}
	for i := range d.m.Devices {
		var beside, across []int
		for j := range d.m.Devices {
			switch {
			case d.m.Class(min(i, j), max(i, j)) != ClassNVLink:
			case rowOf[i] == rowOf[j]:
				beside = append(beside, j)
			default:
				across = append(across, j)
			}
		}
		// Left of the device, the nearest peer ends leftmost, and right of it, rightmost: arcs nest.
		slices.SortFunc(beside, func(a, b int) int {
			if left := place[a] < place[i]; left == (place[b] < place[i]) {
				return place[b] - place[a]
			} else if left {
				return -1
			}
			return 1
		})
		slices.SortFunc(across, func(a, b int) int { return place[a] - place[b] })
		for _, list := range [][]int{beside, across} {
			for k, j := range list {
				out[[2]int{i, j}] = deviceW * (k + 1) / (len(list) + 1)
			}
		}
	}
	return out
}

func (d *drawing) arc(i, j, a, b, span int, below bool) {
	y, h := d.at[i].y, arcHeight(span)+socketHead+switchHead
	edge, top := y, y-h
	label := y - h*3/4 + 4
	if below {
		edge = y + deviceH
		top = edge + h
		label = edge + h*3/4 + 4
	}
	d.line(i, j, fmt.Sprintf("M %d %d C %d %d %d %d %d %d", a, edge, a, top, b, top, b, edge), (a+b)/2, label)
}

// line draws one NVLink path, with its label at x, y.
func (d *drawing) line(i, j int, path string, x, y int) {
	d.used[ClassNVLink] = true
	p := d.m.Pairs[i][j]
	n, _ := p.NVLinks()
	colour, label := classColours[ClassNVLink], p.Link
	if there, back := d.rate(i, j), d.rate(j, i); there > 0 && back > 0 {
		label += fmt.Sprintf(" %.0f GB/s", min(there, back))
	}
	if d.problem(i, j) != "" || d.problem(j, i) != "" {
		colour = badColour
	}
	fmt.Fprintf(&d.under, `<path d="%s" fill="none" stroke="%s" stroke-width="%d"/>`+"\n", path, colour, 1+min(n, 6))
	d.text(&d.over, x, y, 0, fmt.Sprintf(`text-anchor="middle" font-size="11" fill="%s" stroke="#ffffff" stroke-width="4" paint-order="stroke"`, colour), label)
}

// bar draws NVLinks that join all devices alike.
func (d *drawing) bar() {
	d.used[ClassNVLink] = true
	y := d.at[d.sockets[0].members()[0]].y - socketHead - switchHead - crossing/2
	if len(d.sockets) == 2 {
		y = d.at[d.sockets[1].members()[0]].y - socketHead - switchHead - crossing/2
	}
	left, right := d.at[0].x, d.at[0].x+deviceW
	slowest, bad := 0.0, false
	for i, p := range d.at {
		left, right = min(left, p.x), max(right, p.x+deviceW)
		for j := range d.at {
			if r := d.rate(i, j); i != j && r > 0 && (slowest == 0 || r < slowest) {
				slowest = r
			}
			bad = bad || i != j && d.problem(i, j) != ""
		}
		fmt.Fprintf(&d.under, `<path d="M %d %d L %d %d" stroke="%s" stroke-width="5"/>`+"\n", p.x+deviceW/2, p.y+deviceH/2, p.x+deviceW/2, y, classColours[ClassNVLink])
	}
	label := d.mesh + " between every two"
	if slowest > 0 {
		label += fmt.Sprintf(", %.0f GB/s at least", slowest)
	}
	if bad {
		label += " · not all pairs work"
	}
	d.box(&d.over, left, y-13, right-left, 26, fmt.Sprintf(`rx="6" fill="%s"`, classColours[ClassNVLink]))
	d.text(&d.over, (left+right)/2, y+4, 0, `text-anchor="middle" fill="#ffffff" font-weight="bold"`, label)
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}
