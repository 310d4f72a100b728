package ptx

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		line       int
		msg        string
	}{
		{"unknown instruction", "\n\tfrob.b32 %r1, %r2;", 2, "unknown instruction `frob`: `frob.b32 %r1, %r2;`"},
		{"known but refused", "cp.async.ca.shared.global [%r1], [%rd1], 4;", 1, "`cp` is not supported: asynchronous copies are not emulated"},
		{"discard", "discard.global.L2 [%rd1], 128;", 1, "`discard` is not supported: it leaves memory without a value; leave it out"},
		{"mbarrier", "mbarrier.init.shared.b64 [%r1], 1;", 1, "`mbarrier` is not supported"},
		{"wgmma", "wgmma.fence.sync.aligned;", 1, "matrix instructions are not emulated"},
		{"unknown modifier", "add.foo.u32 %r1, %r2, %r3;", 1, "unknown modifier `.foo` of `add`"},
		{"modifier twice", "add.rn.rn.f32 %f1, %f2, %f3;", 1, "unknown modifier `.rn` of `add`"},
		{"modifier of another type", "add.rn.s32 %r1, %r2, %r3;", 1, "unknown modifier `.rn` of `add`"},
		{"unknown type", "add.u128 %r1, %r2, %r3;", 1, "`add` takes no type `.u128`"},
		{"no type", "add %r1, %r2, %r3;", 1, "`add` needs a type"},
		{"width", "add.u32 %rd1, %rd2, %rd3;", 1, "register `%rd2` is .b64, `add` needs .u32"},
		{"float register", "add.u32 %r1, %f2, %r3;", 1, "register `%f2` is .f32, `add` needs .u32"},
		{"unknown register", "add.u32 %r1, %r2, %r99;", 1, "unknown name `%r99`"},
		{"leading zero is no register", "add.u32 %r1, %r2, %r01;", 1, "unknown name `%r01`"},
		{"unknown special register", "mov.u32 %r1, %pm0;", 1, "unknown name `%pm0`"},
		{"special register width", "mov.u64 %rd1, %laneid;", 1, "special register `%laneid` is .u32"},
		{"operand count", "add.u32 %r1, %r2;", 1, "`add` has 2 operands, needs [3]"},
		{"constant destination", "add.u32 5, %r2, %r3;", 1, "destination of `add` is no register"},
		{"float constant in integer", "add.u32 %r1, %r2, 0f3F800000;", 1, "floating-point constant where .u32"},
		{"integer constant in float", "add.f32 %f1, %f2, 1;", 1, "integer constant where .f32"},
		{"unknown label", "bra NOWHERE;", 1, "unknown label `NOWHERE`"},
		{"label twice", "L:\nL:\n", 2, "`L` is declared twice"},
		{"label out of scope", "{ L: } bra L;", 1, "unknown label `L`"},
		{"guard is no predicate", "@%r1 bra L; L:", 1, "`%r1` is no predicate"},
		{"negated register", "add.u32 %r1, !%r2, 1;", 1, "only predicates can be negated"},
		{"missing scope", "ld.acquire.global.u32 %r1, [%rd0];", 1, "`.acquire` needs a scope"},
		{"scope on a weak load", "ld.weak.gpu.global.u32 %r1, [%rd0];", 1, "unknown modifier `.gpu`"},
		{"acquire store", "st.acquire.gpu.global.u32 [%rd0], %r1;", 1, "unknown modifier `.acquire`"},
		{"release load", "ld.release.gpu.global.u32 %r1, [%rd0];", 1, "unknown modifier `.release`"},
		{"store to constant memory", "st.const.u32 [%rd0], %r1;", 1, "unknown modifier `.const`"},
		{"two spaces", "ld.global.shared.u32 %r1, [%rd0];", 1, "unknown modifier `.shared`"},
		{"cluster shared", "ld.shared::cluster.u32 %r1, [%rd0];", 1, "unknown modifier `.shared::cluster`"},
		{"cache policy", "ld.global.L2::cache_hint.u32 %r1, [%rd0], %rd1;", 1, "cache policies are not supported"},
		{"no brackets", "ld.global.u32 %r1, %rd0;", 1, "needs an address in brackets"},
		{"vector without braces", "ld.global.v2.u32 %r1, [%rd0];", 1, "`.v2` needs 2 registers in braces"},
		{"braces without vector", "ld.global.u32 {%r1, %r2}, [%rd0];", 1, "needs .v2 or .v4"},
		{"vector too wide", "ld.global.v4.u64 {%rd1, %rd2, %rd3, %rd4}, [%rd0];", 1, "more than 16 bytes"},
		{"narrow destination", "ld.global.u32 %h1, [%rd0];", 1, "too narrow for .u32"},
		{"parameter bounds", "ld.param.u64 %rd1, [p+4];", 1, "ends behind the 8 bytes"},
		{"parameter alignment", "ld.param.u16 %h1, [p+1];", 1, "misaligned"},
		{"parameter store", "st.param.u64 [p], %rd1;", 1, "read-only"},
		{"wrong space of a name", "ld.global.u64 %rd1, [p];", 1, "`p` is in .param, not .global"},
		{"cvt without rounding", "cvt.f16.f32 %h1, %f1;", 1, "needs a rounding mode"},
		{"cvt with needless rounding", "cvt.rn.f32.f16 %f1, %h1;", 1, "does not go with this `cvt`"},
		{"cvt to integer without rounding", "cvt.s32.f32 %r1, %f1;", 1, "needs .rni"},
		{"fma without rounding", "fma.f32 %f1, %f2, %f3, %f4;", 1, "needs a rounding mode"},
		{"barrier number", "bar.sync 16;", 1, "there are 16"},
		{"barrier count", "bar.sync 0, 33;", 1, "multiple of 32"},
		{"vote without sync", "vote.ballot.b32 %r1, %p1;", 1, "without .sync"},
		{"lop3 table", "lop3.b32 %r1, %r2, %r3, %r4, %r5;", 1, "constant from 0 to 255"},
		{"float atomic min", "atom.global.min.f32 %f1, [%rd0], %f2;", 1, "`.min` takes no type `.f32`"},
		{"atomic without noftz", "atom.global.add.f16x2 %r1, [%rd0], %r2;", 1, "noftz"},
		{"red exch", "red.global.exch.b32 [%rd0], %r2;", 1, "`red` has no .exch"},
		{"indirect call", "call %rd1, ();", 1, "indirect calls"},
		{"unknown function", "call vprintf, (%r1);", 1, "`vprintf`, which is no function of this file"},
		{"body directive", ".frob 1;", 1, "unknown directive `.frob`"},
		{"vector register", ".reg .v4 .f32 %v;", 1, "vector registers are not supported"},
		{"register twice", ".reg .b32 x; .reg .b32 x;", 1, "declared twice"},
		{"too many registers", ".reg .b32 x<1073741824>;", 1, "more than 1048576 registers"},
		{"global in a body", ".global .u32 x;", 1, "belong to module scope"},
		{"shared too large", ".shared .b8 x[2000000];", 1, "bytes of shared memory"},
		{"local too large", ".local .b8 x[2000000];", 1, "bytes of local memory"},
		{"missing semicolon", "add.u32 %r1, %r2, %r3\nret;", 2, "expected `;` after `add`"},
		{"stray character", "add.u32 %r1, %r2, ?;", 1, "expected an operand, found `?`"},
		{"float literal", "mov.f32 %f1, 0f3F80;", 1, "needs 8 hexadecimal digits"},
		{"number", "mov.u32 %r1, 0x1G;", 1, "is no number"},
		{"tensor address", "ld.global.u32 %r1, [%rd0, 1];", 1, "multi-part addresses"},
		{"setmaxnreg", "setmaxnreg.inc.sync.aligned.u32 40;", 1, "not supported"},
		{"brkpt", "brkpt;", 1, "no debugger"},
		{"directed rounding of f64", "add.rz.f64 %d1, %d2, %d3;", 1, "only .rn is"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src := header + ".visible .entry k(.param .u64 p) {\n\t.reg .pred %p<10>; .reg .b16 %h<20>; .reg .b32 %r<40>; .reg .b64 %rd<40>; .reg .f32 %f<20>; .reg .f64 %d<20>;\n" +
				tt.body + "\n\tret;\n}\n"
			_, err := Parse("bad.ptx", []byte(src))
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, tt.line+5, e.Line, e.Error())
			require.Contains(t, e.Error(), tt.msg)
			require.Equal(t, "bad.ptx", e.File)
			require.NotEmpty(t, e.Text)
		})
	}
}

