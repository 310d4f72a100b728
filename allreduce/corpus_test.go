package allreduce

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenceline/fenceline/launcher"
)

// A corpus is what a card's algorithms gave for inputs that follow from a seed, bit by bit. It holds the emulator, which
// otherwise is only compared with a reference in Go, to the arithmetic of hardware: NaN, overflow, subnormals, ties.
//
//	fenceline corpus 1
//	device: NVIDIA H200
//	driver: …
//	case ALGORITHM DTYPE WORLD SET COUNT INPUTS OUTPUT   the inputs' and the output's hash, 16 digits of it
//	output SHA256 BYTES HEX                              all of it, or the first bytes where it is long

const (
	corpusFolder = "testdata/corpus"
	corpusHead   = "fenceline corpus 1"
	corpusSeed   = 20240229
	corpusWhole  = 2400      // outputs up to here are kept whole
	corpusFirst  = 64        // bytes kept of longer ones
	corpusMost   = 200 << 10 // bytes of a file
)

var corpusWorlds = []int{2, 3, 4, 8}

// TestCorpus makes every call of the corpus. With CORPUS_OUT=DIR, and on a GPU, it keeps the outputs there; without, it
// compares them with what cards gave.
func TestCorpus(t *testing.T) {
	if testing.Short() {
		t.Skip("it compares bits alone, which takes long under the race detector")
	}
	out := os.Getenv("CORPUS_OUT")
	files, err := filepath.Glob(filepath.Join(corpusFolder, "*.txt"))
	require.NoError(t, err)
	if out == "" {
		require.NotEmpty(t, files, "the corpus of a card's outputs is gone from %s: restore it, or run scripts/gpu-check.sh run corpus", corpusFolder)
	}
	rt := openAny(t)
	if out != "" {
		require.False(t, rt.Info().Emulated, "CORPUS_OUT keeps what a card gives, and these devices are emulated: leave it out")
	}
	here := makeCorpus(t, rt, everyAlgorithm, corpusWorlds)
	if out == "" {
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.LessOrEqual(t, len(text), corpusMost, "%s is too long to be kept", file)
			card, err := readCorpus(text)
			require.NoError(t, err, file)
			if younger := card.lend(everyAlgorithm); younger != nil {
				t.Logf("%s was made before %v, whose outputs are held to those of the others: make it again on a card", file, younger)
			}
			for _, d := range card.compare(here) {
				t.Errorf("%s: %s", file, d)
			}
		}
		return
	}
	require.False(t, t.Failed(), "some of it was not made")
	require.NoError(t, os.MkdirAll(out, 0o755))
	file := filepath.Join(out, strings.ReplaceAll(strings.ToLower(rt.Devices()[0].Name), " ", "-")+".txt")
	text := here.write()
	require.NoError(t, os.WriteFile(file, text, 0o644))
	t.Logf("%s: %d cases, %d outputs, %d bytes", file, len(here.cases), len(here.outputs), len(text))
	require.LessOrEqual(t, len(text), corpusMost)
	for _, d := range here.unlike {
		t.Errorf("kept, but not as the reference has it: %s", d)
	}
}

