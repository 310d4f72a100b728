package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/flags/check"
)

const checkExamples = "../../flags/check/examples/"

func checkJSON(t *testing.T, args ...string) (int, *checkReport) {
	t.Helper()
	code, stdout, stderr := demo(t, append([]string{"check", "--json"}, args...)...)
	var r checkReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &r), "stdout %q, stderr %q", stdout, stderr)
	require.Equal(t, r.OK, code == exitGood)
	return code, &r
}

func TestCheckShipped(t *testing.T) {
	executions := uint64(20)
	if testing.Short() {
		executions = 2
	}
	_, r := checkJSON(t, "--executions", fmt.Sprint(executions), "--only", "sm_90")
	require.True(t, r.OK)
	require.Greater(t, len(r.Cases), 30)
	for _, c := range r.Cases {
		require.Empty(t, c.Findings)
		require.Greater(t, c.Executions, executions, c.Name)
		require.LessOrEqual(t, c.Executions, 2*executions, c.Name)
		require.Equal(t, c.Exhaustive, c.Why == "", c.Name)
	}
	code, stdout, _ := demo(t, "check", "--executions", "10", "--only", "probe_ping sm_70")
	require.Equal(t, exitGood, code)
	require.Contains(t, stdout, "PASS: no violation in any execution of 1 case (11 executions run, every class of equivalent ones covered)")
	code, stdout, _ = demo(t, "check", "--executions", "10", "--only", "probe_add sm_70")
	require.Equal(t, exitGood, code)
	require.Contains(t, stdout, "All of 0 cases are covered; the others are not exhaustive: stopped after 10 executions")
}

// A kernel of the user's: what is broken is found with its lines, its remedy, and a token that shows it again.
func TestCheckOwn(t *testing.T) {
	own := func(name string) []string {
		return []string{"--ptx", checkExamples + name + ".ptx", "--spec", checkExamples + name + ".spec"}
	}
	code, r := checkJSON(t, own("broken")...)
	require.Equal(t, exitFault, code)
	f := r.Cases[0].Findings[0]
	require.Equal(t, check.Race, f.Kind)
	require.Equal(t, "fenceline.cuh", f.Second.Source)
	require.NotZero(t, f.Second.SourceLine)
	require.Contains(t, f.Fix, "st.release.sys")
	require.NotEmpty(t, f.History)

	_, again := checkJSON(t, append(own("broken"), "--replay", f.Replay)...)
	require.Equal(t, f.Message, again.Cases[0].Findings[0].Message)
	require.Equal(t, uint64(1), again.Cases[0].Executions)

	code, stdout, _ := demo(t, append([]string{"check", "--set", "world=3", "--executions", "50"}, own("correct")...)...)
	require.Equal(t, exitGood, code, stdout)
	require.Contains(t, stdout, "correct.spec world=3")
	code, stdout, _ = demo(t, append([]string{"check", "--set", "calls=1", "--set", "count=1", "--exhaustive"}, own("correct")...)...)
	require.Equal(t, exitGood, code, stdout)
	require.Contains(t, stdout, "every class of equivalent ones covered")
	_, stdout, _ = demo(t, append([]string{"check", "--executions", "1", "--set", "world=3"}, own("push_packets")...)...)
	require.Contains(t, stdout, "not exhaustive: stopped after ")
}

