package stress

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"github.com/fenceline/fenceline/internal/ptx"
)

// PatchError is PTX that cannot be patched. Nothing is guessed: what is not understood is refused.
type PatchError struct {
	File string
	Line int
	Text string // the line, trimmed
	Msg  string
}

func (e *PatchError) Error() string {
	return fmt.Sprintf("%s:%d: %s: `%s`", e.File, e.Line, e.Msg, e.Text)
}

// instruction is one instruction of PTX text.
type instruction struct {
	line   int    // index
	indent string // with the label, if there is one
	guard  string // "@%p1 ", or ""
	mods   []string
	rest   string // operands, with the semicolon and what follows it
}

func (in *instruction) has(mod string) bool {
	for _, m := range in.mods[1:] {
		if m == mod {
			return true
		}
	}
	return false
}

func (in *instruction) String() string {
	return in.indent + in.guard + strings.Join(in.mods, ".") + in.rest
}

// strong is whether the instruction orders, or is ordered: strong accesses, atomics, fences and barriers.
func (in *instruction) strong() bool {
	switch in.mods[0] {
	case "ld", "st":
		for _, m := range [...]string{"relaxed", "acquire", "release", "volatile", "mmio"} {
			if in.has(m) {
				return true
			}
		}
		return false
	case "atom", "red", "fence", "membar", "bar", "barrier":
		return true
	}
	return false
}

// What the memory model says more of than this package knows.
var beyond = map[string]bool{
	"cp": true, "mbarrier": true, "multimem": true, "wgmma": true, "tcgen05": true, "tensormap": true, "mapa": true, "clusterlaunchcontrol": true,
}

// The qualifiers of strong instructions; another one could change what they mean.
var known = func() map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(`weak relaxed acquire release acq_rel sc volatile mmio cta cluster gpu gl sys global shared shared::cta local param const
		add exch cas min max inc dec and or xor popc sync arrive red warp aligned pred v2 v4 v8 b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f16 f32 f64 b128
		f16x2 bf16 bf16x2 noftz nc L1::no_allocate L1::evict_first L1::evict_last L1::evict_normal L1::evict_unchanged L2::64B L2::128B L2::256B ca cg cs lu cv wb wt`) {
		m[w] = true
	}
	return m
}()

var statement = regexp.MustCompile(`^(\s*(?:[A-Za-z_$%][\w$]*:\s*)?)(@!?[%\w$]+\s+)?([a-z][\w.:]*)(.*)$`)

// text is PTX as lines, with the instructions found in it.
type text struct {
	file   string
	lines  []string
	instrs []instruction
	sm     int
}

// read finds the instructions of the function bodies. The PTX must be of the kind that the emulator runs, and each
// instruction on a line of its own.
func read(file string, src []byte) (*text, error) {
	if _, err := ptx.Parse(file, src); err != nil {
		return nil, fmt.Errorf("only PTX that the emulator runs can be patched: %w", err)
	}
	info, err := ptx.Signatures(file, src)
	if err != nil {
		return nil, err
	}
	t := &text{file: file, lines: strings.Split(string(src), "\n"), sm: info.SM}
	depth, open := 0, false // open: inside a statement that an earlier line began
	for i, line := range t.lines {
		code, _, _ := strings.Cut(line, "//")
		refuse := func(msg string) error {
			return &PatchError{File: file, Line: i + 1, Text: strings.TrimSpace(line), Msg: msg}
		}
		if strings.Contains(code, "/*") {
			return nil, refuse("comments of this kind are not understood")
		}
		code = strings.TrimRight(code, " \t\r")
		bare := strings.TrimSpace(code)
		switch {
		case bare == "":
			continue
		case bare == "{" && !open:
			depth++
			continue
		case bare == "}" && !open:
			depth--
			continue
		case depth == 0 || bare[0] == '.' && !open: // declarations
			depth += strings.Count(bare, "{") - strings.Count(bare, "}")
			continue
		case open:
			open = !strings.HasSuffix(bare, ";")
			continue
		case plain(bare):
			continue
		case strings.HasSuffix(bare, ":") && !strings.ContainsAny(bare, " \t;"): // a label
			continue
		}
		m := statement.FindStringSubmatch(code)
		if m == nil {
			return nil, refuse("this is no instruction that can be patched")
		}
		in := instruction{line: i, indent: m[1], guard: m[2], mods: strings.Split(m[3], "."), rest: m[4]}
		if n := strings.Index(m[3], "::"); n >= 0 {
			in.mods = strings.Split(strings.ReplaceAll(m[3], "::", "\x00"), ".")
			for k := range in.mods {
				in.mods[k] = strings.ReplaceAll(in.mods[k], "\x00", "::")
			}
		}
		open = !strings.HasSuffix(bare, ";")
		semicolons := strings.Count(bare, ";")
		switch {
		case semicolons > 1:
			return nil, refuse("several instructions on one line")
		case beyond[in.mods[0]]:
			return nil, refuse("what this instruction orders is not understood")
		case !in.strong():
			continue
		case open:
			return nil, refuse("this instruction does not end on its line")
		}
		for _, q := range in.mods[1:] {
			if !known[q] && !(in.mods[0] == "bar" || in.mods[0] == "barrier") {
				return nil, refuse(fmt.Sprintf("the qualifier .%s is not understood", q))
			}
		}
		t.instrs = append(t.instrs, in)
	}
	return t, nil
}

