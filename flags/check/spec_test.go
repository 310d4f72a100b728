package check

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/internal/ptx"
)

const specPTX = `.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 counter = 7;
.visible .entry add(.param .u64 in, .param .u32 n, .param .align 8 .b8 table[32])
.maxntid 64, 1, 1
{
	ret;
}
.visible .entry other(.param .u64 out)
{
	ret;
}
`

func specModule(t testing.TB) *ptx.Module {
	t.Helper()
	m, err := ptx.Parse("spec.ptx", []byte(specPTX))
	require.NoError(t, err)
	return m
}

// fakeMemory is what a program's buffers hold at the start.
func fakeMemory(p *Program) (*Memory, [][]byte) {
	var data [][]byte
	for _, b := range p.Buffers {
		d := make([]byte, b.Size)
		copy(d, b.Init)
		data = append(data, d)
	}
	m := &Memory{}
	m.bytes = func(b int) []byte { return append([]byte{}, data[b]...) }
	m.write = func(b, off int, d []byte) { copy(data[b][off:], d) }
	return m, data
}

func specProgram(t testing.TB, text string, set map[string]string) *Program {
	t.Helper()
	s, err := ParseSpec("test.spec", text)
	require.NoError(t, err)
	p, err := s.Program(specModule(t), set)
	require.NoError(t, err)
	return p
}

func TestSpecProgram(t *testing.T) {
	const text = `
world 2
param count = 3
param dtype = f32 | f16
let size = count*bytes({dtype})
buffer in   size size each call fill payload {dtype}
buffer out  size size guard 8 fill 0xee   # a comment
buffer flag size 16 on 1 host fill u32 = 10*i + rank
word flag at 4*i + 4 = 0xffffffff - i for i < 2
arg 0 ptr in + 4
launch add grid 2x1 block 8 x 4 times 2
arg 1 u32 count + call
arg 2 ptrs out
arg at 32 u64 addr(flag)
sync
launch other block 64 on 1 stream 3 dependent resident 1 shared 128
arg 0 ptr in
`
	p := specProgram(t, strings.ReplaceAll(text, "2x1", "2 x 1"), map[string]string{"count": "5"})
	require.Equal(t, 2, p.Devices)
	require.Equal(t, "test.spec count=5", p.Name)
	var names []string
	for _, b := range p.Buffers {
		names = append(names, fmt.Sprintf("%s|%d|%d", b.Name, b.Device, b.Size))
	}
	require.Equal(t, []string{
		"in of rank 0 in call 0|0|20", "in of rank 0 in call 1|0|20",
		"in of rank 1 in call 0|1|20", "in of rank 1 in call 1|1|20", "in of rank 1 in call 2|1|20",
		"out of rank 0|0|28", "out of rank 1|1|28", "flag|-1|16", "counter|0|4", "counter|1|4",
	}, names)
	require.Equal(t, []byte{7, 0, 0, 0}, p.Buffers[8].Init)
	flag := p.Buffers[7].Init
	for i, want := range []uint32{1, 0xffffffff, 0xfffffffe, 31} {
		require.Equal(t, want, binary.LittleEndian.Uint32(flag[4*i:]))
	}
	require.NotEqual(t, p.Buffers[0].Init, p.Buffers[1].Init, "each call has a payload of its own")
	require.NotEqual(t, p.Buffers[0].Init, p.Buffers[2].Init, "and each rank")

	require.Len(t, p.Tasks, 5)
	for i, want := range []struct {
		stream, device int
		name           string
	}{{0, 0, "add call 0"}, {16, 1, "add call 0"}, {0, 0, "add call 1"}, {16, 1, "add call 1"}, {19, 1, "other call 2"}} {
		task := &p.Tasks[i]
		require.Equal(t, want.stream, task.Stream)
		require.Equal(t, want.device, task.Device)
		require.Equal(t, want.name, task.Name)
	}
	require.Equal(t, [3]uint32{2, 1, 1}, p.Tasks[0].Grid)
	require.Equal(t, [3]uint32{8, 4, 1}, p.Tasks[0].Block)
	require.Empty(t, p.Tasks[3].After)
	last := p.Tasks[4]
	require.Equal(t, []int{2, 3}, last.After)
	require.True(t, last.Dependent)
	require.Equal(t, 1, last.Resident)
	require.Equal(t, 128, last.Shared)
	require.Equal(t, []int{9}, last.Globals)

	address := func(b int) uint64 { return uint64(b+1) << 32 }
	a := p.Tasks[3].Params(address) // rank 1, call 1
	require.Len(t, a, p.Tasks[3].Kernel.Sig.ParamBytes)
	require.Equal(t, address(3)+4, binary.LittleEndian.Uint64(a))
	require.Equal(t, uint32(6), binary.LittleEndian.Uint32(a[8:]))
	require.Equal(t, []uint64{address(5), address(6), address(7), 0}, []uint64{binary.LittleEndian.Uint64(a[16:]),
		binary.LittleEndian.Uint64(a[24:]), binary.LittleEndian.Uint64(a[32:]), binary.LittleEndian.Uint64(a[40:])})
	require.Equal(t, address(4), binary.LittleEndian.Uint64(last.Params(address)))
}