func TestModuleErrors(t *testing.T) {
	for _, tt := range []struct {
		name, src string
		line      int
		msg       string
	}{
		{"empty", "", 1, "PTX begins with .version"},
		{"not PTX", "\x7fELF\x00\x01", 1, "PTX begins with .version"},
		{"no target", ".version 7.0\n.address_size 64\n", 2, "expected .target"},
		{"bad version", ".version seven\n", 1, "expected a version"},
		{"bad target", ".version 7.0\n.target gfx90a\n", 2, "unknown target `gfx90a`"},
		{"32 bits", ".version 7.0\n.target sm_70\n.address_size 32\n", 3, "only .address_size 64"},
		{"directive", header + ".frob x;\n", 4, "unknown directive `.frob`"},
		{"alias", header + ".alias a, b;\n", 4, "unknown directive `.alias`"},
		{"texture", header + ".global .texref t;\n", 4, "type `.texref` cannot be declared here"},
		{"extern global", header + ".extern .global .u32 x;\n", 4, "linking modules is not supported"},
		{"address initialiser", header + ".global .u32 x;\n.global .u64 p = x;\n", 5, "addresses as initialisers are not supported"},
		{"too many initialisers", header + ".global .u8 x[2] = {1, 2, 3};\n", 4, "more initialisers than room"},
		{"huge initialised", header + ".global .b8 x[100000000] = {1};\n", 4, "initialised variables of more than"},
		{"huge array", header + ".global .b8 x[99999999999];\n", 4, "too large"},
		{"entry twice", header + ".entry k() { ret; }\n.entry k() { ret; }\n", 5, "`k` is defined twice"},
		{"parameter twice", header + ".entry k(.param .u32 a, .param .u32 a) { ret; }\n", 4, "parameter `a` declared twice"},
		{"parameter space", header + ".entry k(.reg .u32 a) { ret; }\n", 4, "expected a parameter declaration"},
		{"parameters too large", header + ".entry k(.param .b8 a[40000]) { ret; }\n", 4, "parameters of more than 32764 bytes"},
		{"alignment", header + ".entry k(.param .align 3 .b8 a[4]) { ret; }\n", 4, "alignment 3"},
		{"unclosed body", header + ".entry k() {\n ret;\n", 4, "`{` is never closed"},
		{"recursion", header + ".func f() { call f; ret; }\n.entry k() { call f; ret; }\n", 4, "recursion is not supported"},
		{"no body", header + ".extern .func f;\n.entry k() { call f; ret; }\n", 5, "has no body in this file"},
		{"error in an unused function", header + ".func f() { frob; }\n", 4, "unknown instruction `frob`"},
		{"target too old", ".version 8.0\n.target sm_70\n.address_size 64\n.entry k() { .reg .b32 r; redux.sync.add.u32 r, r, -1; }\n", 4, "redux needs .target sm_80 or later, this file has sm_70"},
		{"version too old", ".version 6.0\n.target sm_80\n.address_size 64\n.entry k() { .reg .b32 r; redux.sync.add.u32 r, r, -1; }\n", 4, "redux needs .version 7.0 or later, this file has 6.0"},
		{"bf16 on sm_70", ".version 7.0\n.target sm_70\n.address_size 64\n.entry k() { .reg .b32 r; .reg .f32 f; cvt.rn.bf16x2.f32 r, f, f; }\n", 4, "needs .target sm_80"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("bad.ptx", []byte(tt.src))
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Contains(t, e.Error(), tt.msg)
			require.Equal(t, tt.line, e.Line, e.Error())
		})
	}
}

