package main

import (
	"cmp"
	"fmt"
	"math/bits"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/flags"
)

// benchOptions are the flags of `demo bench` as given; `demo tune` shares those that say what is measured.
type benchOptions struct {
	ranks, algos, dtypes  []string
	minBytes, maxBytes    string
	direct                string
	around                bool
	stepFactor, stepBytes string
	iters, warmup         int
	rounds, replays       int
	table, plot           string
	compare, library      string
	beside                string
	floor                 bool
}

// benchSettings are the checked options.
type benchSettings struct {
	settings
	worlds          []int // empty: by the machine
	auto            bool
	algorithms      []allreduce.Algorithm // to be measured beside auto
	every           bool                  // --algo all: those of algorithms that the machine cannot take are left out
	rows            []row
	sized           bool   // the sizes were asked for
	direct          uint64 // not 0: the buffers are registered, and one-shot pull reads inputs directly from this size on
	iters, warmup   int
	itersGiven      bool
	rounds, replays int // 0: the default
	plot            string
	compare         bool
	beside          *besideReport
	floor           bool
}

const (
	benchIters    = 200 // calls of a captured graph
	benchReplays  = 10  // timed replays of a graph in one round
	benchRounds   = 3
	maxReplays    = 1000
	maxSizes      = 200 // of one element type
	compareNCCL   = "nccl"
	everyAlgo     = "all"
	plotFormats   = ".png, .svg"
	benchMin      = "1K"
	benchMax      = "1M"
	benchEmuBytes = 64 << 10 // the largest size on the emulator, unless asked otherwise
)

// measured are the flags of both commands. replays is the default number of them.
func (o *benchOptions) measured(a *app, c *cobra.Command, replays int) {
	f := c.Flags()
	f.StringSliceVar(&o.ranks, "ranks", nil, fmt.Sprintf("world sizes, each 1 to %d (default 2, 4 and 8, as far as there are devices; all of them on a single GPU, 2 and 4 on an emulated one)", flags.MaxRanks))
	f.BoolVar(&a.opt.share, "share", false, "allow several ranks on one device (a single device is shared without it)")
	f.StringVarP(&o.minBytes, "minbytes", "b", "", "smallest message in bytes, with K, M or G for powers of 1024 (default "+benchMin+")")
	f.StringVarP(&o.maxBytes, "maxbytes", "e", "", "largest message in bytes (default "+benchMax+", emulated 64K; --minbytes where that is larger)")
	f.StringVarP(&o.stepFactor, "stepfactor", "f", "2", "each size is this many times the one before")
	f.StringVarP(&o.stepBytes, "stepbytes", "i", "", "instead of -f, each size is this many bytes more than the one before")
	f.BoolVar(&o.around, "around", false, "each size also with one element less and one more")
	f.StringVar(&o.direct, "direct", "", "register the buffers: peers read inputs where they are, with twoshot-pull always, with oneshot-pull out of place from this size on; 1: always (default: not registered)")
	f.IntVarP(&o.iters, "iters", "n", 0, fmt.Sprintf("calls in a captured graph (default %d, fewer where they take long)", benchIters))
	f.IntVarP(&o.warmup, "warmup", "w", 1, "replays of the graph ahead of those that are timed")
	f.IntVar(&o.replays, "replays", 0, fmt.Sprintf("timed replays in a round (default %d, fewer where they take long)", replays))
	f.StringSliceVarP(&o.dtypes, "dtype", "d", []string{"bf16"}, "element types: f32, f16, bf16, or all")
	f.Uint64Var(&a.opt.seed, "seed", 1, "seed of the payloads and of the emulator's schedule")
	f.DurationVar(&a.opt.timeout, "timeout", 10*time.Second, "longest wait for the result of a call")
}