// What is written is read again as it was; a changed bit is found, whether the file still fits its own hashes or not.
func TestCorpusItself(t *testing.T) {
	made := makeCorpus(t, openEmu(t, "", 0), []Algorithm{OneshotPull, OneshotPush, Copy}, []int{2, 3})
	require.Empty(t, made.unlike)
	file := filepath.Join(t.TempDir(), "emulated.txt")
	require.NoError(t, os.WriteFile(file, made.write(), 0o600))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	read, err := readCorpus(text)
	require.NoError(t, err)
	require.Equal(t, made.head, read.head)
	require.Empty(t, read.compare(made))
	require.Equal(t, text, read.write())
	require.Len(t, read.cases, 3*2*len(DTypes())*len(corpusSets(F32)))
	require.Len(t, read.order, 2*len(DTypes())*len(corpusSets(F32)), "each output once: those of all algorithms are the same")

	for name, c := range map[string]struct {
		old, new, want string
	}{
		"version":        {corpusHead, "fenceline corpus 2", "line 1: not a corpus of version 1"},
		"digit":          {"output ", "output 0", "line "},
		"algorithm":      {"case copy", "case ring", "unknown algorithm"},
		"no such output": {"case copy f32 2 one 1 ", "case copy f32 2 one 1 0000000000000000 ", "line "},
		"another word":   {"case copy", "cave copy", "neither a case nor an output"},
	} {
		_, err := readCorpus([]byte(strings.Replace(string(text), c.old, c.new, 1)))
		require.ErrorContains(t, err, c.want, name)
	}
	_, err = readCorpus(text[:len(text)*2/3])
	require.Error(t, err, "cut short")

	for ref, o := range read.outputs { // in the bytes alone: the file contradicts itself
		if uint64(len(o.data)) < o.size {
			continue
		}
		was := hex.EncodeToString(o.data)
		o.data = bytes.Clone(o.data)
		o.data[len(o.data)/2] ^= 0x10
		_, err := readCorpus([]byte(strings.Replace(string(text), " "+was+"\n", " "+hex.EncodeToString(o.data)+"\n", 1)))
		require.ErrorContains(t, err, "its bytes have another hash", ref)
		break
	}
	for _, set := range []string{"special", "large"} { // and in a card's answer: the comparison finds it
		other, err := readCorpus(text)
		require.NoError(t, err)
		c := &other.cases[other.find("oneshot-push bf16 3 "+set)]
		good := other.outputs[c.out]
		wrong := corpusOutput{size: good.size, data: bytes.Clone(good.data)}
		wrong.data[7] ^= 1
		sum := sha256.Sum256(wrong.data)
		wrong.sha = hex.EncodeToString(sum[:])
		c.out = wrong.ref()
		other.outputs[c.out] = wrong
		found := other.compare(made)
		require.Len(t, found, 1)
		require.Contains(t, found[0], "oneshot-push bf16 3 "+set)
		require.Contains(t, found[0], "element 3 is")
	}
	later := makeCorpus(t, openEmu(t, "", 0), []Algorithm{OneshotPull, OneshotPush, Copy, TwoshotPush}, []int{2, 3})
	read, err = readCorpus(text)
	require.NoError(t, err)
	require.NotEmpty(t, read.compare(later), "of an algorithm that it was made without it knows nothing")
	require.Equal(t, []Algorithm{TwoshotPush}, read.lend([]Algorithm{OneshotPull, OneshotPush, Copy, TwoshotPush}))
	require.Empty(t, read.compare(later))
	later.cases[len(later.cases)-1].out = later.cases[0].out
	require.Len(t, read.compare(later), 1, "but it has its bits")

	other, err := readCorpus(text)
	require.NoError(t, err)
	other.cases[0].in = "0123456789abcdef"
	other.cases = other.cases[:len(other.cases)-1]
	found := other.compare(made)
	require.Len(t, found, 2)
	require.Contains(t, found[0], "the inputs are others")
	require.Contains(t, found[1], "is not in the corpus")
}

// corpusSet is a kind of input of so many elements.
type corpusSet struct {
	name  string
	count uint64
	fill  func(f corpusFormat, x uint64, rank int, i uint64) uint64 // bits of element i, x being random, the same for all ranks
}

func corpusSets(dt DType) []corpusSet {
	n := uint64(len(corpusFormatOf(dt).specials()))
	return []corpusSet{
		{"one", 1, corpusFormat.value},
		{"seven", 7, corpusFormat.value},
		{"values", 1031, corpusFormat.value},
		{"any", 257, corpusFormat.any},
		{"special", (n*n + 1) | 1, corpusFormat.special},
		{"ties", 333, corpusFormat.tie},
		{"large", 8209, corpusFormat.value},
	}
}

// corpusFormat is a float type: bits of the exponent and of the fraction.
type corpusFormat struct{ exp, frac uint }

func corpusFormatOf(dt DType) corpusFormat {
	return map[DType]corpusFormat{F32: {8, 23}, F16: {5, 10}, BF16: {8, 7}}[dt]
}

func (f corpusFormat) bits(sign, exp, frac uint64) uint64 {
	return sign&1<<(f.exp+f.frac) | exp&(1<<f.exp-1)<<f.frac | frac&(1<<f.frac-1)
}

func (f corpusFormat) bias() uint64 { return 1<<(f.exp-1) - 1 }