// plain is whether line is a scope of its own without strong instructions, such as compilers write to take a register apart.
func plain(line string) bool {
	inner, ok := strings.CutPrefix(line, "{")
	if inner, ok2 := strings.CutSuffix(inner, "}"); ok && ok2 {
		for part := range strings.SplitSeq(inner, ";") {
			if part = strings.TrimSpace(part); part == "" || part[0] == '.' {
				continue
			}
			m := statement.FindStringSubmatch(part)
			if m == nil {
				return false
			}
			if in := (instruction{mods: strings.Split(m[3], ".")}); in.strong() || beyond[in.mods[0]] {
				return false
			}
		}
		return true
	}
	return false
}

// write puts the lines together and checks that the result is PTX still.
func (t *text) write() ([]byte, error) {
	out := []byte(strings.Join(t.lines, "\n"))
	if _, err := ptx.Parse(t.file, out); err != nil {
		return nil, fmt.Errorf("patched PTX does not parse: %w", err)
	}
	return out, nil
}

// Delays puts random pauses into a kernel.
type Delays struct {
	Seed uint32 // another seed, other pauses
	// OneIn is how many places pass, on average, between two pauses of a warp; it is rounded up to a power of two. 0 is 8.
	OneIn uint32
	// MaxNS bounds one pause, about; it is rounded up to a power of two, up to 2^19. 0 is 4096.
	MaxNS uint32
}

// mask is the smallest 2^n-1 for which 2^n ≥ v, within limits.
func mask(v, usual, most uint32) uint32 {
	if v == 0 {
		v = usual
	}
	n := uint32(1)
	for n < min(v, most) {
		n <<= 1
	}
	return n - 1
}

// Patch puts a pause before every strong access, atomic, fence and barrier of src, so that blocks and warps drift apart.
// Whether there is one, and how long, hangs on the seed, the place, the clock, the launch, the block and the warp. It
// returns the new text and the number of places. It needs sm_70; a kernel without such places is returned as it is.
// The error is a *PatchError, or the PTX parser's.
func (d Delays) Patch(file string, src []byte) (patched []byte, places int, err error) {
	t, err := read(file, src)
	if err != nil {
		return nil, 0, err
	}
	if len(t.instrs) == 0 {
		return bytes.Clone(src), 0, nil
	}
	if t.sm < 70 {
		return nil, 0, &PatchError{File: file, Line: 1, Text: fmt.Sprintf(".target sm_%d", t.sm), Msg: "pauses need sm_70 or newer"}
	}
	for i := range t.instrs {
		in := &t.instrs[i]
		t.lines[in.line] = d.pause(uint32(i)) + "\n" + t.lines[in.line]
		if n := strings.Index(in.indent, ":"); n >= 0 { // the label goes ahead of the pause
			t.lines[in.line] = in.indent[:n+1] + "\n" + d.pause(uint32(i)) + "\n\t" + in.guard + strings.Join(in.mods, ".") + in.rest
		}
	}
	patched, err = t.write()
	return patched, len(t.instrs), err
}