// flagPTX is a kernel that posts data behind a flag and one that waits for it; the %s are the orders of the flag's accesses.
const flagPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .entry post(.param .u64 data, .param .u64 flag)
{
	.reg .b64 x, y;
	ld.param.u64 x, [data];
	ld.param.u64 y, [flag];
	st.global.u32 [x], 42;
	st.%s.sys.global.u32 [y], 1;
	ret;
}
.visible .entry wait(.param .u64 data, .param .u64 flag, .param .u64 out)
{
	.reg .b64 x, y, z;
	.reg .b32 a, b;
	.reg .pred p;
	ld.param.u64 x, [data];
	ld.param.u64 y, [flag];
	ld.param.u64 z, [out];
L:
	ld.%s.sys.global.u32 a, [y];
	setp.ne.u32 p, a, 1;
	@p bra L;
	ld.global.u32 b, [x];
	st.global.u32 [z], b;
	ret;
}
`

const flagSpec = `world 2
buffer data size 4 on 0
buffer flag size 4 on 1
buffer out size 4 on 1
launch post block 1 on 0
arg 0 ptr data
arg 1 ptr flag
launch wait block 1 on 1
arg 0 ptr data
arg 1 ptr flag
arg 2 ptr out
expect out u32 = 42 on 1
`

// flagFiles are the flags that check flagPTX with these orders.
func flagFiles(t *testing.T, store, load string) []string {
	t.Helper()
	dir := t.TempDir()
	ptxFile, spec := filepath.Join(dir, "k.ptx"), filepath.Join(dir, "k.spec")
	require.NoError(t, os.WriteFile(ptxFile, fmt.Appendf(nil, flagPTX, store, load), 0o600))
	require.NoError(t, os.WriteFile(spec, []byte(flagSpec), 0o600))
	return []string{"--ptx", ptxFile, "--spec", spec}
}

// Where one change is not enough, the report says so.
func TestCheckUnfixed(t *testing.T) {
	code, _ := checkJSON(t, flagFiles(t, "release", "acquire")...)
	require.Equal(t, exitGood, code)
	_, r := checkJSON(t, flagFiles(t, "relaxed", "acquire")...)
	require.Contains(t, r.Cases[0].Findings[0].Fix, "`st.relaxed.sys.global.u32` → `st.release.sys.global.u32`")
	require.Empty(t, r.Cases[0].Findings[0].Unfixed)
	_, r = checkJSON(t, flagFiles(t, "relaxed", "relaxed")...)
	require.Empty(t, r.Cases[0].Findings[0].Fix)
	require.Regexp(t, `^no single stronger instruction, of \d+ tried on this finding's lines, makes it go away$`, r.Cases[0].Findings[0].Unfixed)
	_, stdout, _ := demo(t, append([]string{"check"}, flagFiles(t, "relaxed", "relaxed")...)...)
	require.Contains(t, stdout, "\n    no single stronger instruction, of ")
}

// A write's value is in the JSON, and none where none is known.
func TestCheckValues(t *testing.T) {
	_, r := checkJSON(t, flagFiles(t, "relaxed", "acquire")...)
	f := r.Cases[0].Findings[0]
	require.True(t, f.First.Write)
	require.EqualValues(t, 42, *f.First.Value)
	require.Nil(t, f.Second.Value)
	require.EqualValues(t, 1, *f.History[len(f.History)-1].Value)
}

// Where PTX says through which calls a line was inlined, reports do.
func TestCheckNamesCalls(t *testing.T) {
	dir := t.TempDir()
	ptxFile, spec := filepath.Join(dir, "k.ptx"), filepath.Join(dir, "k.spec")
	require.NoError(t, os.WriteFile(ptxFile, []byte(`.version 8.3
.target sm_90
.address_size 64
.file	1 "k.cu"
.file	2 "post.cuh"
.visible .entry k(.param .u64 a)
{
	.reg .b64 x;
	ld.param.u64 x, [a];
	.loc	1 12 5
	.loc	2 7 3, function_name $L__info_string0, inlined_at 1 12 5
	.loc	2 3 9, function_name $L__info_string1, inlined_at 2 7 3
	st.global.u32 [x], 1;
	ret;
}
`), 0o600))
	require.NoError(t, os.WriteFile(spec, []byte("world 2\nbuffer b size 4 on 0\narg 0 ptr b\nlaunch k\nexpect b u32 = 1\n"), 0o600))
	_, stdout, _ := demo(t, "check", "--ptx", ptxFile, "--spec", spec)
	require.Contains(t, stdout, "(post.cuh:3, inlined at post.cuh:7, inlined at k.cu:12)")
	_, r := checkJSON(t, "--ptx", ptxFile, "--spec", spec)
	require.Equal(t, "post.cuh", r.Cases[0].Findings[0].First.Source)
	require.Equal(t, []string{"k.cu:12", "post.cuh:7"}, r.Cases[0].Findings[0].First.Calls)
}