// own is a random number for each rank, drawn from one for all.
func own(x uint64, rank int) uint64 {
	x ^= uint64(rank) * 0x9e3779b97f4a7c15
	x = (x ^ x>>31) * 0xbf58476d1ce4e5b9
	return x ^ x>>29
}

// value is a number of about 1/16 to 16 in magnitude: most sums are rounded.
func (f corpusFormat) value(x uint64, rank int, _ uint64) uint64 {
	x = own(x, rank)
	return f.bits(x, f.bias()-4+x>>1&7, x>>8)
}

func (f corpusFormat) any(x uint64, rank int, _ uint64) uint64 {
	x = own(x, rank)
	return f.bits(x, x>>1, x>>16)
}

// specials are zeros, infinities, NaN of several payloads, subnormals, the largest numbers and what just changes them.
func (f corpusFormat) specials() []uint64 {
	top, quiet, all := uint64(1)<<f.exp-1, uint64(1)<<(f.frac-1), uint64(1)<<f.frac-1
	ulp := uint64(f.frac) + 1 // half an ulp is 2 to the -ulp of a number
	var list []uint64
	for sign := range uint64(2) {
		list = append(list, f.bits(sign, 0, 0), f.bits(sign, top, 0), f.bits(sign, top, quiet), f.bits(sign, top, 1), f.bits(sign, top, all),
			f.bits(sign, f.bias(), 0), f.bits(sign, top-1, all), f.bits(sign, top-1-ulp, 0), f.bits(sign, 1, 0), f.bits(sign, 0, all), f.bits(sign, 0, 1))
	}
	return append(list, f.bits(0, top-1, all-1), f.bits(0, f.bias(), 1), f.bits(0, f.bias()-ulp, 0))
}

// special pairs each with each, on ranks 0 and 1. The others have -0, which changes nothing, and at times one more.
func (f corpusFormat) special(x uint64, rank int, i uint64) uint64 {
	s := f.specials()
	n := uint64(len(s))
	switch {
	case rank == 0:
		return s[i/n%n]
	case rank == 1:
		return s[i%n]
	case (i+uint64(rank))%16 == 0:
		return s[own(x, rank)%n]
	}
	return f.bits(1, 0, 0)
}

// tie adds to a number half a unit of its last place, either way; sometimes a further rank breaks the tie, or in f32, where it
// was rounded by then, adds once more.
func (f corpusFormat) tie(x uint64, rank int, _ uint64) uint64 {
	e := f.bias() - 3 + x>>1&7
	switch {
	case rank == 0:
		return f.bits(x, e, x>>8)
	case rank == 1:
		return f.bits(x>>4, e-uint64(f.frac)-1, 0)
	case x>>60%4 == uint64(rank)%4:
		less := e - uint64(f.frac) - 1
		switch {
		case f.frac > 10:
			return f.bits(x>>5, less, 1<<(f.frac-1)) // three quarters: a half of an even number would be rounded away again
		case less > 3:
			return f.bits(x>>5, less-3, 0)
		}
		return f.bits(x>>5, 0, 1<<(uint64(f.frac)+less-4)) // the same, below the normal numbers
	}
	return f.bits(1, 0, 0)
}

// inputs are those of all ranks.
func (s corpusSet) inputs(dt DType, world int) [][]byte {
	f, in := corpusFormatOf(dt), make([][]byte, world)
	for r := range in {
		source := rand.NewPCG(corpusSeed, uint64(dt)<<32|s.count) // its numbers alone: what is drawn from them may change with Go
		in[r] = make([]byte, s.count*dt.Size())
		for i := range s.count {
			v, at := s.fill(f, source.Uint64(), r, i), in[r][i*dt.Size():]
			if dt == F32 {
				binary.LittleEndian.PutUint32(at, uint32(v))
			} else {
				binary.LittleEndian.PutUint16(at, uint16(v))
			}
		}
	}
	return in
}

type corpus struct {
	head    []string // device and driver
	cases   []corpusCase
	outputs map[string]corpusOutput // by their ref
	order   []string
	unlike  []string // outputs that are not the reference's; not written
}

type corpusCase struct {
	key     string // algorithm, dtype, world, set
	count   uint64
	in, out string
}

type corpusOutput struct {
	sha  string
	size uint64
	data []byte // all of it, or the first bytes
}

func (o corpusOutput) ref() string { return o.sha[:16] }

