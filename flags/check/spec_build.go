package check

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/internal/ptx"
)

const (
	defaultAlign = 256
	guardByte    = 0xa5
	streamsEach  = 16 // streams of one rank
)

// specBuild turns a spec's body into a Program.
type specBuild struct {
	*specBody
	module  *ptx.Module
	p       *Program
	place   map[specPlace]int // index in p.Buffers
	model   [][]byte          // what each buffer holds, as far as the host wrote it
	sizes   []int             // of each buffer, without its guard
	calls   []int64           // launches so far on each rank; before the steps: all of them
	total   []int64
	writes  map[specPlace]int64
	global  [][]int // of each device: buffers that stand for the module's variables
	last    map[int]int
	before  []int
	synced  map[int]bool
	checks  []specCheck
	turns   int // of repeats so far
	memory  int // bytes so far
	worked  int // names and numbers
	threads int // of all launches

	compared int // elements that an expect compares
}

type specPlace struct {
	buffer *specBuffer
	rank   int
	call   int64
}

// Program is the spec with values of its params, for the kernels of a module. The error is a *SpecError.
func (s *Spec) Program(m *ptx.Module, set map[string]string) (p *Program, err error) {
	body, err := s.with(set)
	if err != nil {
		return nil, err
	}
	defer catchSpec(&err)
	b := &specBuild{specBody: body, module: m, p: &Program{Name: s.title(set), Devices: body.devices, GiveUp: body.giveUp}, place: map[specPlace]int{},
		calls: make([]int64, body.world), writes: map[specPlace]int64{}, last: map[int]int{}, synced: map[int]bool{}}
	flat := b.flatten(body.steps, nil)
	b.count(flat)
	b.allocate()
	b.globals()
	b.words()
	end := len(flat)
	for end > 0 && flat[end-1].kind == stepExpect {
		end--
	}
	for i, st := range flat {
		switch st.kind {
		case stepLaunch:
			b.each(st, b.launch)
		case stepWrite:
			b.each(st, b.write)
		case stepSync:
			b.before = slices.Sorted(maps.Values(b.last))
			b.synced = map[int]bool{}
		case stepExpect:
			b.expect(st, i >= end)
		}
	}
	b.p.Key = s.key(m, body)
	checks := b.checks
	if b.compared == 0 {
		b.p.Unasserted = b.unasserted(flat)
	}
	if len(checks) > 0 {
		b.p.Final = func(m *Memory) error { return judge(checks, m) }
	}
	return b.p, nil
}

// unasserted says of a spec that compares no result where it should, and how.
func (b *specBuild) unasserted(flat []*specStep) string {
	at, why := firstLaunch(b.steps).at, "nothing is expected of what is launched"
	if i := slices.IndexFunc(flat, func(s *specStep) bool { return s.kind == stepExpect }); i >= 0 {
		at, why = flat[i].at, "no expect compares any element"
	}
	return (&SpecError{File: b.file, Line: at.line, Col: at.col, Msg: why + ", so wrong results are not found: add a line such as `expect out u32 sum in`"}).Error()
}

// key is of all that the program is made of.
func (s *Spec) key(m *ptx.Module, body *specBody) string {
	h := fnv.New32a()
	fmt.Fprintln(h, m.Sum, s.text, s.entry, body.values, body.words) // fmt sorts maps
	return fmt.Sprintf("%08x", h.Sum32())
}

// title is the spec's name and what was set.
func (s *Spec) title(set map[string]string) string {
	title := s.Name
	for _, k := range slices.Sorted(maps.Keys(set)) {
		title += fmt.Sprintf(" %s=%s", k, set[k])
	}
	return title
}

// flatten writes repeats out.
func (b *specBuild) flatten(steps []*specStep, out []*specStep) []*specStep {
	for _, s := range steps {
		n := int64(1)
		if s.times != nil {
			if n = s.times(b.env()); n < 0 || n > maxSpecTasks {
				b.fail(s.at, "%d times: use 0 to %d", n, maxSpecTasks)
			}
		}
		for range n {
			if b.turns++; b.turns > maxSpecTasks {
				b.fail(s.at, "more than %d turns of all repeats: repeat less", maxSpecTasks)
			}
			if s.kind == stepRepeat {
				out = b.flatten(s.body, out)
			} else {
				out = append(out, s)
			}
			if len(out)*b.world > maxSpecTasks {
				b.fail(s.at, "more than %d steps on all ranks: repeat less", maxSpecTasks)
			}
		}
	}
	return out
}

func (b *specBuild) env() *env { return &env{body: b.specBody} }

