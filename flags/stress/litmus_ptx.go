package stress

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/flags/check/litmus"
	"github.com/fenceline/fenceline/internal/gpu"
)

const (
	lineBytes = 128 // instances of a location are this far apart at least, so that no two share a cache line
	spinLimit = 1 << 20
)

// shape is how many instances of a test one launch has: groups of blocks, each with so many warps for each column, and
// rounds one after the other in the same blocks. All three are powers of two.
type shape struct{ groups, warps, rounds int }

func (s shape) instances() int { return s.groups * s.warps * 32 * s.rounds }

// site is one block of a test, and the columns in it.
type site struct {
	device, block int
	columns       []int
}

// sites lists a test's blocks, those of one device together.
func sites(t *litmus.Test) []site {
	var list []site
	for d := range deviceCount(t) {
		for c := range t.Threads {
			th := &t.Threads[c]
			if th.Device != d {
				continue
			}
			at := -1
			for i := range list {
				if list[i].device == d && list[i].block == th.Block {
					at = i
				}
			}
			if at < 0 {
				at = len(list)
				list = append(list, site{device: d, block: th.Block})
			}
			list[at].columns = append(list[at].columns, c)
		}
	}
	return list
}

func deviceCount(t *litmus.Test) int {
	n := 1
	for i := range t.Threads {
		n = max(n, t.Threads[i].Device+1)
	}
	for i := range t.Locations {
		n = max(n, t.Locations[i].Device+1)
	}
	return n
}

// unfit says why a test cannot run many instances at once; "" when it can.
func unfit(t *litmus.Test) string {
	barriers := map[[3]int]int{} // device, block and barrier: calls of its first column, when all are to call alike
	for _, s := range sites(t) {
		for k, c := range s.columns {
			count := map[int]int{}
			straight := true
			for i := range t.Threads[c].Code {
				in := &t.Threads[c].Code[i]
				if in.Op == litmus.Fence && (in.Sem == litmus.Acquire || in.Sem == litmus.Release) {
					return "fence.acquire and fence.release need PTX 8.6, and the others run with less"
				}
				if in.Op == litmus.Branch || in.Op == litmus.Exit {
					straight = false
				}
				if in.Op != litmus.Barrier {
					continue
				}
				switch {
				case in.Fn == "red":
					return "its barrier counts threads, of which there are more here"
				case in.Guard != "" || !straight:
					return "a barrier behind a condition"
				case len(in.Src) > 1 && (in.Src[1].Reg != "" || in.Src[1].Value%32 != 0):
					return "a barrier for part of a warp"
				case len(in.Src) > 1:
				default:
					count[int(in.Src[0].Value)]++
				}
			}
			for b := range 16 {
				key := [3]int{s.device, s.block, b}
				if k > 0 && barriers[key] != count[b] {
					return "threads of a block call a barrier unequally often"
				}
				barriers[key] = count[b]
			}
		}
	}
	return ""
}

// widePTX is the version that has .b128 at every scope, for every target here.
const widePTX = 84

// wide is whether the test has registers of 128 bits.
func wide(t *litmus.Test) bool {
	for i := range t.Threads {
		for _, r := range t.Threads[i].Registers {
			if registerType(r) == "b128" {
				return true
			}
		}
	}
	return false
}

// unfitFor is unfit for a CUDA driver of a version.
func unfitFor(t *litmus.Test, driver int) string {
	if why := unfit(t); why != "" || !wide(t) || gpu.NewestPTX(driver) >= widePTX {
		return why
	}
	need, _ := gpu.DriverForPTX(widePTX)
	return fmt.Sprintf(".b128 needs PTX %s, which CUDA %s drivers and later read; this one is for CUDA %s",
		gpu.PTXVersion(widePTX), gpu.CUDAVersion(need), gpu.CUDAVersion(driver))
}

func hasBarrier(t *litmus.Test) bool {
	for i := range t.Threads {
		for _, in := range t.Threads[i].Code {
			if in.Op == litmus.Barrier {
				return true
			}
		}
	}
	return false
}