// check checks all that can be checked without a machine.
func (o *benchOptions) check(a *app, given func(string) bool) (*benchSettings, error) {
	basic, err := a.opt.checkMachine(given)
	if err != nil {
		return nil, err
	}
	s := &benchSettings{settings: basic, iters: o.iters, itersGiven: given("iters"), warmup: o.warmup, rounds: o.rounds, replays: o.replays, floor: o.floor}
	s.share, s.seed, s.timeout = a.opt.share, a.opt.seed, a.opt.timeout
	if s.knobs, err = readKnobs(); err != nil {
		return nil, err
	}
	if err := checkTimeout(s.timeout); err != nil {
		return nil, err
	}
	switch {
	case given("iters") && (o.iters < 1 || o.iters > maxIters):
		return nil, usagef("--iters", fmt.Sprint(o.iters), "use 1 to %d", maxIters)
	case o.warmup < 0 || o.warmup > maxReplays:
		return nil, usagef("--warmup", fmt.Sprint(o.warmup), "use 0 to %d", maxReplays)
	case given("replays") && (o.replays < 1 || o.replays > maxReplays):
		return nil, usagef("--replays", fmt.Sprint(o.replays), "use 1 to %d", maxReplays)
	case given("rounds") && (o.rounds < 1 || o.rounds > maxReplays):
		return nil, usagef("--rounds", fmt.Sprint(o.rounds), "use 1 to %d", maxReplays)
	}
	for _, step := range []error{o.checkWorlds(s), o.checkAlgos(s), o.checkFiles(s)} {
		if step != nil {
			return nil, step
		}
	}
	dtypes := o.dtypes
	if slices.Equal(dtypes, []string{everyAlgo}) {
		dtypes = []string{"f32", "f16", "bf16"}
	}
	if s.dtypes, err = parseDTypes(dtypes); err != nil {
		return nil, err
	}
	return s, o.checkSizes(s, given)
}

func (o *benchOptions) checkWorlds(s *benchSettings) error {
	for _, text := range o.ranks {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > flags.MaxRanks {
			return usagef("--ranks", text, "use numbers from 1 to %d, such as 2,4,8", flags.MaxRanks)
		}
		if !slices.Contains(s.worlds, n) {
			s.worlds = append(s.worlds, n)
		}
	}
	return nil
}

// checkAlgos reads --algo. What is stated there wins over FENCELINE_ALGO.
func (o *benchOptions) checkAlgos(s *benchSettings) error {
	if len(o.algos) == 0 {
		s.auto = true
		return nil
	}
	s.knobs.Algorithm = allreduce.Auto
	for _, name := range o.algos {
		name = strings.TrimSpace(name)
		if strings.EqualFold(name, everyAlgo) {
			s.auto, s.every, s.algorithms = true, true, allreduce.Algorithms()[1:]
			if len(o.algos) > 1 {
				return usagef("--algo", name, "it names every algorithm, and others stand beside it: use it alone")
			}
			return nil
		}
		alg, err := allreduce.ParseAlgorithm(name)
		switch {
		case err != nil:
			return &usageError{Flag: "--algo", Err: fmt.Errorf("%w; or all", err)}
		case alg == allreduce.Auto:
			s.auto = true
		case !slices.Contains(s.algorithms, alg):
			s.algorithms = append(s.algorithms, alg)
		}
	}
	return nil
}

func (o *benchOptions) checkFiles(s *benchSettings) (err error) {
	if o.plot != "" {
		switch ext := strings.ToLower(filepath.Ext(o.plot)); ext {
		case ".png", ".svg":
		default:
			return usagef("--plot", o.plot, "the name says what to draw: end it in one of %s", plotFormats)
		}
		if err := checkTarget("--plot", o.plot); err != nil {
			return err
		}
		s.plot = o.plot
	}
	s.library = o.library
	switch o.compare {
	case "":
	case compareNCCL:
		if !s.every && slices.Contains(s.algorithms, allreduce.NCCL) {
			return usagef("--compare", o.compare, "--algo nccl measures the same library: leave one of them out")
		}
		s.compare = true
	default:
		return usagef("--compare", o.compare, "there is nothing else to compare with: use nccl")
	}
	if o.beside != "" {
		if s.beside, err = readBeside(o.beside); err != nil {
			return err
		}
	}
	return s.readTable(o.table)
}