// What is expected is judged, in words that say what and where.
func TestSpecExpect(t *testing.T) {
	p := specProgram(t, `
world 2
buffer in  size 12 each call fill payload f32
buffer out size 16 each call guard 4 fill 0xee
launch other times 2
arg 0 ptr in
expect out at 4 f32 sum in
expect out count 1 u32 = 0xeeeeeeee
expect in unchanged
`, nil)
	require.NotNil(t, p.Final)
	m, data := fakeMemory(p)
	require.ErrorContains(t, p.Final(m), "out of rank 0 in call 0: element 0 is 0xeeeeeeee (-3.697314e+28), not ")
	f32 := func(b, i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(data[b][4*i:])) }
	for rank := range 2 {
		for call := range 2 {
			out := data[4+2*rank+call]
			for i := range 3 {
				binary.LittleEndian.PutUint32(out[4+4*i:], math.Float32bits(f32(call, i)+f32(2+call, i)))
			}
		}
	}
	require.NoError(t, p.Final(m))
	data[7][17]++
	require.EqualError(t, p.Final(m), "the bytes behind out of rank 1 in call 1: element 1 is 0xa6, not 0xa5")
	data[7][17]--
	data[1][5] ^= 1
	require.ErrorContains(t, p.Final(m), "in of rank 0 in call 1: element 5 is ")
	data[1][5] ^= 1
	data[6][0], data[6][8] = 0, 0
	require.ErrorContains(t, p.Final(m), "out of rank 1 in call 0: element 1 is")
	require.ErrorContains(t, p.Final(m), "the sum of in")
}

// An expectation before the end judges what the stream came by; the host's writes change what is expected.
func TestSpecWriteAndSnapshot(t *testing.T) {
	p := specProgram(t, `
buffer in  size 8 fill payload u32
buffer out size 8
repeat 2
  write in payload u32
  launch other
  arg 0 ptr out
  expect out u32 sum in
end
`, nil)
	var kinds []string
	for _, task := range p.Tasks {
		kinds = append(kinds, fmt.Sprint(task.Name, task.Device, task.Stream))
	}
	require.Equal(t, []string{"write in0 0", "other call 00 0", "read out0 0", "write in0 0", "other call 10 0"}, kinds)
	m, data := fakeMemory(p)
	first := string(data[0])
	address := func(b int) uint64 { return uint64(b) }
	for i := range p.Tasks {
		if strings.HasPrefix(p.Tasks[i].Name, "other") {
			copy(data[1], data[0]) // what the kernel should do
			continue
		}
		a := p.Tasks[i].Params(address)
		copy(data[a[0]], data[a[8]])
	}
	require.NotEqual(t, first, string(data[0]))
	require.NoError(t, p.Final(m))
	copied := slices.IndexFunc(p.Buffers, func(b Buffer) bool { return b.Name == "out, copied" })
	data[copied][0]++
	require.ErrorContains(t, p.Final(m), "out: element 0 is")
	data[copied][0]--
	data[1][4]++
	require.ErrorContains(t, p.Final(m), "out after call 1: element 1 is")
}