// strict is whether the test forbids something.
func strict(t *litmus.Test) bool {
	for _, e := range t.Expect {
		if e.Mode == litmus.Forbidden || e.Mode == litmus.Always {
			return true
		}
	}
	return false
}

func stride(l *litmus.Location) int { return (l.Bytes() + lineBytes - 1) / lineBytes * lineBytes }

// writer makes the entries of one test.
type writer struct {
	strings.Builder
	t     *litmus.Test
	name  string
	sites []site
	warps int
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, "\t"+format+"\n", args...) }

// litmusHead begins a module of these tests: of the oldest version that has what they need.
func litmusHead(sm int, tests ...*litmus.Test) string {
	version, target := 63, 70
	if sm >= 90 {
		version, target = 78, 90
	}
	if slices.ContainsFunc(tests, wide) {
		version = widePTX
	}
	return fmt.Sprintf(".version %s\n.target sm_%d\n.address_size 64\n", gpu.PTXVersion(version), target)
}

func entryOf(name string, device int) string { return fmt.Sprintf("%s_d%d", name, device) }

// entries writes one entry for each device of the test. The parameters are the locations' addresses, the meeting
// points, the results; then rounds, groups, the mask of instances and a seed.
func entries(t *litmus.Test, name string, warps int) string {
	w := &writer{t: t, name: name, sites: sites(t), warps: warps}
	for d := range deviceCount(t) {
		var here []site
		first := len(w.sites)
		for i, s := range w.sites {
			if s.device == d {
				here = append(here, s)
				first = min(first, i)
			}
		}
		if len(here) > 0 {
			w.entry(d, here, first)
		}
	}
	return w.String()
}

func (w *writer) entry(device int, here []site, first int) {
	fmt.Fprintf(w, "\n.visible .entry %s(", entryOf(w.name, device))
	for i := range w.t.Locations {
		fmt.Fprintf(w, ".param .u64 l%d, ", i)
	}
	w.WriteString(".param .u64 meet, .param .u64 res, .param .u32 rounds, .param .u32 groups, .param .u32 mask, .param .u32 seed)\n{\n")
	w.line(".reg .pred %%q;")
	w.line(".reg .b32 %%round, %%rounds, %%groups, %%mask, %%seed, %%tb, %%g, %%warp, %%lane, %%i, %%h, %%t, %%spin, %%warm, %%since;")
	w.line(".reg .b64 %%a, %%b, %%meet, %%res, %%at;")
	for i := range w.t.Locations {
		w.line(".reg .b64 %%l%d, %%p%d;", i, i)
		w.line("ld.param.u64 %%l%d, [l%d];", i, i)
	}
	for _, s := range here {
		for _, c := range s.columns {
			for _, r := range w.t.Threads[c].Registers {
				w.line(".reg .%s %s;", registerType(r), register(c, r))
			}
		}
	}
	for _, p := range []string{"rounds", "groups", "mask", "seed"} {
		w.line("ld.param.u32 %%%s, [%s];", p, p)
	}
	w.line("ld.param.u64 %%meet, [meet];\n\tld.param.u64 %%res, [res];")
	w.line("mov.u32 %%t, %%ctaid.x;\n\trem.u32 %%tb, %%t, %d;\n\tdiv.u32 %%g, %%t, %d;", len(here), len(here))
	w.line("mov.u32 %%t, %%tid.x;\n\tshr.u32 %%warp, %%t, 5;\n\tand.b32 %%lane, %%t, 31;\n\tmov.u32 %%round, 0;\n\tmov.u32 %%warm, 0;")
	for k, s := range here { // a block with fewer columns has warps to spare
		w.line("shr.u32 %%h, %%warp, %d;\n\tsetp.eq.u32 %%q, %%tb, %d;\n\tsetp.ge.and.u32 %%q, %%h, %d, %%q;\n\t@%%q ret;", bits.Len(uint(w.warps))-1, k, len(s.columns))
	}
	w.WriteString("ROUND:\n")
	w.instance(first)
	w.meet()
	for k, s := range here {
		for at, c := range s.columns {
			w.column(k, at, c)
		}
	}
	w.WriteString("STUCK:\n")
	w.line("mul.wide.u32 %%b, %%i, 8;\n\tadd.u64 %%b, %%b, %%res;\n\tadd.u32 %%t, %%mask, 1;\n\tmul.wide.u32 %%at, %%t, %d;", 8*len(w.t.Observed))
	w.line("add.u64 %%b, %%b, %%at;\n\tst.global.u64 [%%b], 1;")
	w.WriteString("NEXT:\n")
	w.line("add.u32 %%round, %%round, 1;\n\tsetp.lt.u32 %%q, %%round, %%rounds;\n\t@%%q bra ROUND;")
	w.line("setp.ne.u32 %%q, %%warm, 305419896;\n\t@%%q ret;\n\tst.global.u32 [%%meet], %%warm;\n\tret;\n}")
}