// A spec that expects nothing proves nothing of results, which table, verdict and JSON say.
func TestCheckUnasserted(t *testing.T) {
	text, err := os.ReadFile(checkExamples + "correct.spec")
	require.NoError(t, err)
	var kept []string
	for line := range strings.SplitSeq(string(text), "\n") {
		if !strings.HasPrefix(strings.TrimSpace(line), "expect") {
			kept = append(kept, line)
		}
	}
	spec := filepath.Join(t.TempDir(), "bare.spec")
	require.NoError(t, os.WriteFile(spec, []byte(strings.Join(kept, "\n")), 0o600))
	args := []string{"--ptx", checkExamples + "correct.ptx", "--spec", spec, "--executions", "20"}
	code, stdout, _ := demo(t, append([]string{"check"}, args...)...)
	require.Equal(t, exitGood, code)
	require.Contains(t, stdout, "nothing; NO RESULT WAS COMPARED\n  "+spec+":")
	require.Contains(t, stdout, "add a line such as `expect out u32 sum in`")
	require.Contains(t, stdout, "PASS: no race, deadlock or fault (NO RESULT WAS COMPARED: the spec expects nothing) in ")
	require.NotContains(t, stdout, "no violation")
	_, r := checkJSON(t, args...)
	require.Contains(t, r.Cases[0].Unasserted, "nothing is expected of what is launched")
	_, r = checkJSON(t, "--ptx", checkExamples+"correct.ptx", "--spec", checkExamples+"correct.spec", "--executions", "5")
	require.Empty(t, r.Cases[0].Unasserted)
}

func TestCheckFaults(t *testing.T) {
	code, stdout, stderr := demo(t, "check", "--faults", "--executions", "100")
	require.Equal(t, exitGood, code, stderr)
	require.Contains(t, stdout, "PASS: 6 faults found, nothing found in 4 right kernels")
	require.Contains(t, stdout, "goes away with: fault_scope.ptx:")
	for line := range strings.SplitSeq(stdout, "\n") { // each says which lines of PTX collide
		name, about, found := strings.Cut(line, ": ")
		if !found || !strings.HasSuffix(about, ", as it must be") {
			continue
		}
		_, report, _ := strings.Cut(stdout, line)
		report, _, _ = strings.Cut(report, "replay: ")
		require.GreaterOrEqual(t, strings.Count(report, name+".ptx:"), 2, report)
	}
}

// A wrong result is told by its write and by what that came from, in a dozen lines.
func TestCheckWrongResult(t *testing.T) {
	args := []string{"--ptx", checkExamples + "fault_vector.ptx", "--spec", checkExamples + "fault_vector.spec"}
	_, stdout, _ := demo(t, append([]string{"check"}, args...)...)
	_, report, _ := strings.Cut(stdout, "the sum of in\n")
	report, _, found := strings.Cut(report, "\n    replay: ")
	require.True(t, found, stdout)
	require.Contains(t, report, "wrote:  device ")
	require.Contains(t, report, "fault_vector.ptx:226 `ld.relaxed.sys.global.v2.u32")
	require.Contains(t, report, "STALE: newer is device ")
	require.Contains(t, report, "fault_vector.ptx:131 `st.relaxed.sys.global.v2.u32")
	require.LessOrEqual(t, strings.Count(report, "\n"), 13)
	_, r := checkJSON(t, args...)
	f := r.Cases[0].Findings[0]
	require.True(t, f.Traced)
	require.True(t, f.Second.Write)
	require.NotNil(t, f.History[0].ReadFrom)
}