func TestSpecExpressions(t *testing.T) {
	b := &specBody{file: "x", values: map[string]int64{"n": 37}, lets: map[string]specLet{}, words: map[string]string{}}
	for text, want := range map[string]int64{
		"1 + 2*3": 7, "(1 + 2)*3": 9, "7 - 2 - 1": 4, "1 << 4 | 3": 19, "-7 / 2": -3, "-7 % 4": -3, "~0": -1, "!3 + !0": 1,
		"0xffffffffffffffff": -1, "n > 36 && n < 38": 1, "n == 37 || 1/0": 1, "0 ? 1 : 0 ? 2 : 3": 3, "min(3, n) + max(1, 2)": 5,
		"align(n, 16)": 48, "bytes(bf16)": 2, "pick(1, 4, 5, 6)": 5, "5 & 6 ^ 1": 5, "1 < 2 == 1": 1, "0b101": 5,
		"-9223372036854775807 - 1": math.MinInt64, "(-9223372036854775807 - 1) / -1": math.MinInt64, "3 != 3": 0, "2 >= 2": 1, "9 >> 1 >> 1": 2,
	} {
		l := b.scan(1, text)
		require.Equal(t, want, l.expr()(&env{body: b}), text)
		require.Empty(t, l.peek().text, text)
	}
}