func TestSignaturesTolerate(t *testing.T) {
	src := `//
.version 8.7
.target sm_100a, debug
.address_size 64
.file 1 "a.cu"
.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.global .texref tex;
.alias x, y;
.func helper(.param .b32 x) { tcgen05.frob [%r1], { a, {b} }; }
.visible .entry first(.param .u64 .ptr .global .align 16 a, .param .align 64 .b8 map[128], .param .f16 h)
.explicitcluster .reqnctapercluster 2, 1, 1
.reqntid 128, 2
{ weird.stuff ${"?"} }
.weak .entry second() { ret; }
.visible .entry third(.param .u8 a, .param .u32 b[3]) .maxntid 1024;
.section .debug_str { .b8 1, 2 }
`
	_, err := Parse("s.ptx", []byte(src))
	require.Error(t, err)
	info, err := Signatures("s.ptx", []byte(strings.Replace(src, `${"?"}`, `{"?"} # \ `+"`", 1)))
	require.NoError(t, err)
	require.Equal(t, "sm_100a", info.Target)
	require.Equal(t, 100, info.SM)
	require.Equal(t, 87, info.Version)
	require.Len(t, info.Entries, 2, "a declaration without a body is no entry")
	first, ok := info.Entry("first")
	require.True(t, ok)
	require.Equal(t, Signature{Name: "first", Line: 10, ParamBytes: 194, MaxThreads: 256, Params: []Param{
		{"a", "u64", false, 8, 8, 0}, {"map", "b8", true, 128, 64, 64}, {"h", "f16", false, 2, 2, 192},
	}}, *first)
	_, ok = info.Entry("third")
	require.False(t, ok)

	_, err = Signatures("s.ptx", []byte(".version 7.0\n.target sm_70\n.entry k(.param .u77 x) { }"))
	require.ErrorContains(t, err, "s.ptx:3: type `.u77` cannot be declared here")
}