func TestCheckLitmus(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.litmus")
	const mp = `test: MP
why: for this test
x = 0; y = 0
d0.b0.t0                  | d0.b1.t0
st.weak.u32 [x], 1        | ld.acquire.gpu.u32 r0, [y]
st.release.gpu.u32 [y], 1 | ld.weak.u32 r1, [x]
forbidden: r0 = 1 & r1 = 0
allowed: r0 = 1 & r1 = 1
`
	require.NoError(t, os.WriteFile(file, []byte(mp), 0o600))
	code, stdout, stderr := demo(t, "check", "--litmus", dir)
	require.Equal(t, exitGood, code, stderr)
	require.Contains(t, stdout, "PASS: 1 tests agree, every class of equivalent executions covered")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(mp, "allowed: r0 = 1 & r1 = 1", "forbidden: r0 = 1 & r1 = 1", 1)), 0o600))
	code, stdout, _ = demo(t, "check", "--litmus", file)
	require.Equal(t, exitFault, code)
	require.Contains(t, stdout, "FAIL: 1 of 1 tests disagree: MP")

	// Permitted lines are judged too, by the axioms where the search does not come to them.
	const lb = "test: LB\nwhy: an acquire that finishes late\nx = 0; y = 0\nd0.b0.t0 | d1.b0.t0\n" +
		"ld.acquire.sys.u32 r0, [x] | ld.acquire.sys.u32 r1, [y]\nst.relaxed.sys.u32 [y], 1 | st.relaxed.sys.u32 [x], 1\n"
	require.NoError(t, os.WriteFile(file, []byte(lb+"permitted: r0 = 1 & r1 = 1\n"), 0o600))
	code, stdout, _ = demo(t, "check", "--litmus", file)
	require.Equal(t, exitGood, code)
	require.Contains(t, stdout, "ok; `permitted: r0 = 1 & r1 = 1` (line 7): not seen, and the axioms allow it")
	require.Contains(t, stdout, "1 permitted line: 0 seen, 1 not seen but allowed by the axioms, 0 forbidden by them, 0 not judged")
	require.Contains(t, stdout, "PASS: 1 tests agree; 1 of them not exhaustively")
	require.NoError(t, os.WriteFile(file, []byte(lb+"permitted: r0 = 7\n"), 0o600))
	code, stdout, _ = demo(t, "check", "--litmus", file)
	require.Equal(t, exitFault, code)
	require.Contains(t, stdout, "the axioms forbid `permitted: r0 = 7` (line 7)")
	require.Contains(t, stdout, "FAIL: 1 of 1 tests disagree: LB")
	code, stdout, _ = demo(t, "check", "--litmus", file, "--json")
	require.Equal(t, exitFault, code)
	require.Contains(t, stdout, `"by": "denied"`)
}

// Who interrupts a search gets 130, what was done until then, and no verdict.
func TestCheckInterrupted(t *testing.T) {
	dir := t.TempDir()
	test := "test: long\nwhy: so many executions\na = 0; b = 0\nd0.b0.t0 | d0.b1.t0 | d0.b2.t0 | d0.b3.t0\n"
	for range 6 {
		test += strings.Repeat("ld.relaxed.sys.u32 r0, [a] | ", 3) + "st.relaxed.sys.u32 [a], 1\n" + strings.Repeat("st.relaxed.sys.u32 [b], 1 | ", 3) + "ld.relaxed.sys.u32 r0, [b]\n"
	}
	file := filepath.Join(dir, "long.litmus")
	require.NoError(t, os.WriteFile(file, []byte(test+"permitted: 0:r0 = 1\n"), 0o600))
	none, some := 0*time.Second, 500*time.Millisecond
	for _, c := range []struct {
		after time.Duration
		want  string
		args  []string
	}{
		{some, `INTERRUPTED after [1-9]\d* executions in 1 of 1 test, of which 0 disagree`, []string{"--litmus", file, "--executions", "1000000000"}},
		{some, `nothing so far: INTERRUPTED\n\nINTERRUPTED after [1-9]\d* executions in 1 of 1 case, with findings in 0 of them: not exhaustive, and no verdict`,
			[]string{"--ptx", checkExamples + "push_packets.ptx", "--spec", checkExamples + "push_packets.spec", "--executions", "1000000000"}},
		{some, `INTERRUPTED after [1-9]\d* executions in [1-9]\d* of 10 cases`, []string{"--faults", "--executions", "1000000000"}},
		{some, `INTERRUPTED (before any mutant was judged|after \d+ of [1-9]\d* mutants)`, []string{"--gate", "--executions", "1000000"}},
		{none, `INTERRUPTED after 0 executions in 0 of 1 test`, []string{"--litmus", file}},
		{none, `INTERRUPTED before any execution: this is no verdict`, []string{"--only", "sm_90"}},
		{none, `INTERRUPTED after 0 executions in 0 of 10 cases`, []string{"--faults"}},
		{none, `INTERRUPTED before any mutant was judged: this is no verdict`, []string{"--gate"}},
	} {
		for _, text := range []bool{true, false} {
			args := append([]string{"check"}, c.args...)
			if !text {
				args = append(args, "--json")
			}
			var stdout, stderr bytes.Buffer
			var code int
			for after := c.after; ; after *= 2 { // on a busy machine it may end before there is anything
				stdout.Reset()
				ctx, cancel := context.WithTimeout(t.Context(), after)
				code = execute(ctx, args, &stdout, &stderr)
				cancel()
				if after == 0 || after > time.Minute || !regexp.MustCompile(`after 0 executions|before any execution|"(cases|tests)": \[\]`).Match(stdout.Bytes()) {
					break
				}
			}
			require.Equal(t, exitInterrupted, code, stderr.String())
			require.NotContains(t, stdout.String(), "PASS")
			if text {
				require.Regexp(t, c.want, stdout.String())
				continue
			}
			var rep struct {
				Version         int
				OK, Interrupted bool
				Cases           []checkRow
				Tests           []litmusRow
			}
			require.NoError(t, json.Unmarshal(stdout.Bytes(), &rep), stdout.String())
			require.Equal(t, reportVersion, rep.Version)
			require.True(t, rep.Interrupted)
			require.False(t, rep.OK)
			for i := range rep.Cases {
				require.NotZero(t, rep.Cases[i].Executions)
			}
			if c.after > 0 && len(c.args) > 4 {
				require.Len(t, rep.Cases, 1)
				require.True(t, rep.Cases[0].Interrupted)
				require.Equal(t, "interrupted", rep.Cases[0].Why)
			}
			if c.after > 0 && c.args[0] == "--litmus" {
				require.Len(t, rep.Tests, 1)
				require.True(t, rep.Tests[0].Interrupted)
				require.NotZero(t, rep.Tests[0].Executions)
				require.NotEmpty(t, rep.Tests[0].Outcomes)
			}
		}
	}
}

