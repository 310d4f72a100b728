package check

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fenceline/fenceline/flags/check/litmus"
	"github.com/fenceline/fenceline/internal/ptx"
)

// Litmus is a litmus test. Package litmus describes the language; testdata holds the suite.
type Litmus struct{ *litmus.Test }

// ParseLitmus reads the tests of a file. Errors are *litmus.Error: file, line, column and remedy.
func ParseLitmus(name string, text []byte) ([]*Litmus, error) {
	tests, err := litmus.Parse(name, text)
	if err != nil {
		return nil, err
	}
	all := make([]*Litmus, len(tests))
	for i, t := range tests {
		all[i] = &Litmus{t}
	}
	return all, nil
}

// Program is the test as something to check: one buffer per location, in their order, and one task per device. The error is a
// *litmus.Error.
func (l *Litmus) Program() (*Program, error) {
	m, err := ptx.ParseObserved(l.Name, []byte(l.PTX()))
	if err != nil {
		return nil, l.misfit(err)
	}
	p := &Program{Name: l.Name, Racy: true, Devices: 1}
	for i := range l.Locations {
		loc := &l.Locations[i]
		p.Devices = max(p.Devices, loc.Device+1)
		p.Buffers = append(p.Buffers, Buffer{Name: loc.Name, Device: loc.Device, Size: loc.Bytes(), Init: initial(loc)})
	}
	task := map[int]int{}
	for i := range l.Threads {
		th := &l.Threads[i]
		at, ok := task[th.Device]
		if !ok {
			at = len(p.Tasks)
			task[th.Device] = at
			name := entryName(th.Device)
			k, _ := m.Kernel(name)
			p.Devices = max(p.Devices, th.Device+1)
			p.Tasks = append(p.Tasks, Task{Stream: th.Device, Device: th.Device, Name: name, Kernel: k,
				Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: l.params})
		}
		t := &p.Tasks[at]
		t.Grid[0] = max(t.Grid[0], uint32(th.Block)+1)
		t.Block[0] = max(t.Block[0], uint32(th.Thread)+1)
	}
	for _, o := range l.Observed {
		seen := Observed{Name: l.NameOf(o), Task: -1, Buffer: o.Loc, Offset: o.Off, Size: o.Size}
		if o.Column >= 0 {
			th := &l.Threads[o.Column]
			seen = Observed{Name: seen.Name, Task: task[th.Device], Block: th.Block, Thread: th.Thread,
				Register: l.register(o.Column, o.Register), Size: o.Size}
		}
		p.Observe = append(p.Observe, seen)
	}
	return p, nil
}

// misfit says where in the test's file the instruction stands that is no PTX.
func (l *Litmus) misfit(err error) error {
	at := &litmus.Error{File: l.File, Line: l.Line, Column: 1, Msg: fmt.Sprintf("test %s: %v", l.Name, err), Remedy: "write what PTX has"}
	var wrong *ptx.Error
	if !errors.As(err, &wrong) {
		return at
	}
	at.Msg = fmt.Sprintf("`%s`: %s", wrong.Text, wrong.Msg)
	_, from := l.text()
	if in := from[wrong.Line]; in != nil {
		at.Line, at.Column, at.Msg = in.Line, in.Column, fmt.Sprintf("`%s`: %s", in.Mnemonic, wrong.Msg)
	}
	return at
}

func initial(l *litmus.Location) []byte {
	var b []byte
	for _, v := range l.Init {
		for k := range l.Size {
			b = append(b, byte(v>>(8*k)))
		}
	}
	return b
}

// params is the addresses of all locations.
func (l *Litmus) params(address func(int) uint64) []byte {
	var b []byte
	for i := range l.Locations {
		for k := range 8 {
			b = append(b, byte(address(i)>>(8*k)))
		}
	}
	return b
}

func entryName(device int) string { return fmt.Sprintf("d%d", device) }

func (l *Litmus) register(column int, r string) string { return fmt.Sprintf("%%c%d_%s", column, r) }

// PTX is a module with one entry for each device. The columns part by their block and thread.
func (l *Litmus) PTX() string {
	text, _ := l.text()
	return text
}

// text is the module, and of its lines those that an instruction of the test became.
func (l *Litmus) text() (string, map[int]*litmus.Instr) {
	b := litmusText{from: map[int]*litmus.Instr{}}
	b.WriteString(".version 8.6\n.target sm_90\n.address_size 64\n")
	for i := range l.Threads {
		device, first := l.Threads[i].Device, true
		for k := range i {
			first = first && l.Threads[k].Device != device
		}
		if first {
			l.entry(&b, device)
		}
	}
	return b.String(), b.from
}

type litmusText struct {
	strings.Builder
	from map[int]*litmus.Instr
}

