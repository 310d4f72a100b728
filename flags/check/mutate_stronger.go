package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/internal/ptx"
)

// Stronger are the ways to strengthen the instructions on one line, the gentlest first: a wider scope, an order, strength,
// a fence or a barrier beside them.
func Stronger(name string, text []byte, line int) []Mutant {
	list := slices.DeleteFunc(scan(text, ""), func(n instruction) bool { return n.line != line })
	return edits(name, text, list, strengthen)
}

func strengthen(n *instruction) []edit {
	var list []edit
	add := func(mods []string) {
		list = append(list, edit{"`" + n.op + "` → `" + strings.Join(mods, ".") + "`", n.with(mods)})
	}
	own := n.with(n.mods)
	beside := func(what, text string) {
		list = append(list, edit{"`" + what + "` after `" + n.op + "`", own + " " + text})
		list = append(list, edit{"`" + what + "` before `" + n.op + "`", text + " " + own})
	}
	scope := ""
	for _, s := range scopes {
		if n.has(s) {
			scope = s
		}
	}
	wide := func(mods []string) []string {
		if scope == "" || scope == "sys" {
			return mods
		}
		return slices.Collect(func(yield func(string) bool) {
			for _, m := range mods {
				if m == scope {
					m = "sys"
				}
				if !yield(m) {
					return
				}
			}
		})
	}
	order := map[string]string{"ld": "acquire", "st": "release", "atom": "acq_rel", "red": "release"}[n.mods[0]]
	switch n.mods[0] {
	case "ld", "st", "atom", "red":
		if !n.inMemory() || n.has("nc", "shared") {
			return nil
		}
		plain := n.without(append([]string{"weak", "volatile", "mmio", "relaxed", "acquire", "release", "acq_rel"}, scopes...)...)
		strong := func(sem, scope string) []string { return slices.Insert(slices.Clone(plain), 1, sem, scope) }
		sem := n.sem()
		if scope != "" && scope != "sys" {
			add(wide(n.mods))
		}
		if sem == "" {
			add(strong("relaxed", "sys"))
		}
		if sem == "" || sem == "relaxed" || n.mods[0] == "atom" && sem != "acq_rel" {
			if scope != "" && scope != "sys" {
				add(strong(order, scope))
			}
			add(strong(order, "sys"))
		}
		if n.guard == "" {
			beside("fence.acq_rel.sys", "fence.acq_rel.sys;")
			beside("bar.sync 0", "bar.sync 0;")
			beside("fence.sc.sys", "fence.sc.sys;")
		}
	case "fence":
		if scope != "" && scope != "sys" {
			add(wide(n.mods))
		}
		if n.has("acquire", "release") && scope != "" {
			add([]string{"fence", "acq_rel", scope})
		}
		if !n.has("sc") && scope != "" {
			add([]string{"fence", "sc", scope})
			if scope != "sys" {
				add([]string{"fence", "sc", "sys"})
			}
		}
	case "membar":
		if !n.has("sys") {
			add([]string{"membar", "sys"})
		}
	case "bar":
		if n.has("warp") {
			list = append(list, edit{"`bar.warp.sync` → `bar.sync 0`", n.guard + "bar.sync 0;"})
		}
	}
	return list
}

const mostFixes = 64 // variants that are tried for one finding

// Fixer is for Program.Stronger: it strengthens the instructions that a finding names, one at a time, in text that the
// kernels of the spec come from.
func (s *Spec) Fixer(name string, text []byte, set map[string]string) func(*Finding) []Variant {
	return func(f *Finding) []Variant {
		keep, err := s.Entries(set)
		if err != nil {
			return nil
		}
		small := Isolate(text, keep)
		var list []Variant
		for _, line := range f.lines() {
			for _, m := range Stronger(name, small, line) {
				module, err := ptx.Parse(name, m.PTX)
				if err != nil { // not every opcode takes every modifier
					continue
				}
				p, err := s.Program(module, set)
				if err != nil {
					continue
				}
				list = append(list, Variant{What: fmt.Sprintf("%s:%d: %s", name, line, m.What), Program: p})
				if len(list) == mostFixes {
					return list
				}
			}
		}
		return list
	}
}

// lines are the PTX lines of the accesses that a finding names: the strong ones before, the latest first, since the order
// is missing there, and then the two themselves.
func (f *Finding) lines() []int {
	var list []int
	add := func(a *Access) {
		if a != nil && a.Line > 0 && !slices.Contains(list, a.Line) {
			list = append(list, a.Line)
		}
	}
	for i := len(f.History) - 1; i >= 0; i-- {
		a := &f.History[i]
		add(a)
		add(a.ReadFrom)
		add(a.Newer)
	}
	for i := len(f.led) - 1; i >= 0; i-- {
		add(&f.led[i])
	}
	add(f.B)
	add(f.A)
	for i := range f.Waiting {
		add(&f.Waiting[i])
	}
	return list
}