// What was found before the interruption is told: an outcome that a litmus test forbids, or a mutant that was caught.
func TestCheckInterruptedFindings(t *testing.T) {
	var stdout, stderr bytes.Buffer
	c := &checker{app: &app{stdout: &sticky{w: &stdout}, stderr: &stderr}, ctx: t.Context()}
	rep := &checkReport{Version: reportVersion, Cases: []checkRow{}}
	out := c.newCheckOutput(rep, 3)
	out.row(&checkRow{Name: "a", Executions: 7, Findings: []checkFinding{{Kind: check.Race, text: "race: of a"}}})
	require.ErrorIs(t, out.interrupted(3), errInterrupted)
	require.Contains(t, stdout.String(), "race: of a\n\nINTERRUPTED after 7 executions in 1 of 3 cases, with findings in 1 of them: ")

	stdout.Reset()
	found := []check.Judged{{Fate: check.Caught, Case: "c", Kind: check.Race}, {Fate: check.NotCaught}}
	require.ErrorIs(t, c.printGate(&gateReport{Interrupted: true, total: 9}, found, false), errInterrupted)
	require.Contains(t, stdout.String(), "2 mutants: 1 caught, 0 known to be redundant, 1 NOT CAUGHT")
	require.Contains(t, stdout.String(), "\nINTERRUPTED after 2 of 9 mutants: ")
	require.NotContains(t, stdout.String(), "FAIL")
}

// A column that never ends is found, and ends.
func TestCheckEndless(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hang.litmus")
	require.NoError(t, os.WriteFile(file, []byte("test: a\nwhy: b\nx = 0\nd0.b0.t0\nA: bra A\nallowed: [x] = 0\n"), 0o600))
	code, stdout, _ := demo(t, "check", "--litmus", file)
	require.Equal(t, exitFault, code)
	require.Contains(t, stdout, "a kernel that never ends")
}

