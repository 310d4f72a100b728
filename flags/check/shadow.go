package check

// cell is what is known of one aligned word of memory that only weak accesses use: its value, who wrote it last and who
// has read it since. Race detection needs no more, and finds a race in any execution that has the two accesses, in
// whichever order they came.
type cell struct {
	value uint32
	mark
	parts *[4]mark  // when accesses smaller than the word were made; mark is then unused
	loc   *location // when strong accesses were; the rest is then unused, but for value
	dirty bool      // differs from the start of the execution
}

type mark struct {
	writer event   // id -1: the unwritten value
	also   []event // earlier writers that need not come before it
	reads  []event
}

var unwritten = event{id: -1}

// collide finds an access of m that conflicts with one of a thread with these clocks, or with what it has seen.
func (m *mark) collide(c clocks, writes bool, observed ...seen) *event {
	if !c.has(m.writer.id, m.writer.n) && !wasSeen(observed, m.writer, c) {
		return &m.writer
	}
	for i := range m.also {
		if w := &m.also[i]; !c.has(w.id, w.n) && !wasSeen(observed, *w, c) {
			return w
		}
	}
	if writes {
		for i := range m.reads {
			if r := &m.reads[i]; !c.has(r.id, r.n) {
				return r
			}
		}
	}
	return nil
}

// read remembers one. Those that come before it need not be kept: what comes after it comes after them.
func (m *mark) read(c clocks, e event) {
	keep := m.reads[:0]
	for _, r := range m.reads {
		if !c.has(r.id, r.n) {
			keep = append(keep, r)
		}
	}
	m.reads = append(keep, e)
}

func (m *mark) write(e event) {
	m.writer, m.also, m.reads = e, m.also[:0], m.reads[:0]
}

// writers are all of m's, the last one last.
func (m *mark) writers(yield func(event) bool) {
	for _, w := range m.also {
		if !yield(w) {
			return
		}
	}
	yield(m.writer)
}

// wrote is whether e is one of m's writers.
func (m *mark) wrote(e event) bool {
	for w := range m.writers {
		if sameEvent(e, w) {
			return true
		}
	}
	return false
}

// memory is all buffers of one execution.
type memory struct {
	buffers []buffer
	touched []*cell // to be put back
}

type buffer struct {
	name   string
	base   uint64
	size   int
	device int
	cells  []cell
	init   []uint32
}

const (
	deviceShift = 40 // a buffer's address says whose it is
	guardGap    = 4096
)

// find is the buffer that holds n bytes at address.
func (m *memory) find(address uint64, n int) *buffer {
	lo, hi := 0, len(m.buffers)
	for lo < hi {
		mid := (lo + hi) / 2
		if m.buffers[mid].base <= address {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return nil
	}
	b := &m.buffers[lo-1]
	if address-b.base+uint64(n) > uint64(b.size) {
		return nil
	}
	return b
}

func (m *memory) touch(c *cell) {
	if !c.dirty {
		c.dirty = true
		m.touched = append(m.touched, c)
	}
}

// reset puts everything back to the start.
func (m *memory) reset() {
	for _, c := range m.touched {
		reads := c.reads[:0]
		*c = cell{mark: mark{writer: unwritten, reads: reads}}
	}
	m.touched = m.touched[:0]
	for i := range m.buffers {
		b := &m.buffers[i]
		for k := range b.cells {
			b.cells[k].value = b.init[k]
		}
	}
}