// Refusals name file, line and column, and say what to do.
func TestSpecErrors(t *testing.T) {
	const fine = "buffer b size 8\nlaunch other\narg 0 ptr b\n"
	for text, want := range map[string]string{
		"":                                     "test.spec: nothing is launched: add a line such as",
		"lunch other":                          `test.spec:1:1: "lunch" is no statement: use one of arg, buffer,`,
		"launch":                               "which kernel, found the end of the line",
		"launch other 3":                       `"3" says nothing of a launch`,
		"buffer a":                             "a has no size: add `size 4*count`",
		"buffer a size x":                      "test.spec:1:15: x is neither a param nor a let: declare it above",
		"buffer a size 4 fil 3":                `test.spec:1:17: "fil" says nothing of a buffer`,
		"buffer a size 4\nlet a = 1":           "a has a meaning already",
		"let rank = 1":                         "rank has a meaning already",
		"param a = 1 2":                        `"2" is too much here`,
		"param a = f32 |":                      "a word is expected",
		"let b = {a}":                          "test.spec:1:9: {a} is no param that is a word",
		"let b = {a":                           "test.spec:1:9: { without }",
		"let b = 1 ; 2":                        "';' has no meaning here",
		"let b = 0x":                           `"0x" is no number`,
		"let b = (1":                           "close the parenthesis",
		"let b = foo(1)":                       "there is no function foo",
		"let b = min(1)":                       "min takes 2 arguments, found 1",
		"let b = 1 ? 2":                        "a condition has three parts",
		"param a = 1/0":                        "division by zero",
		"let b = bytes(f64)":                   `"f64" is no type: use u8`,
		"world 0":                              "0 ranks: use 1 to 64",
		"buffer a size 4\nworld 2":             "world comes too late",
		"devices 2":                            "2 devices for 1 ranks",
		"end":                                  "there is nothing to end",
		"repeat 2\nlaunch other":               "test.spec:1:8: this repeat has no end",
		"arg x":                                "which argument is meant",
		"arg 0 f99 1":                          `"f99" is no kind of argument`,
		"expect a unchanged":                   `"a" is no buffer: declare it above`,
		fine + "expect b u32":                  "what is expected, found the end of the line",
		"buffer b size 8 each call\nwrite b 0": "b is another buffer in each call",
		doubling(20):                           "stands for",
		strings.Repeat("x", 3000):              "the line has 3000 bytes",
		"let b = 1 " + strings.Repeat(" ", 10): "nothing is launched",
	} {
		_, err := ParseSpec("test.spec", text)
		var e *SpecError
		require.ErrorAs(t, err, &e, text)
		require.ErrorContains(t, err, want, text)
	}
	m := specModule(t)
	for text, want := range map[string]string{
		"launch none":                                                     "spec.ptx has no kernel none: it has add, other",
		"launch other":                                                    "parameter 0 of other (u64, at 0) has no value: add `arg 0 …`",
		"launch other\narg 1 u32 1":                                       "other has 1 parameters, counted from 0: there is no 1",
		"launch other\narg 0 u32 1":                                       "parameter 0 of other is u64, of 8 bytes, and u32 has 4",
		"launch other\narg at 8 u32 1":                                    "8 is outside of the parameters of other, which have 8 bytes",
		"launch other\narg at 4 u64 1":                                    "8 bytes do not fit at 4 of the parameters of other: there are 4",
		"launch add block 65":                                             "a block of 65 threads: add takes at most 64",
		"launch other block 2000":                                         "block 2000: use 1 to 1024",
		"launch other grid 0":                                             "grid 0: use 1 to 65535",
		"launch other on 3":                                               "on 3: ranks are 0 to 0",
		"launch other\narg 0 u64 i":                                       "i has no meaning here: use it in contents and expectations",
		"launch other\narg 0 u64 peer":                                    "peer has no meaning here",
		fine + "expect b at 9 u32 = 1":                                    "at 9: use 0 to 8",
		fine + "expect b count 3 u32 = 1":                                 "count 3: use 0 to 2",
		fine + "word b at 6 = 1":                                          "a word at 6 is outside of b, which has 8 bytes",
		"buffer b size addr(b)\n":                                         "is no buffer",
		"buffer b size -1\n" + fine[16:]:                                  "b has -1 bytes",
		"buffer b size 8 align 3\n" + fine[16:]:                           "align 3: use a power of two",
		fine + "word b at 0 = 1 for i < 1 << 60":                          "words do not fit in b",
		fine + "repeat 1000\nrepeat 1000\nend\nend":                       "more than 10000 turns",
		fine + "repeat 20000\nsync\nend":                                  "20000 times: use 0 to 10000",
		"buffer b size 1 << 29\n" + fine[16:]:                             "use 1 to 16777216",
		"world 2\nbuffer b size 8\nlaunch other\narg 0 u64 addr(b, 2)":    "there is no b of rank 2 in call 0",
		fine + "word b at 9223372036854775807 = 1":                        "test.spec:4:6: a word at 9223372036854775807 is outside of b",
		fine + "word b at -4 = 1":                                         "a word at -4 is outside of b",
		fine + "expect b at 9223372036854775807 u32 = 1":                  "test.spec:4:8: at 9223372036854775807: use 0 to 8",
		fine + "expect b count 9223372036854775807 u64 = 1":               "count 9223372036854775807: use 0 to 1",
		fine + "expect b u8 sum b at 9223372036854775807":                 "at 9223372036854775807: use 0 to 8",
		"buffer b size 9223372036854775807\n" + fine[16:]:                 "b has 9223372036854775807 bytes",
		"buffer b size 8 guard 9223372036854775807\n" + fine[16:]:         "9223372036854775807 to guard it: use 1 to 16777216",
		"launch other\narg at 9223372036854775807 u64 1":                  "9223372036854775807 is outside of the parameters",
		"launch other shared 9223372036854775807\narg 0 u64 1":            "shared 9223372036854775807: use 0 to 262144",
		"launch other grid 65535 x 2\narg 0 u64 1":                        "test.spec:1:8: a grid of 65535 x 2 x 1 blocks of 32 threads: use at most 65536 threads in all",
		"launch other grid 65535 x 65535 x 65535 block 1024\narg 0 u64 1": "use at most 65536 threads in all",
		"launch other grid 2048 times 9\narg 0 u64 1":                     "test.spec:1:8: the launches so far have more than 262144 threads together",
		"world 2\nlaunch other on 0, 0\narg 0 u64 1":                      "rank 0 is named twice",
		"sync\nlaunch other where 0\narg 0 u64 1":                         "test.spec:2:8: nothing is launched on any rank: see that times, repeat and where",
		"launch other times 0\narg 0 u64 1":                               "test.spec:1:8: nothing is launched on any rank",
		"repeat 0\nlaunch other\nend\narg 0 u64 1":                        "test.spec:2:8: nothing is launched on any rank",
		// Much to work out for each of many elements, and words that are written again and again.
		"let a = 0" + strings.Repeat("+1", 900) + "\nbuffer b size 1 << 24 fill a\nlaunch other\narg 0 ptr b":           "test.spec:2:28: contents and expectations have more than 268435456",
		"buffer b size 1 << 22\nlaunch other\narg 0 ptr b" + strings.Repeat("\nword b at 0 = 1 for i < 1 << 20", 4):     "test.spec:6:6: buffers, writes and expectations together have more than 16777216 bytes",
		"let a = 0" + strings.Repeat("+1", 900) + "\nbuffer b size 1 << 20\nlaunch other\narg 0 ptr b\nexpect b u8 = a": "test.spec:5:8: contents and expectations have more than 268435456",
	} {
		s, err := ParseSpec("test.spec", text)
		if err == nil {
			_, err = s.Program(m, nil)
		}
		var e *SpecError
		require.ErrorAs(t, err, &e, text)
		require.ErrorContains(t, err, want, text)
	}
}