// instance finds which instance each lane has, and its addresses. Blocks of a group change partners from round to round,
// and neighbours in a warp have places far apart.
func (w *writer) instance(first int) {
	w.line("add.u32 %%h, %%tb, %d;\n\tmad.lo.u32 %%h, %%h, %%round, %%g;\n\tsub.u32 %%t, %%groups, 1;\n\tand.b32 %%h, %%h, %%t;", first)
	w.line("and.b32 %%t, %%warp, %d;\n\tmad.lo.u32 %%h, %%h, %d, %%t;", w.warps-1, w.warps)
	w.line("mul.lo.u32 %%t, %%groups, %d;\n\tmad.lo.u32 %%h, %%round, %%t, %%h;", w.warps)
	w.line("shl.b32 %%i, %%h, 5;\n\tadd.u32 %%i, %%i, %%lane;")
	w.line("mul.wide.u32 %%a, %%h, %d;\n\tadd.u64 %%a, %%a, %%meet;", lineBytes)
	for i := range w.t.Locations {
		w.line("mad.lo.u32 %%t, %%i, 2654435761, %d;\n\tand.b32 %%t, %%t, %%mask;", i*977)
		w.line("mul.wide.u32 %%b, %%t, %d;\n\tadd.u64 %%p%d, %%l%d, %%b;", stride(&w.t.Locations[i]), i, i)
	}
}

// meet brings the columns of an instance together, and lets them go after a short random wait. In every other round
// the lines are brought near before, where a stale copy could stay.
func (w *writer) meet() {
	w.line("and.b32 %%t, %%round, 1;\n\tsetp.eq.u32 %%q, %%t, 0;\n\t@%%q bra COLD;")
	for i := range w.t.Locations {
		if strict(w.t) {
			w.line("prefetch.global.L1 [%%p%d];", i) // no access in the model's sense
		} else {
			w.line("ld.weak.global.u8 %%t, [%%p%d];\n\tadd.u32 %%warm, %%warm, %%t;", i)
		}
	}
	w.WriteString("COLD:\n")
	w.line("setp.eq.u32 %%q, %%lane, 0;\n\t@%%q red.relaxed.sys.global.add.u32 [%%a], 1;\n\tmov.u32 %%spin, 0;")
	w.WriteString("WAIT:\n")
	w.line("add.u32 %%spin, %%spin, 1;\n\tsetp.gt.u32 %%q, %%spin, %d;\n\t@%%q bra STUCK;", spinLimit)
	w.line("ld.relaxed.sys.global.u32 %%t, [%%a];\n\tsetp.lt.u32 %%q, %%t, %d;\n\t@%%q bra WAIT;", len(w.t.Threads))
	w.line("mov.u32 %%since, %%clock;\n\tmad.lo.u32 %%h, %%warp, 668265263, %%since;\n\txor.b32 %%h, %%h, %%seed;\n\tmul.lo.u32 %%h, %%h, 2246822519;\n\tshr.u32 %%h, %%h, 22;")
	w.WriteString("IDLE:\n") // the clock, for an assembler takes an empty loop out
	w.line("mov.u32 %%t, %%clock;\n\tsub.u32 %%t, %%t, %%since;\n\tsetp.lt.u32 %%q, %%t, %%h;\n\t@%%q bra IDLE;")
	w.WriteString("GO:\n")
	w.line("mov.u32 %%spin, 0;\n\tshr.u32 %%h, %%warp, %d;", bits.Len(uint(w.warps))-1)
}