// makeCorpus makes every call.
func makeCorpus(t *testing.T, rt *launcher.Runtime, algorithms []Algorithm, worlds []int) *corpus {
	c := &corpus{head: []string{"device: " + rt.Devices()[0].Name, "driver: " + corpusDriver(rt)}, outputs: map[string]corpusOutput{}}
	for _, alg := range algorithms {
		for _, world := range worlds {
			t.Run(fmt.Sprintf("%v/%d", alg, world), func(t *testing.T) {
				r := newRig(t, newGroup(t, rt, Config{Ranks: world, Algorithm: alg}), 40<<10)
				for _, dt := range DTypes() {
					for i, s := range corpusSets(dt) {
						c.call(t, r, alg, dt, s, i)
					}
				}
			})
		}
	}
	return c
}

// call makes one, by turns in place and off the aligned addresses, and adds what it gave.
func (c *corpus) call(t *testing.T, r *rig, alg Algorithm, dt DType, s corpusSet, i int) {
	ctx, cancel := r.ctx()
	defer cancel()
	in := s.inputs(dt, r.g.World())
	key, sum := fmt.Sprintf("%v %v %d %s", alg, dt, r.g.World(), s.name), sha256.New()
	bufIn, bufOut, _, _ := r.views(trial{count: s.count, dt: dt, inOff: uint64(i) % 3, outOff: uint64(i) % 3, inPlace: i%4 == 3})
	for p := range in {
		sum.Write(in[p])
		stream := r.g.Rank(p).Stream()
		require.NoError(t, stream.Memset(r.arenas[p].out, poison))
		require.NoError(t, stream.CopyIn(ctx, bufIn[p], in[p]))
	}
	require.NoError(t, r.g.AllReduce(bufIn, bufOut, s.count, dt), key)
	r.sync()
	var first []byte
	for p := range in {
		got := make([]byte, len(in[p]))
		require.NoError(t, r.g.Rank(p).Stream().CopyOut(ctx, got, bufOut[p]))
		if p == 0 {
			first = got
		}
		require.True(t, bytes.Equal(first, got), "%s: rank %d has other bits than rank 0", key, p)
	}
	want := make([]byte, len(first))
	require.NoError(t, Reference(dt, want, in...))
	if d := differing(dt, first, want); d != "" {
		c.unlike = append(c.unlike, key+": "+d)
	}
	c.add(corpusCase{key: key, count: s.count, in: digits(sum)[:16]}, first)
}

func digits(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

func (c *corpus) add(k corpusCase, out []byte) {
	sum := sha256.Sum256(out)
	o := corpusOutput{sha: hex.EncodeToString(sum[:]), size: uint64(len(out)), data: out}
	if len(out) > corpusWhole {
		o.data = out[:corpusFirst]
	}
	k.out = o.ref()
	if _, ok := c.outputs[k.out]; !ok {
		c.order = append(c.order, k.out)
	}
	c.outputs[k.out] = o
	c.cases = append(c.cases, k)
}

func corpusDriver(rt *launcher.Runtime) string {
	s := rt.Info().Detail
	if b, err := os.ReadFile("/sys/module/nvidia/version"); err == nil && !rt.Info().Emulated {
		s += "; NVIDIA " + string(b)
	}
	return strings.Join(strings.Fields(s), " ")
}

// differing names the first element that differs: "" is none.
func differing(dt DType, got, want []byte) string {
	size := int(dt.Size())
	for at := 0; at+size <= min(len(got), len(want)); at += size {
		if !bytes.Equal(got[at:at+size], want[at:at+size]) {
			return fmt.Sprintf("element %d is %x (%v), not %x (%v)", at/size, got[at:at+size], dt.Load(got[at:]), want[at:at+size], dt.Load(want[at:]))
		}
	}
	return ""
}

func (c *corpus) find(key string) int {
	for i := range c.cases {
		if c.cases[i].key == key {
			return i
		}
	}
	return -1
}

// lend gives to the algorithms that came after the corpus what the card gave by another: all of them give the same bits.
func (c *corpus) lend(algorithms []Algorithm) (younger []Algorithm) {
	const lender = "oneshot-push "
	was := c.cases
	for _, alg := range algorithms {
		if slices.ContainsFunc(was, func(k corpusCase) bool { return strings.HasPrefix(k.key, alg.String()+" ") }) {
			continue
		}
		younger = append(younger, alg)
		for _, k := range was {
			if set, ok := strings.CutPrefix(k.key, lender); ok {
				k.key = alg.String() + " " + set
				c.cases = append(c.cases, k)
			}
		}
	}
	return younger
}

// compare says where here is not as the corpus.
func (c *corpus) compare(here *corpus) (found []string) {
	for _, k := range c.cases {
		i := here.find(k.key)
		if i < 0 {
			found = append(found, k.key+" is in the corpus, and was not made")
			continue
		}
		mine := here.cases[i]
		was, is := c.outputs[k.out], here.outputs[mine.out]
		switch {
		case mine.in != k.in || mine.count != k.count:
			found = append(found, k.key+": the inputs are others than the corpus was made from")
		case is.sha != was.sha || is.size != was.size:
			dt, _ := ParseDType(strings.Fields(k.key)[1])
			d := differing(dt, is.data, was.data)
			if d == "" {
				d = fmt.Sprintf("some element after byte %d differs", len(was.data))
			}
			found = append(found, k.key+": "+d)
		}
	}
	for _, k := range here.cases {
		if c.find(k.key) < 0 {
			found = append(found, k.key+" was made, and is not in the corpus")
		}
	}
	return found
}

func (c *corpus) write() []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, corpusHead)
	for _, h := range c.head {
		fmt.Fprintln(&b, h)
	}
	for _, k := range c.cases {
		fmt.Fprintf(&b, "case %s %d %s %s\n", k.key, k.count, k.in, k.out)
	}
	for _, ref := range c.order {
		o := c.outputs[ref]
		fmt.Fprintf(&b, "output %s %d %x\n", o.sha, o.size, o.data)
	}
	return b.Bytes()
}

