package check

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Mutant is PTX text with one instruction changed. Lines stay where they are.
type Mutant struct {
	File string
	Line int
	Text string // the instruction as it was
	What string // what became of it: "relaxed", "dropped", ".gpu"
	PTX  []byte
}

func (m *Mutant) String() string {
	return fmt.Sprintf("%s:%d: `%s`: %s", m.File, m.Line, m.Text, m.What)
}

// edit is a change of one instruction: what it is called, and the text that takes its place.
type edit struct{ what, text string }

// Mutants are all ways to weaken one instruction of an entry, of all entries when it has no name: acquire and release to
// relaxed, strong to weak, a narrower scope, two halves for a .b128 access, no fence, acq_rel for sc, no barrier or one of a warp
// for one of a block, no wait for the launch before; and slots that are no longer apart: a displacement behind 4096, the second half of a Pad, folded back
// on the first, and a choice between no displacement and another, the halves of boxes and staging, which is always none. And one
// that changes several: all .b128 accesses in halves, since halves of one alone are another size than what they meet.
func Mutants(name string, ptx []byte, entry string) []Mutant {
	list := scan(ptx, entry)
	return append(edits(name, ptx, list, weaken), splitAll(name, ptx, list)...)
}

func edits(name string, ptx []byte, list []instruction, of func(*instruction) []edit) []Mutant {
	var all []Mutant
	for i := range list {
		n := &list[i]
		for _, e := range of(n) {
			all = append(all, Mutant{File: name, Line: n.line, Text: n.String(), What: e.what, PTX: replace(ptx, n, e.text)})
		}
	}
	return all
}

// replace puts text in the place of an instruction, on as many lines as that has.
func replace(ptx []byte, n *instruction, text string) []byte {
	if lines := bytes.Count(ptx[n.from:n.to], []byte("\n")); lines > 0 {
		text += strings.Repeat("\n", lines)
	}
	return slices.Concat(ptx[:n.from], []byte(text), ptx[n.to:])
}

// with is the instruction with another opcode.
func (n *instruction) with(mods []string) string {
	return strings.TrimRight(n.guard+strings.Join(mods, ".")+" "+n.args, " ") + ";"
}

// swap replaces a modifier; by nothing when the new one is empty.
func (n *instruction) swap(old, now string) []string {
	var mods []string
	for _, m := range n.mods {
		switch {
		case m != old:
			mods = append(mods, m)
		case now != "":
			mods = append(mods, now)
		}
	}
	return mods
}

func (n *instruction) without(drop ...string) []string {
	return slices.DeleteFunc(slices.Clone(n.mods), func(m string) bool { return slices.Contains(drop, m) })
}

var scopes = []string{"cta", "cluster", "gpu", "sys"} // from narrow to wide

// inMemory is whether an access goes to memory that threads share.
func (n *instruction) inMemory() bool { return !n.has("param", "const", "local") }

func weaken(n *instruction) []edit {
	var list []edit
	add := func(what string, mods []string) { list = append(list, edit{what, n.with(mods)}) }
	switch n.mods[0] {
	case "ld", "st":
		if !n.inMemory() {
			return nil
		}
		if sem := n.sem(); sem != "" && sem != "relaxed" {
			add("relaxed", n.swap(sem, "relaxed"))
		}
		if n.has("relaxed", "acquire", "release", "volatile", "mmio") {
			add("weak", n.without(append([]string{"relaxed", "acquire", "release", "volatile", "mmio"}, scopes...)...))
		}
	case "atom", "red":
		if sem := n.sem(); sem != "" && sem != "relaxed" {
			add("relaxed", n.swap(sem, "relaxed"))
		}
		if !n.has(scopes...) && !n.has("shared") { // .gpu when nothing is said
			add(".cta", slices.Insert(slices.Clone(n.mods), 1, "cta"))
		}
	case "fence", "membar":
		if n.has("proxy") || n.has("mbarrier_init") {
			return nil
		}
		list = append(list, edit{"dropped", ""})
		switch {
		case n.mods[0] == "membar" && n.has("sys"):
			add(".gl", n.swap("sys", "gl"))
			add(".cta", n.swap("sys", "cta"))
		case n.mods[0] == "membar" && n.has("gl"):
			add(".cta", n.swap("gl", "cta"))
		}
		if n.has("sc") {
			add("acq_rel", n.swap("sc", "acq_rel"))
		}
		if n.mods[0] == "membar" {
			return list
		}
	case "bar", "barrier":
		return n.weakenBarrier()
	case "griddepcontrol":
		if n.has("wait") {
			return []edit{{"dropped", ""}}
		}
		return nil
	}
	if slices.Contains([]string{"ld", "st", "atom", "red", "fence"}, n.mods[0]) {
		for i, s := range scopes {
			if n.has(s) && (n.sem() != "" || n.mods[0] != "ld" && n.mods[0] != "st") {
				for _, narrow := range scopes[:i] {
					if narrow != "cluster" {
						add("."+narrow, n.swap(s, narrow))
					}
				}
			}
		}
	}
	if text := n.split(); text != "" {
		list = append(list, edit{split, text})
	}
	return append(list, n.fold()...)
}