// on says on which ranks a step happens.
func (b *specBuild) on(s *specStep) []int {
	var list []int
	if s.on == nil {
		for r := range b.world {
			e := b.env()
			e.rank, e.known = int64(r), knowRank
			if s.where == nil || s.where(e) != 0 {
				list = append(list, r)
			}
		}
		return list
	}
	for _, x := range s.on {
		r := x(b.env())
		if r < 0 || r >= int64(b.world) {
			b.fail(s.at, "on %d: ranks are 0 to %d", r, b.world-1)
		}
		if slices.Contains(list, int(r)) {
			b.fail(s.at, "rank %d is named twice: name each once", r)
		}
		list = append(list, int(r))
	}
	return list
}

func (b *specBuild) each(s *specStep, do func(*specStep, int)) {
	for _, r := range b.on(s) {
		do(s, r)
	}
}

func (b *specBuild) count(flat []*specStep) {
	b.total = make([]int64, b.world)
	for _, s := range flat {
		if s.kind == stepLaunch {
			b.each(s, func(_ *specStep, r int) { b.total[r]++ })
		}
	}
	if slices.Max(b.total) == 0 {
		b.fail(firstLaunch(b.steps).at, "nothing is launched on any rank: see that times, repeat and where are not 0 for all")
	}
}

func firstLaunch(steps []*specStep) *specStep {
	for _, s := range steps {
		switch {
		case s.kind == stepLaunch:
			return s
		case s.launches():
			return firstLaunch(s.body)
		}
	}
	return nil
}

// allocate makes every buffer, with its contents.
func (b *specBuild) allocate() {
	for number, v := range b.buffers {
		for r := range b.world {
			if v.on != nil && v.on(b.env()) != int64(r) {
				continue
			}
			n := int64(1)
			if v.calls {
				n = b.total[r]
			}
			for call := range n {
				e := b.env()
				e.rank, e.call, e.known = int64(r), call, knowRank
				name := v.name
				if v.on == nil && b.world > 1 {
					name = fmt.Sprintf("%s of rank %d", name, r)
				}
				if v.calls {
					e.known |= knowCall
					name = fmt.Sprintf("%s in call %d", name, call)
				}
				size, guard := v.size(e), int64(0)
				if v.guard != nil {
					guard = v.guard(e)
				}
				if size < 1 || size > maxSpecMemory || guard < 0 || guard > maxSpecMemory {
					b.fail(v.at, "%s has %d bytes and %d to guard it: use 1 to %d", v.name, size, guard, maxSpecMemory)
				}
				b.charge(int(size+guard), v.at)
				init := slices.Concat(b.fill(v.fill, number, e, call, int(size)), bytes.Repeat([]byte{guardByte}, int(guard)))
				device := r % b.devices
				if v.host {
					device = Host
				}
				align := int64(defaultAlign)
				if v.align != nil {
					if align = v.align(e); align < 1 || align > 1<<20 || align&(align-1) != 0 {
						b.fail(v.at, "align %d: use a power of two up to %d", align, 1<<20)
					}
				}
				at := b.newBuffer(Buffer{Name: name, Device: device, Size: len(init), Align: int(align), Init: init})
				b.place[specPlace{v, r, call}] = at
				b.sizes[at] = int(size)
				if guard > 0 {
					b.checks = append(b.checks, specCheck{what: "the bytes behind " + name, buffer: at, offset: int(size), typ: typeNamed("u8"), want: init[size:]})
				}
			}
		}
	}
}

// charge counts memory: buffers, what is written to them, and what is expected in them.
func (b *specBuild) charge(n int, at place) {
	if b.memory += n; b.memory > maxSpecMemory {
		b.fail(at, "buffers, writes and expectations together have more than %d bytes: make them fewer or smaller", maxSpecMemory)
	}
}

// work counts values that are worked out, times what stands in the line for each.
func (b *specBuild) work(n, cost int, at place) {
	if b.worked += n * max(cost, 1); b.worked > maxSpecWork {
		b.fail(at, "contents and expectations have more than %d names and numbers to work out: make them fewer or simpler", maxSpecWork)
	}
}

func (b *specBuild) newBuffer(v Buffer) int {
	b.p.Buffers = append(b.p.Buffers, v)
	b.model, b.sizes = append(b.model, v.Init), append(b.sizes, v.Size)
	return len(b.p.Buffers) - 1
}