// checkSizes makes the rows.
func (o *benchOptions) checkSizes(s *benchSettings, given func(string) bool) error {
	from, err := parseBytes("--minbytes", cmp.Or(o.minBytes, benchMin))
	if err != nil {
		return err
	}
	to, err := parseBytes("--maxbytes", cmp.Or(o.maxBytes, benchMax))
	if err != nil {
		return err
	}
	if o.direct != "" {
		if s.direct, err = parseBytes("--direct", o.direct); err != nil {
			return err
		}
	}
	s.sized = o.minBytes != "" || o.maxBytes != ""
	if o.maxBytes == "" {
		to = max(to, from)
	}
	if o.minBytes == "" {
		from = min(from, to)
	}
	if from > to {
		return usagef("--minbytes", o.minBytes, "larger than the largest message, %d bytes: raise --maxbytes", to)
	}
	factor, err := strconv.ParseUint(o.stepFactor, 10, 31)
	if err != nil || factor < 2 {
		return usagef("--stepfactor", o.stepFactor, "use a whole number from 2")
	}
	next := func(n uint64) uint64 { return n * factor }
	if o.stepBytes != "" {
		if given("stepfactor") {
			return usagef("--stepbytes", o.stepBytes, "sizes cannot grow by a factor and by a number of bytes: leave out one of -f and -i")
		}
		step, err := parseBytes("--stepbytes", o.stepBytes)
		if err != nil {
			return err
		}
		next = func(n uint64) uint64 { return n + step }
	}
	for _, dt := range s.dtypes {
		if from < dt.Size() {
			return usagef("--minbytes", o.minBytes, "no element of %v fits: use %d or more", dt, dt.Size())
		}
		list := 0
		for n := from; n <= to; n = next(n) { // neither factor nor step can wrap: both are below 2^31
			whole := n / dt.Size() // as nccl-tests does, sizes are cut to whole elements
			counts := []uint64{whole}
			if o.around {
				counts = []uint64{max(whole, 2) - 1, whole, whole + 1}
			}
			for _, count := range counts {
				w := row{dt, count}
				if k := len(s.rows); k > 0 && s.rows[k-1].dtype == dt && s.rows[k-1].count >= count {
					continue
				}
				if list++; list > maxSizes {
					return usagef("--stepbytes", o.stepBytes, "more than %d sizes: use larger steps", maxSizes)
				}
				s.rows = append(s.rows, w)
			}
		}
	}
	return nil
}

// emulatedSizes leaves out what takes the emulator long, unless it was asked for.
func (s *benchSettings) emulatedSizes() {
	if !s.sized {
		s.rows = slices.DeleteFunc(s.rows, func(r row) bool { return r.bytes() > benchEmuBytes })
	}
}

// parseBytes reads a size as nccl-tests does: bytes, with K, M or G for powers of 1024. KB and KiB are the same.
func parseBytes(flag, text string) (uint64, error) {
	t := strings.ToUpper(strings.TrimSpace(text))
	t = strings.TrimSuffix(strings.TrimSuffix(t, "B"), "I")
	shift := 0
	if t != "" {
		if k := strings.IndexByte("KMG", t[len(t)-1]); k >= 0 {
			t, shift = t[:len(t)-1], 10*(k+1)
		}
	}
	n, err := strconv.ParseUint(t, 10, 64)
	hi, lo := bits.Mul64(n, 1<<shift)
	switch {
	case err != nil:
		return 0, usagef(flag, text, "not a size: use bytes such as 512, 8K, 1M or 1G")
	case hi != 0 || lo > maxMessage:
		return 0, usagef(flag, text, "larger than a message of this program may be: use at most %d bytes (1G)", maxMessage)
	case lo == 0:
		return 0, usagef(flag, text, "there is nothing to sum: use more than 0")
	}
	return lo, nil
}