// pause is the text of one. All that it reads is the same for the lanes of a warp, so they stay together.
func (d Delays) pause(place uint32) string {
	const form = `	{
	.reg .pred fls_p;
	.reg .b32 fls_h, fls_a, fls_b;
	.reg .b64 fls_g;
	mov.u32 fls_h, %%clock;
	mov.u32 fls_a, %%ctaid.x;
	mov.u64 fls_g, %%gridid;
	cvt.u32.u64 fls_b, fls_g;
	mad.lo.u32 fls_h, fls_b, 2246822519, fls_h;
	mov.u32 fls_b, %%tid.x;
	shr.u32 fls_b, fls_b, 5;
	mad.lo.u32 fls_h, fls_a, 2654435761, fls_h;
	mad.lo.u32 fls_h, fls_b, 3266489917, fls_h;
	xor.b32 fls_h, fls_h, %d;
	mul.lo.u32 fls_h, fls_h, 2654435761;
	shr.u32 fls_a, fls_h, 15;
	xor.b32 fls_h, fls_h, fls_a;
	mul.lo.u32 fls_h, fls_h, 2246822519;
	shr.u32 fls_a, fls_h, 13;
	and.b32 fls_b, fls_a, %d;
	setp.eq.u32 fls_p, fls_b, 0;
	and.b32 fls_a, fls_h, %d;
	@fls_p nanosleep.u32 fls_a;
	}`
	return fmt.Sprintf(form, d.Seed*2654435761+place*668265263, mask(d.OneIn, 8, 1<<16), mask(d.MaxNS, 4096, 1<<19))
}

// Weakening takes synchronisation out of a kernel, so that a test can be shown to notice.
type Weakening string

// The weakenings.
const (
	NoFence   Weakening = "no-fence"   // fences are left out, and with them the release patterns that they begin
	NoAcquire Weakening = "no-acquire" // acquire loads and atomics become relaxed, and releases too
	NoBarrier Weakening = "no-barrier" // bar.sync and bar.red are left out: warps no longer wait for each other
)

// Weakenings lists them all.
func Weakenings() []Weakening { return []Weakening{NoFence, NoAcquire, NoBarrier} }

// Patch weakens src. It returns the new text and the number of instructions changed; zero is no error. The error is a
// *PatchError, or the PTX parser's.
func (w Weakening) Patch(file string, src []byte) (patched []byte, changed int, err error) {
	t, err := read(file, src)
	if err != nil {
		return nil, 0, err
	}
	for i := range t.instrs {
		in := &t.instrs[i]
		if text, ok := w.weaken(in); ok {
			t.lines[in.line] = text
			changed++
		}
	}
	patched, err = t.write()
	return patched, changed, err
}

func (w Weakening) weaken(in *instruction) (string, bool) {
	op := in.mods[0]
	switch {
	case w == NoFence && (op == "fence" || op == "membar"),
		w == NoBarrier && (op == "bar" || op == "barrier") && in.has("sync") && !in.has("warp"):
		return in.indent + "// left out: " + in.guard + strings.Join(in.mods, ".") + in.rest, true
	case w == NoBarrier && (op == "bar" || op == "barrier") && in.has("red") && in.has("pred"):
		// Each thread keeps its own predicate.
		operands := strings.Split(strings.TrimSuffix(strings.TrimSpace(in.rest), ";"), ",")
		return in.indent + in.guard + "mov.pred " + strings.TrimSpace(operands[0]) + ", " + strings.TrimSpace(operands[len(operands)-1]) + ";", true
	case w == NoAcquire && (op == "ld" || op == "st" || op == "atom" || op == "red"):
		for i, m := range in.mods {
			if m == "acquire" || m == "release" || m == "acq_rel" {
				in.mods[i] = "relaxed"
				return in.String(), true
			}
		}
	}
	return "", false
}