// fill is contents: zeroes, values, or a payload.
func (b *specBuild) fill(f *specFill, number int, e *env, version int64, size int) []byte {
	out := make([]byte, size)
	if f == nil {
		return out
	}
	if f.value != nil {
		b.work(size/f.typ.size, f.cost, f.at)
	}
	at := *e
	at.known |= knowI
	for i := 0; (i+1)*f.typ.size <= size; i++ {
		at.i = int64(i)
		bits := f.typ.payload(number, e.rank, version, int64(i))
		if f.value != nil {
			bits = f.typ.number(f.value(&at))
		}
		f.typ.put(out[i*f.typ.size:], bits)
	}
	return out
}

// globals gives each device the module's variables.
func (b *specBuild) globals() {
	b.global = make([][]int, b.devices)
	for d := range b.devices {
		for _, g := range b.module.Globals {
			if g.Size > maxSpecMemory {
				b.fail(place{}, "the module's variable %s has %d bytes: at most %d can be checked", g.Name, g.Size, maxSpecMemory)
			}
			b.charge(g.Size, place{})
			init := make([]byte, g.Size)
			copy(init, g.Init)
			b.global[d] = append(b.global[d], b.newBuffer(Buffer{Name: g.Name, Device: d, Size: g.Size, Align: max(g.Align, 1), Init: init}))
		}
	}
}

// words writes the 32-bit words that word statements name.
func (b *specBuild) words() {
	for _, w := range b.inits {
		for at, index := range b.instances(w.buffer) {
			e := b.env()
			e.rank, e.call, e.known = int64(at.rank), at.call, knowRank|knowI
			if w.buffer.calls {
				e.known |= knowCall
			}
			n := w.count(e)
			if n < 0 || n > int64(b.sizes[index]) {
				b.fail(w.at, "%d words do not fit in %s, which has %d bytes", n, w.buffer.name, b.sizes[index])
			}
			b.charge(4*int(n), w.at)
			b.work(int(n), w.cost, w.at)
			for e.i = range n {
				off := w.offset(e)
				if off < 0 || off > int64(b.sizes[index])-4 {
					b.fail(w.at, "a word at %d is outside of %s, which has %d bytes", off, w.buffer.name, b.sizes[index])
				}
				typeNamed("u32").put(b.model[index][off:], uint64(w.value(e)))
			}
		}
	}
}

// instances are all buffers that a name stands for.
func (b *specBuild) instances(v *specBuffer) map[specPlace]int {
	all := map[specPlace]int{}
	for at, index := range b.place {
		if at.buffer == v {
			all[at] = index
		}
	}
	return all
}

// find is the buffer that a name means to a rank in a call; one that exists for one rank alone means the same to all.
func (b *specBuild) find(v *specBuffer, rank, call int64, at place) int {
	if v.on != nil {
		rank = v.on(b.env())
	}
	if !v.calls {
		call = 0
	}
	index, ok := b.place[specPlace{v, int(rank), call}]
	if !ok || rank < 0 {
		b.fail(at, "there is no %s of rank %d in call %d: ranks are 0 to %d, and that rank makes fewer calls or has none", v.name, rank, call, b.world-1)
	}
	return index
}

// task adds a task to a rank's stream, behind the last sync.
func (b *specBuild) task(t Task, rank int, stream int64) {
	t.Stream = rank*streamsEach + int(stream)
	if !b.synced[t.Stream] {
		b.synced[t.Stream] = true
		t.After = b.before
	}
	b.last[t.Stream] = len(b.p.Tasks)
	b.p.Tasks = append(b.p.Tasks, t)
}

// write is a copy from the host that fills a buffer anew.
func (b *specBuild) write(s *specStep, rank int) {
	at := specPlace{s.buffer, rank, 0}
	index := b.find(s.buffer, int64(rank), 0, s.at)
	b.writes[at]++
	b.charge(2*b.sizes[index], s.at)
	e := b.env()
	e.rank, e.known = int64(rank), knowRank
	data := b.fill(s.fill, slices.Index(b.buffers, s.buffer), e, b.writes[at], b.sizes[index])
	b.model[index] = slices.Concat(data, b.model[index][len(data):])
	from := b.newBuffer(Buffer{Name: "what is written to " + b.p.Buffers[index].Name, Device: Host, Size: len(data), Init: data})
	b.copy("write "+s.buffer.name, index, from, len(data), rank)
}

// entry finds a kernel of the module.
func (b *specBuild) entry(s *specStep) *ptx.Kernel {
	k, ok := b.module.Kernel(s.entry)
	if ok {
		return k
	}
	var names []string
	for i := range b.module.Info.Entries {
		names = append(names, b.module.Info.Entries[i].Name)
	}
	b.fail(s.at, "%s has no kernel %s: it has %s", b.module.Info.File, s.entry, strings.Join(names, ", "))
	return nil
}
