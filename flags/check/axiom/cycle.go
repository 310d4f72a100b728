package axiom

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/flags/check/litmus"
)

// Tests are made from cycles. A cycle goes from access to access by communication between threads, which stays at one
// location, and by program order within a thread, which goes on to the next location. The test asks whether an execution
// can go round: whether every edge of the cycle can hold at once. Store buffering, for one, is Fr Po Fr Po.

// comm is the way from one thread's program order to the next one's: a write read (Rf), a read overwritten (Fr), a write
// overwritten (Co), or two of these with a thread of one access in between.
type comm string

// Each letter pair is an edge; its first access reads or writes, and so does its last.
var comms = []comm{"Rf", "Fr", "Co", "RfFr", "CoRf", "FrRf"}

func (c comm) edges() []string {
	if len(c) == 2 {
		return []string{string(c)}
	}
	return []string{string(c[:2]), string(c[2:])}
}

// access is one memory access of the test that is being made.
type access struct {
	thread, loc int
	write       bool
	value       int    // written, or wanted by the condition
	order       string // "weak", ".relaxed.gpu", …
	rmw         bool
	reg         int
}

// Shapes is every cycle of up to three locations and four threads, once for all its rotations.
func Shapes() [][]comm {
	var list [][]comm
	var grow func(prefix []comm, n int)
	grow = func(prefix []comm, n int) {
		if n > 0 {
			for _, c := range comms {
				grow(append(prefix[:len(prefix):len(prefix)], c), n-1)
			}
			return
		}
		threads := 0
		for _, c := range prefix {
			threads += len(c.edges())
		}
		if threads >= 2 && threads <= 4 && first(prefix) {
			list = append(list, prefix)
		}
	}
	for n := 1; n <= 3; n++ {
		grow(nil, n)
	}
	return list
}

// first says whether the cycle is the least of its rotations.
func first(c []comm) bool {
	for i := 1; i < len(c); i++ {
		if fmt.Sprint(append(c[i:len(c):len(c)], c[:i]...)) < fmt.Sprint(c) {
			return false
		}
	}
	return true
}

// Cycles makes per tests of each shape, which differ in strength, scopes, fences, dependencies and places, drawn from
// the seed. Their expectations are what the axioms say.
func Cycles(per int, seed uint64) ([]*litmus.Test, error) {
	var all []*litmus.Test
	for i, shape := range Shapes() {
		for k := range per {
			m := &maker{r: rand.New(rand.NewPCG(seed, uint64(i*per+k))), wide: k%2 == 0}
			text := m.text(fmt.Sprintf("cycle %d.%d, %s", i+1, k+1, m.name(shape)), shape)
			tests, err := litmus.Parse("cycle", []byte(text))
			if err != nil {
				return nil, fmt.Errorf("%w in\n%s", err, text)
			}
			t := tests[0]
			a, err := Analyze(t)
			if err != nil {
				return nil, err
			}
			t.Race = a.Race
			for key := range a.Outcomes {
				if t.Expect[0].Holds(values(key)) {
					t.Expect[0].Mode = litmus.Allowed
				}
			}
			all = append(all, t)
		}
	}
	return all, nil
}

func values(key string) (list []uint64) {
	for s := range strings.FieldsSeq(key) {
		v, _ := strconv.ParseUint(s, 10, 64)
		list = append(list, v)
	}
	return list
}

func (m *maker) name(shape []comm) string {
	var parts []string
	for _, c := range shape {
		parts = append(parts, string(c), "Po")
	}
	return strings.Join(parts, " ")
}

// maker writes the text of one test.
type maker struct {
	r       *rand.Rand
	wide    bool // every access is strong, and every scope reaches
	columns [][]string
	places  []string
	wants   []string
}

func (m *maker) pick(s ...string) string { return s[m.r.IntN(len(s))] }

// accesses lays the cycle out. Its program order edges lead from the last access of one comm to the first of the next,
// in the same thread.
func accesses(shape []comm) (list []access) {
	thread := 0
	for loc, c := range shape {
		edges := c.edges()
		last := 0 // the value at the location so far
		for i := 0; i <= len(edges); i++ {
			var write bool
			if i < len(edges) {
				write = edges[i][0] != 'F'
			} else {
				write = edges[i-1] != "Rf"
			}
			if write {
				last++
			}
			list = append(list, access{thread: thread, loc: loc, write: write, value: last})
			if i < len(edges) {
				thread++
			}
		}
	}
	for i := range list {
		list[i].thread %= thread // the last thread is the first
		list[i].reg = i
	}
	return list
}

var locations = []string{"x", "y", "z"}

func (m *maker) text(name string, shape []comm) string {
	list := accesses(shape)
	threads := 0
	for _, a := range list {
		threads = max(threads, a.thread+1)
	}
	m.place(threads)
	m.columns = make([][]string, threads)
	// The thread of the last access goes on with the first one's.
	for i := range list {
		m.strength(&list[i])
	}
	for th := range threads {
		var own []access
		for i := range list {
			if a := list[(i+len(list)-1)%len(list)]; a.thread == th { // the last one first
				own = append(own, a)
			}
		}
		m.thread(th, own)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "test: %s\nwhy: the axioms say so\n", name)
	for i := range shape {
		fmt.Fprintf(&b, "%s = 0; ", locations[i])
	}
	b.WriteString("\n")
	m.table(&b)
	for loc := range shape {
		writes := 0
		for _, a := range list {
			if a.loc == loc && a.write {
				writes++
			}
		}
		if writes > 1 {
			m.wants = append(m.wants, fmt.Sprintf("[%s] = %d", locations[loc], writes))
		}
	}
	fmt.Fprintf(&b, "forbidden: %s\n", strings.Join(m.wants, " & "))
	return b.String()
}

func (m *maker) table(b *strings.Builder) {
	rows := 0
	for _, c := range m.columns {
		rows = max(rows, len(c))
	}
	for i := -1; i < rows; i++ {
		for k, c := range m.columns {
			if k > 0 {
				b.WriteString(" | ")
			}
			cell := m.places[k]
			if i >= 0 {
				cell = ""
				if i < len(c) {
					cell = c[i]
				}
			}
			fmt.Fprintf(b, "%-40s", cell)
		}
		b.WriteString("\n")
	}
}