// doubling is a chain of abbreviations, each twice the one before.
func doubling(n int) string {
	text := "let a0 = 1\n"
	for i := range n {
		text += fmt.Sprintf("let a%d = a%d + a%d\n", i+1, i, i)
	}
	return text
}

func TestSpecSet(t *testing.T) {
	s, err := ParseSpec("test.spec", "world 2\nparam n = 2*3\nparam d = f32 | f16\nbuffer b size n\nlaunch other\narg 0 ptr b\n")
	require.NoError(t, err)
	require.Equal(t, []SpecParam{{"world", "2", nil}, {"n", "2 * 3", nil}, {"d", "f32", []string{"f32", "f16"}}}, s.Params)
	entries, err := s.Entries(nil)
	require.NoError(t, err)
	require.Equal(t, []string{"other"}, entries)
	m := specModule(t)
	p, err := s.Program(m, map[string]string{"world": "3", "n": "0x10"})
	require.NoError(t, err)
	require.Len(t, p.Tasks, 3)
	require.Equal(t, 16, p.Buffers[0].Size)
	for name, c := range map[string]struct{ value, want string }{
		"m":     {"1", `nothing is called "m" that could be set: there are world, n, d`},
		"d":     {"f64", `d cannot be "f64": use one of f32, f16`},
		"n":     {"1 2", `"2" is too much here`},
		"world": {"99", "99 ranks: use 1 to 64"},
	} {
		_, err := s.Program(m, map[string]string{name: c.value})
		require.ErrorContains(t, err, c.want)
	}
}

// A spec that compares no result says so, and where.
func TestSpecUnasserted(t *testing.T) {
	m := specModule(t)
	for text, want := range map[string]string{
		"buffer b size 8 guard 4\nlaunch other\narg 0 ptr b":                         "test.spec:2:8: nothing is expected of what is launched, so wrong results are not found: add a line such as `expect out u32 sum in`",
		"buffer b size 8\nlaunch other\narg 0 ptr b\nexpect b count 0 u32 = 1":       "test.spec:4:8: no expect compares any element, so",
		"buffer b size 8\nlaunch other\narg 0 ptr b\nrepeat 0\nexpect b u8 = 1\nend": "test.spec:2:8: nothing is expected",
		"buffer b size 8\nlaunch other\narg 0 ptr b\nexpect b at 4 u32 = 1":          "",
		"buffer b size 8\nlaunch other\narg 0 ptr b\nexpect b unchanged":             "",
	} {
		s, err := ParseSpec("test.spec", text)
		require.NoError(t, err)
		p, err := s.Program(m, nil)
		require.NoError(t, err)
		if want == "" {
			require.Empty(t, p.Unasserted, text)
		} else {
			require.Contains(t, p.Unasserted, want, text)
		}
	}
}

func FuzzParseSpec(f *testing.F) {
	f.Add("world 2\nparam d = f32 | f16\nbuffer b size 8*bytes({d}) fill payload {d}\nlaunch other times 2\narg 0 ptr b + 4\nexpect b unchanged\n")
	f.Add("repeat 2\nwrite b u32 = i\nend\nword b at 4*i = 1 for i < 3\nexpect b at 1 count 2 u8 sum b at 3 on 0,1")
	m, err := ptx.Parse("spec.ptx", []byte(specPTX))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSpec("fuzz.spec", text)
		if err == nil && len(text) < 300 {
			_, err = s.Program(m, nil)
		}
		if err != nil {
			var e *SpecError
			require.ErrorAs(t, err, &e)
		}
	})
}