// No instruction of the tables takes a modifier that means nothing to it.
func TestUnknownModifiers(t *testing.T) {
	for _, table := range [][]instTest{instTests, floatTests} {
		for _, tt := range table {
			for _, extra := range []string{".bogus", ".L3", ".approximate"} {
				op, rest, _ := strings.Cut(tt.text, " ")
				name, mods, _ := strings.Cut(op, ".")
				_, err := Parse("m.ptx", []byte(instKernel(name+extra+"."+mods+" "+rest, "")))
				require.ErrorContains(t, err, "modifier `"+extra+"`", tt.text)
			}
		}
	}
}

// Whatever modifiers are put on an instruction: if it parses here, NVIDIA's assembler takes it too.
func TestNoLaxerThanPtxas(t *testing.T) {
	path := ptxas(t)
	pool := []string{"rn", "rz", "rm", "rp", "rni", "rzi", "ftz", "sat", "relu", "approx", "lo", "hi", "wide", "cc", "NaN", "xorsign.abs", "noftz",
		"u16", "s16", "u32", "s32", "b32", "u64", "s64", "b64", "b16", "f16", "f32", "f64", "bf16", "f16x2", "bf16x2", "pred", "and", "or", "full", "wrap", "shiftamt",
		"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "gpu", "sys", "cta", "global", "shared", "local", "nc", "ca", "cg", "wb", "v2", "sync", "aligned", "L1::evict_last", "L2::128B", "add", "uni"}
	texts := []string{"ld.global.b32 d32, [a64]", "st.global.b32 [a64], d32", "ld.b64 d64, [a64]", "atom.global.add.u32 d32, [a64], b32", "red.global.add.u32 [a64], b32",
		"atom.global.cas.b64 d64, [a64], b64, c64", "bar.sync 0", "membar.gl", "fence.sc.gpu", "vote.sync.any.pred dp, ap, -1", "shfl.sync.idx.b32 d32, a32, b32, c32, -1",
		"redux.sync.add.u32 d32, a32, -1", "match.any.sync.b32 d32, a32, -1", "cvta.to.global.u64 d64, a64", "nanosleep.u32 a32", "activemask.b32 d32"}
	for _, table := range [][]instTest{instTests, floatTests} {
		for _, tt := range table {
			texts = append(texts, tt.text)
		}
	}
	rng := rand.New(rand.NewPCG(1, 9))
	var accepted []string
	seen := map[string]bool{}
	for range 150_000 {
		op, rest, _ := strings.Cut(texts[rng.IntN(len(texts))], " ")
		mods := strings.Split(op, ".")
		switch extra := pool[rng.IntN(len(pool))]; rng.IntN(4) {
		case 3: // change the width of an operand
			rest = mutateWidth(rest, rng)
		case 0: // add one in front of the type
			mods = append(mods[:len(mods)-1:len(mods)-1], extra, mods[len(mods)-1])
		case 1: // replace one
			mods[1+rng.IntN(len(mods)-1)] = extra
		case 2: // drop one
			i := 1 + rng.IntN(len(mods)-1)
			mods = append(mods[:i:i], mods[i+1:]...)
		}
		text := strings.Join(mods, ".") + " " + rest
		if seen[text] {
			continue
		}
		seen[text] = true
		if _, err := Parse("m.ptx", []byte(instKernel(text, ""))); err == nil {
			accepted = append(accepted, text)
		}
	}
	require.NotEmpty(t, accepted)
	lax := refusedByPtxas(t, path, accepted)
	for _, text := range lax {
		t.Errorf("accepted here, refused by ptxas: %s", text)
	}
	t.Logf("%d of %d variants accepted", len(accepted), len(seen))
}

var operandWidth = regexp.MustCompile(`\b([abced])(16|32|64|p)\b`)

func mutateWidth(args string, rng *rand.Rand) string {
	at := operandWidth.FindAllStringIndex(args, -1)
	if len(at) == 0 {
		return args
	}
	p := at[rng.IntN(len(at))]
	return args[:p[0]+1] + []string{"16", "32", "64", "p"}[rng.IntN(4)] + args[p[1]:]
}

// refusedByPtxas assembles one kernel per text and returns the ones with errors.
func refusedByPtxas(t *testing.T, path string, texts []string) (bad []string) {
	for len(texts) > 0 {
		n := min(len(texts), 200)
		part := texts[:n]
		texts = texts[n:]
		for {
			var b strings.Builder
			b.WriteString(header)
			first := make([]int, len(part))
			line := strings.Count(header, "\n") + 1
			for i, text := range part {
				src := strings.Replace(strings.TrimPrefix(instKernel(text, ""), header), "entry k(", fmt.Sprintf("entry k%d(", i), 1)
				first[i] = line
				line += strings.Count(src, "\n")
				b.WriteString(src)
			}
			out, err := assemble(t, path, b.String())
			if err == nil {
				break
			}
			culprit := map[int]bool{}
			for _, msg := range strings.Split(out, "\n") {
				var at int
				if _, rest, ok := strings.Cut(msg, ", line "); ok && !strings.Contains(msg, "warning") {
					if _, err := fmt.Sscanf(rest, "%d", &at); err == nil {
						for i := len(first) - 1; i >= 0; i-- {
							if at >= first[i] {
								if !culprit[i] {
									bad = append(bad, part[i]+"   ("+rest+")")
								}
								culprit[i] = true
								break
							}
						}
					}
				}
			}
			require.NotEmpty(t, culprit, out)
			var rest []string
			for i := range part {
				if !culprit[i] {
					rest = append(rest, part[i])
				}
			}
			part = rest
		}
	}
	return bad
}

// Text that is made to be expensive is refused, or read, in little time.
func TestHostileText(t *testing.T) {
	rep := strings.Repeat
	numbered := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i, i+1)
		}
		return b.String()
	}
	for name, src := range map[string]string{
		"negations":          entry("@" + rep("!", 1e6) + "%p1 ret;"),
		"braces":             entry(rep("{", 1e6)),
		"nested operands":    entry("mov.b32 %r1, " + rep("{", 1e6)),
		"parentheses":        entry("call " + rep("(", 1e6)),
		"signs":              entry("mov.u32 %r1, " + rep("-", 1e6) + "1;"),
		"digits":             entry("mov.u32 %r1, " + rep("1", 1e6) + ";"),
		"digits in a name":   entry("mov.u32 %r1, %r" + rep("1", 1e6) + ";"),
		"modifiers":          entry("add" + rep(".rn", 3e5) + ".f32 %f1, %f1, %f1;"),
		"doubling calls":     header + ".func f0() { ret; }\n" + numbered(40, ".func f%[2]d() { call f%[1]d; call f%[1]d; ret; }\n") + ".entry k() { call f40; }",
		"deep calls":         header + ".func f0() { ret; }\n" + numbered(5000, ".func f%[2]d() { call f%[1]d; ret; }\n") + ".entry k() { call f5000; }",
		"labels and tables":  entry(numbered(3000, "L%[1]d: T%[1]d: .branchtargets "+strings.TrimSuffix(numbered(2000, "L%[1]d,"), ",")+"; brx.idx %%r1, T%[1]d;\n")),
		"many registers":     entry(".reg .b32 %x<1000000>, %y<1000000>, %z<1000000>;" + numbered(200000, "add.u32 %%x%[1]d, %%y%[1]d, %%z%[2]d;\n")),
		"too many registers": entry(rep("{ .reg .b32 %x<1000000>;", 90) + rep("}", 90)),
		"loops in loops":     entry(numbered(3000, "L%[1]d: ") + numbered(3000, "@%%p1 bra L%[1]d;\n")),
		"crossing loops":     entry(numbered(3000, "L%[1]d: @%%p1 bra M%[1]d;\n") + numbered(3000, "M%[1]d: @%%p1 bra L%[1]d;\n")),
		"live everywhere":    entry(".reg .b32 %x<60000>;" + numbered(60000, "mov.u32 %%x%[1]d, %[1]d;\n") + "L: @%p1 bra L;" + numbered(60000, "st.global.u32 [%%rd0], %%x%[1]d;\n")),
		"unclosed comment":   header + rep("/*", 1e6),
		"unclosed string":    header + rep("\"", 1e6),
		"initialisers":       header + ".global .u8 x[10000000] = {" + rep("1,", 1e6) + "1};",
		"variables":          header + numbered(1000, ".global .b8 x%[1]d[1000000] = {1};\n"),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := Parse("h.ptx", []byte(src))
			_, err2 := Signatures("h.ptx", []byte(src))
			took := time.Since(start)
			t.Logf("%v: %.100v; %.100v", took, err, err2)
			require.Less(t, took, 20*time.Second)
			if err != nil {
				var e *Error
				require.ErrorAs(t, err, &e)
				require.Less(t, len(e.Error()), 1000)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range ptxFiles(f) {
		if src, err := os.ReadFile(name); err == nil {
			f.Add(src[:min(len(src), 6000)])
		}
	}
	for i, tt := range append(append([]instTest{}, instTests...), floatTests...) {
		if i%5 == 0 {
			f.Add([]byte(entry("{ .reg .b16 a16, b16, c16, e16, d16; .reg .b32 a32, b32, c32, e32, d32; .reg .b64 a64, b64, c64, e64, d64; .reg .pred ap, bp, cp, dp; @%p1 " + tt.text + "; }")))
		}
	}
	f.Add([]byte(entry(perThread + "@%p1 bra L; L: ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd0]; {.reg .b32 x; add.u32 x, 1, 2;}")))
	f.Add([]byte(header + ".func f(.reg .b32 x) { ret; } .entry k() { .reg .b32 %r<3>; L: .branchtargets A, B; A: B: brx.idx %r1, L; call f, (%r1); }"))
	f.Fuzz(func(t *testing.T, src []byte) {
		m, err := Parse("f.ptx", src)
		if err != nil {
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Positive(t, e.Line)
			return
		}
		info, err := Signatures("f.ptx", src)
		require.NoError(t, err, "what parses has signatures")
		require.Equal(t, m.Info, *info)
		for _, k := range m.kernels {
			fuzzRun(t, m, k)
		}
	})
}

// fuzzRun lets what parsed run for a while: faults are fine, panics are not.
func fuzzRun(t *testing.T, m *Module, k *Kernel) {
	if k.StaticShared > 1<<16 || k.Local > 1<<12 || k.Registers > 1<<12 {
		return
	}
	globals := make([]uint64, len(m.Globals))
	for i := range globals {
		globals[i] = flatBase
	}
	b, err := NewBlock(&Launch{Kernel: k, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{max(1, min(k.Sig.MaxThreads, 40)), 1, 1}, Globals: globals,
		Params: make([]byte, k.Sig.ParamBytes), Memory: newFlat(4096), StepLimit: 2000}, [3]uint32{})
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		s, err := b.Run(Quantum{Warps: 500, Rand: rng})
		if err != nil {
			var fault *Fault
			require.ErrorAs(t, err, &fault)
			return
		}
		if s != Ready {
			return
		}
	}
}

func FuzzSignatures(f *testing.F) {
	for _, name := range ptxFiles(f) {
		if src, err := os.ReadFile(name); err == nil {
			f.Add(src[:min(len(src), 3000)])
		}
	}
	f.Add([]byte(".version 8.0\n.target sm_90\n.func x(.param .b32 y); .entry k(.param .align 8 .b8 a[3][4]) .maxntid 3 { /* } */ }"))
	f.Fuzz(func(t *testing.T, src []byte) {
		info, err := Signatures("f.ptx", src)
		if err != nil {
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Positive(t, e.Line)
			return
		}
		for _, s := range info.Entries {
			for _, p := range s.Params {
				require.LessOrEqual(t, p.Offset+p.Size, s.ParamBytes)
				require.Zero(t, p.Offset%p.Align)
			}
		}
	})
}