func TestCheckUsage(t *testing.T) {
	dir := t.TempDir()
	notPTX := filepath.Join(dir, "not.ptx")
	require.NoError(t, os.WriteFile(notPTX, []byte("hello"), 0o600))
	ptxFile, spec := checkExamples+"correct.ptx", checkExamples+"correct.spec"
	const remedy = "PTX that is not understood is not checked: leave the instruction out of a copy of the kernel and check that, or check the part without it"
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	nowhere := file("nowhere.spec", "world 2\nbuffer a size 4\narg 0 ptr a\nlaunch mini where 0\n")
	instruction := func(name, text string) string {
		return "--ptx " + file(name, ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n\t"+text+"\n\tret;\n}\n") + " --spec " + spec
	}
	wide := file("wide.spec", "buffer a size 128\narg at 0 ptr a\nlaunch mini grid 65535 x 2\n")
	two := file("two.spec", "launch mini\nlaunch maxi\n")
	noPTX := file("no.litmus", "test: a\nwhy: b\nx = 0\nd0.b0.t0 | d0.b1.t0\n\nexit     | atom.relaxed.gpu.and.u32 r0, [x], 1\nallowed: [x] = 0\n")
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.Mkdir(empty, 0o700))
	for _, c := range []struct{ args, want string }{
		{"--ptx x.ptx", "a spec must say how it is launched"},
		{"--ptx /nonex.ptx --spec " + spec, "no such file"},
		{"--ptx " + notPTX + " --spec " + spec, "not.ptx:1: PTX begins with .version"},
		{"--ptx " + notPTX + " --spec " + spec, "PTX that is not understood is not checked: give PTX as compilers write it"},
		{instruction("cp.ptx", "cp.async.bulk.commit_group;"), "cp.ptx:6: `cp` is not supported: asynchronous copies are not emulated: `cp.async.bulk.commit_group;`: " + remedy},
		{instruction("proxy.ptx", "fence.proxy.async;"), "proxy.ptx:6: unknown modifier `.proxy` of `fence`: `fence.proxy.async;`: " + remedy},
		{instruction("new.ptx", "frob.b32;"), "new.ptx:6: unknown instruction `frob`: `frob.b32;`: " + remedy},
		{"--ptx " + ptxFile + " --spec " + ptxFile, `correct.ptx:1:1: "/" is no statement`},
		{"--ptx " + ptxFile + " --spec " + spec + " --set count", "use NAME=VALUE"},
		{"--ptx " + ptxFile + " --spec " + spec + " --set count=1 --set count=2", "given twice"},
		{"--ptx " + ptxFile + " --spec " + spec + " --set cout=2", `nothing is called "cout" that could be set`},
		{"--ptx " + ptxFile + " --spec " + spec + " --entry none", `correct.ptx has no kernel of this name: use mini`},
		{"--ptx " + ptxFile + " --spec " + spec + " --replay zz", "the token does not fit: those of this kernel, spec and params begin with "},
		{"--ptx " + ptxFile + " --spec " + spec + " --replay r:0", "the token does not fit"},
		{"--ptx " + ptxFile + " --spec " + spec + " --entry mini --replay x", "the token does not fit"},
		{"--ptx " + ptxFile + " --spec " + nowhere, "nowhere.spec:4:8: nothing is launched on any rank"},
		{"--ptx " + ptxFile + " --spec " + wide, "wide.spec:3:8: a grid of 65535 x 2 x 1 blocks of 32 threads: use at most 65536 threads in all"},
		{"--ptx " + ptxFile + " --spec " + two + " --entry mini", "two.spec: it launches mini and maxi, and mini can stand for one only"},
		{"--ptx " + ptxFile + " --spec " + spec + " --executions 0", "use 1 or more"},
		{"--only nonesuch", "no case has this in its name"},
		{"--gate --faults", "run one after the other"},
		{"--gate --exhaustive", "does not go with --gate"},
		{"--replay r:0", "replays one case"},
		{"--litmus " + noPTX, noPTX + ":6:12: `atom.relaxed.gpu.and.u32`: "},
		{"--litmus /nonex", "no such file"},
		{"--litmus " + empty, "holds no .litmus file"},
		{"--spec x", "goes with --ptx"},
		{"--machine pcie", "on no machine"},
		{"--faults --only x", "chooses among the shipped cases"},
	} {
		code, stdout, stderr := demo(t, append([]string{"check"}, strings.Fields(c.args)...)...)
		require.Equal(t, exitUsage, code, "%s: %s", c.args, stderr)
		require.Empty(t, stdout, c.args)
		require.Contains(t, stderr, c.want, c.args)
	}
}

func TestCheckGate(t *testing.T) {
	code, stdout, stderr := demo(t, "check", "--gate", "--executions", "50", "--only", "probe_ping sm_90")
	require.Contains(t, stdout, "caught", stderr)
	require.Contains(t, stdout, "of the")
	require.Contains(t, []int{exitGood, exitFault}, code)
	var rep gateReport
	_, stdout, _ = demo(t, "check", "--gate", "--json", "--executions", "50", "--only", "probe_ping sm_90")
	require.NoError(t, json.Unmarshal([]byte(stdout), &rep))
	require.NotEmpty(t, rep.Mutants)
	require.NotZero(t, rep.Executed)
}