// column writes the code of column c, the at-th of the k-th block here.
func (w *writer) column(k, at, c int) {
	th := &w.t.Threads[c]
	w.line("setp.ne.u32 %%q, %%tb, %d;\n\t@%%q bra NOT%d;\n\tsetp.ne.u32 %%q, %%h, %d;\n\t@%%q bra NOT%d;", k, c, at, c)
	for _, r := range th.Registers {
		switch t := registerType(r); t {
		case "pred":
			w.line("setp.ne.u32 %s, 0, 0;", register(c, r))
		case "b128":
			w.line("mov.b128 %s, {0, 0};", register(c, r))
		default:
			w.line("mov.%s %s, 0;", t, register(c, r))
		}
	}
	labels := map[int][]string{}
	for name, i := range th.Labels {
		labels[i] = append(labels[i], name)
	}
	for i := 0; i <= len(th.Code); i++ {
		for _, name := range labels[i] {
			fmt.Fprintf(w, "C%d_%s:\n", c, name)
		}
		if i == len(th.Code) {
			break
		}
		if in := &th.Code[i]; in.Op == litmus.Branch && th.Labels[in.Label] <= i {
			w.line("add.u32 %%spin, %%spin, 1;\n\tsetp.gt.u32 %%q, %%spin, %d;\n\t@%%q bra STUCK;", spinLimit)
		}
		w.instruction(c, &th.Code[i])
	}
	fmt.Fprintf(w, "DONE%d:\n", c)
	for k, o := range w.t.Observed {
		if o.Column != c {
			continue
		}
		reg := register(c, o.Register)
		switch registerType(o.Register) {
		case "b64":
			w.line("mov.u64 %%b, %s;", reg)
		case "b16":
			w.line("cvt.u64.u16 %%b, %s;", reg)
		case "pred":
			w.line("selp.u64 %%b, 1, 0, %s;", reg)
		default:
			w.line("cvt.u64.u32 %%b, %s;", reg)
		}
		w.line("add.u32 %%t, %%mask, 1;\n\tmad.lo.u32 %%t, %%t, %d, %%i;\n\tmul.wide.u32 %%at, %%t, 8;\n\tadd.u64 %%at, %%at, %%res;\n\tst.global.u64 [%%at], %%b;", k)
	}
	w.line("bra NEXT;")
	fmt.Fprintf(w, "NOT%d:\n", c)
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

func register(column int, r string) string { return fmt.Sprintf("%%c%d_%s", column, r) }

func (w *writer) instruction(c int, in *litmus.Instr) {
	address := ""
	if in.HasAddress() {
		address = fmt.Sprintf("[%%p%d+%d]", in.Loc, in.Off)
		if in.OffReg != "" {
			w.line("cvt.u64.u32 %%at, %s;\n\tadd.u64 %%at, %%at, %%p%d;", register(c, in.OffReg), in.Loc)
			address = "[%at]"
		}
	}
	guard := ""
	if in.Guard != "" {
		guard = fmt.Sprintf("@%s%s ", map[bool]string{true: "!"}[in.GuardNot], register(c, in.Guard))
	}
	var args, srcs []string
	for _, r := range in.Dst {
		args = append(args, register(c, r))
	}
	for _, s := range in.Src {
		if s.Reg != "" {
			srcs = append(srcs, register(c, s.Reg))
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
	mnemonic := in.Mnemonic
	switch {
	case in.Op == litmus.Exit:
		mnemonic, args = "bra", []string{fmt.Sprintf("DONE%d", c)}
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
	w.line("%s", strings.TrimRight(guard+mnemonic+" "+strings.Join(args, ", "), " ")+";")
}