const split = "split into .v2.b64"

// split is a strong .b128 access in two halves, which are accesses of their own; "" if it is none.
func (n *instruction) split() string {
	if n.mods[0] != "ld" && n.mods[0] != "st" || !n.has("b128") || !n.has("relaxed", "acquire", "release", "volatile", "mmio") {
		return ""
	}
	const halves = "{split_l, split_h}"
	op := strings.Join(n.swap("b128", "v2.b64"), ".")
	first, second, _ := strings.Cut(n.args, ",")
	first, second = strings.TrimSpace(first), strings.TrimSpace(second)
	if n.mods[0] == "st" {
		return fmt.Sprintf("{ .reg .b64 split_l, split_h; %[1]smov.b128 %[2]s, %[3]s; %[1]s%[4]s %[5]s, %[2]s; }", n.guard, halves, second, op, first)
	}
	return fmt.Sprintf("{ .reg .b64 split_l, split_h; %[1]s%[4]s %[2]s, %[5]s; %[1]smov.b128 %[3]s, %[2]s; }", n.guard, halves, first, op, second)
}

// splitAll is the mutant in which all strong .b128 accesses of the list are in halves, if there are several.
func splitAll(name string, ptx []byte, list []instruction) []Mutant {
	var m Mutant
	n := 0
	for i := len(list) - 1; i >= 0; i-- { // from the end, as offsets move behind a change
		if in := &list[i]; in.split() != "" {
			ptx = replace(ptx, in, in.split())
			m = Mutant{File: name, Line: in.line, Text: in.String(), What: "all .b128 " + split, PTX: ptx}
			n++
		}
	}
	if n < 2 {
		return nil
	}
	return []Mutant{m}
}

// sem is the instruction's memory semantics.
func (n *instruction) sem() string {
	for _, m := range n.mods[1:] {
		if slices.Contains([]string{"relaxed", "acquire", "release", "acq_rel"}, m) {
			return m
		}
	}
	return ""
}

// weakenBarrier drops a barrier, or has only warps wait; what it computes it still computes, as well as it can alone.
func (n *instruction) weakenBarrier() []edit {
	const warp = "bar.warp.sync 0xffffffff;"
	if n.has("warp") || n.has("arrive") {
		return []edit{{"dropped", ""}}
	}
	if n.has("sync") {
		return []edit{{"dropped", ""}, {"bar.warp.sync", n.guard + warp}}
	}
	args := strings.Split(n.args, ",") // dst, barrier, [threads,] predicate
	if !n.has("red") || len(args) < 3 {
		return nil
	}
	dst, pred := strings.TrimSpace(args[0]), strings.TrimSpace(args[len(args)-1])
	vote, alone := "", fmt.Sprintf("and.pred %s, %s, %s;", dst, pred, pred)
	negated, isNot := strings.CutPrefix(pred, "!")
	if isNot {
		alone = fmt.Sprintf("not.pred %s, %s;", dst, negated)
	}
	switch {
	case n.has("or"):
		vote = "any"
	case n.has("and"):
		vote = "all"
	default: // popc counts; alone there is one
		return []edit{{"dropped", fmt.Sprintf("%sselp.u32 %s, 1, 0, %s;", n.guard, dst, strings.TrimPrefix(pred, "!"))}}
	}
	return []edit{
		{"dropped", n.guard + alone},
		{"bar.warp.sync", fmt.Sprintf("%s%s %svote.sync.%s.pred %s, %s, 0xffffffff;", n.guard, warp, n.guard, vote, dst, pred)},
	}
}

var displacement = regexp.MustCompile(`\+(\d+)\]`)

const firstHalf = "always the first half"

// fold turns a displacement into the second half of a Pad into one into the first, and a choice of halves into none.
func (n *instruction) fold() []edit {
	const half = 4096 // of flags.PadBytes
	folded := func(text string) (string, bool) {
		v, err := strconv.Atoi(text)
		return strconv.Itoa(v - half), err == nil && v >= half && v < 2*half && v%4 == 0
	}
	switch n.mods[0] {
	case "ld", "st", "atom", "red":
		if m := displacement.FindStringSubmatchIndex(n.args); m != nil && n.inMemory() {
			if now, ok := folded(n.args[m[2]:m[3]]); ok {
				return []edit{{"folded on the first slots", n.guard + n.op + " " + n.args[:m[2]] + now + n.args[m[3]:] + ";"}}
			}
		}
	case "selp":
		args := strings.Split(n.args, ",")
		if !n.has("b64", "u64", "s64") || len(args) != 4 {
			return nil
		}
		for i := 1; i <= 2; i++ {
			if strings.TrimSpace(args[i]) == "0" {
				args[3-i] = " 0"
				return []edit{{firstHalf, n.guard + n.op + " " + strings.Join(args, ",") + ";"}}
			}
		}
	case "add", "or":
		cut := strings.LastIndex(n.args, ",") + 1
		if now, ok := folded(strings.TrimSpace(n.args[cut:])); ok {
			return []edit{{"folded on the first slots", n.guard + n.op + " " + n.args[:cut] + " " + now + ";"}}
		}
	}
	return nil
}