func (l *Litmus) entry(b *litmusText, device int) {
	fmt.Fprintf(b, "\n.visible .entry %s(", entryName(device))
	for i := range l.Locations {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, ".param .u64 p%d", i)
	}
	b.WriteString(")\n{\n\t.reg .pred %other;\n\t.reg .b32 %block, %thread;\n\t.reg .b64 %at;\n")
	for i := range l.Locations {
		fmt.Fprintf(b, "\t.reg .b64 %%p%d;\n", i)
	}
	for c := range l.Threads {
		if l.Threads[c].Device != device {
			continue
		}
		for _, r := range l.Threads[c].Registers {
			fmt.Fprintf(b, "\t.reg .%s %s;\n", registerType(r), l.register(c, r))
		}
	}
	for i := range l.Locations {
		fmt.Fprintf(b, "\tld.param.u64 %%p%d, [p%d];\n", i, i)
	}
	b.WriteString("\tmov.u32 %block, %ctaid.x;\n\tmov.u32 %thread, %tid.x;\n")
	for c := range l.Threads {
		if l.Threads[c].Device == device {
			l.column(b, c)
		}
	}
	b.WriteString("\tret;\n}\n")
}

func registerType(r string) string {
	switch {
	case strings.HasPrefix(r, "q"):
		return "b128"
	case strings.HasPrefix(r, "rd"):
		return "b64"
	case strings.HasPrefix(r, "h"):
		return "b16"
	case strings.HasPrefix(r, "p"):
		return "pred"
	}
	return "b32"
}

func (l *Litmus) column(b *litmusText, c int) {
	th := &l.Threads[c]
	for _, place := range []struct {
		register string
		at       int
	}{{"%block", th.Block}, {"%thread", th.Thread}} {
		fmt.Fprintf(b, "\tsetp.ne.u32 %%other, %s, %d;\n\t@%%other bra NOT%d;\n", place.register, place.at, c)
	}
	for _, r := range th.Registers {
		switch t := registerType(r); t {
		case "pred":
			fmt.Fprintf(b, "\tsetp.ne.u32 %s, 0, 0;\n", l.register(c, r))
		case "b128":
			fmt.Fprintf(b, "\tmov.b128 %s, {0, 0};\n", l.register(c, r))
		default:
			fmt.Fprintf(b, "\tmov.%s %s, 0;\n", t, l.register(c, r))
		}
	}
	labels := map[int][]string{}
	for name, at := range th.Labels {
		labels[at] = append(labels[at], name)
	}
	for i := 0; i <= len(th.Code); i++ {
		for _, name := range labels[i] {
			fmt.Fprintf(b, "C%d_%s:\n", c, name)
		}
		if i < len(th.Code) {
			l.instruction(b, c, &th.Code[i])
		}
	}
	fmt.Fprintf(b, "\texit;\nNOT%d:\n", c)
}

func (l *Litmus) instruction(b *litmusText, c int, in *litmus.Instr) {
	address := ""
	if in.HasAddress() {
		address = fmt.Sprintf("[%%p%d+%d]", in.Loc, in.Off)
		if in.OffReg != "" {
			fmt.Fprintf(b, "\tcvt.u64.u32 %%at, %s;\n\tadd.u64 %%at, %%at, %%p%d;\n", l.register(c, in.OffReg), in.Loc)
			address = "[%at]"
		}
	}
	b.from[strings.Count(b.String(), "\n")+1] = in
	b.WriteString("\t")
	if in.Guard != "" {
		fmt.Fprintf(b, "@%s%s ", map[bool]string{true: "!"}[in.GuardNot], l.register(c, in.Guard))
	}
	b.WriteString(in.Mnemonic)
	var args, srcs []string
	for _, r := range in.Dst {
		args = append(args, l.register(c, r))
	}
	for _, s := range in.Src {
		if s.Reg != "" {
			srcs = append(srcs, l.register(c, s.Reg))
		} else {
			srcs = append(srcs, fmt.Sprint(s.Value))
		}
	}
	braced := func(list []string) []string {
		if in.Vec > 1 {
			return []string{"{" + strings.Join(list, ", ") + "}"}
		}
		return list
	}
	switch {
	case in.Op == litmus.Store:
		args = append([]string{address}, braced(srcs)...)
	case in.HasAddress():
		args = append(append(braced(args), address), srcs...)
	case in.Op == litmus.Branch:
		args = []string{fmt.Sprintf("C%d_%s", c, in.Label)}
	case in.Fn == "pack":
		args = append(args, braced(srcs)...)
	case in.Fn == "unpack":
		args = append(braced(args), srcs...)
	default:
		args = append(args, srcs...)
	}
	if len(args) > 0 {
		b.WriteString(" " + strings.Join(args, ", "))
	}
	b.WriteString(";\n")
}