func readCorpus(text []byte) (*corpus, error) {
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if lines[0] != corpusHead {
		return nil, fmt.Errorf("line 1: not a corpus of version 1")
	}
	c := &corpus{outputs: map[string]corpusOutput{}}
	for i, line := range lines[1:] {
		var err error
		switch w := strings.Fields(line); {
		case strings.HasPrefix(line, "device: "), strings.HasPrefix(line, "driver: "):
			c.head = append(c.head, line)
		case len(w) == 8 && w[0] == "case":
			err = c.readCase(w[1:])
		case len(w) == 4 && w[0] == "output":
			err = c.readOutput(w[1:])
		default:
			err = fmt.Errorf("neither a case nor an output")
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+2, err)
		}
	}
	for _, k := range c.cases {
		if o, ok := c.outputs[k.out]; !ok || o.size != k.count*corpusSize(k.key) {
			return nil, fmt.Errorf("%s: there is no output %s of %d elements", k.key, k.out, k.count)
		}
	}
	return c, nil
}

func corpusSize(key string) uint64 {
	dt, _ := ParseDType(strings.Fields(key)[1])
	return dt.Size()
}

func (c *corpus) readCase(w []string) error {
	if _, err := ParseAlgorithm(w[0]); err != nil {
		return err
	}
	if _, err := ParseDType(w[1]); err != nil {
		return err
	}
	count, err := strconv.ParseUint(w[4], 10, 32)
	c.cases = append(c.cases, corpusCase{key: strings.Join(w[:4], " "), count: count, in: w[5], out: w[6]})
	return err
}

func (c *corpus) readOutput(w []string) (err error) {
	o := corpusOutput{sha: w[0]}
	if o.size, err = strconv.ParseUint(w[1], 10, 32); err != nil {
		return err
	}
	if o.data, err = hex.DecodeString(w[2]); err != nil {
		return err
	}
	sum := sha256.Sum256(o.data)
	switch whole := uint64(len(o.data)) == o.size; {
	case len(o.sha) != 64:
		return fmt.Errorf("a hash of %d digits, not 64", len(o.sha))
	case whole && hex.EncodeToString(sum[:]) != o.sha:
		return fmt.Errorf("its bytes have another hash")
	case !whole && (len(o.data) != corpusFirst || o.size <= corpusWhole):
		return fmt.Errorf("%d of its %d bytes", len(o.data), o.size)
	}
	if _, ok := c.outputs[o.ref()]; !ok {
		c.order = append(c.order, o.ref())
	}
	c.outputs[o.ref()] = o
	return nil
}
