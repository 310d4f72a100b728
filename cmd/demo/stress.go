package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/flags/check/litmus"
	"github.com/fenceline/fenceline/flags/stress"
	"github.com/fenceline/fenceline/launcher"
)

// stressOptions are the flags of `demo stress` beside those that it shares with runs.
type stressOptions struct {
	duration, litmusTime     time.Duration
	maxBytes, delays, load   string
	control, litmus, without bool
	litmusFiles              []string
}

// stressSettings are the checked options.
type stressSettings struct {
	settings
	stressOptions
	maxBytes         uint64
	delays           bool
	loadSM, loadCopy bool
	patch            func(file string, ptx []byte) ([]byte, error) // of tests
}

// maxConnections is how many queues CUDA gives a device's streams. It is read when CUDA starts.
const maxConnections = "CUDA_DEVICE_MAX_CONNECTIONS"

// stressSabotage changes every kernel under test. It is for tests of this command.
var stressSabotage func(file string, ptx []byte) ([]byte, error)

func (a *app) stressCommand() *cobra.Command {
	o := &stressOptions{}
	c := &cobra.Command{
		Use:   "stress",
		Short: "Make random calls for long, with delays and load, check every bit, and run litmus tests on the device",
		Long: `demo stress makes calls of random size, type, alignment and payload, in batches and graphs, while random pauses in the kernels
pull ranks, blocks and warps apart, other kernels and copies load the devices, and inputs are overwritten right behind
the calls that read them. Every bit is compared with the CPU. Peer access is probed first as bench does, and what was found not
to work is left alone by kernels, load and litmus tests. Then litmus tests run on the devices themselves. With --control,
kernels whose synchronisation was taken out run too: a test that cannot see those would prove little.
It exits with 1 when a bit is wrong or a forbidden outcome was seen; the control does not count.`,
		Example: `  demo stress
  demo stress --duration 8m --control
  demo stress --algo copy --load none --delays off --no-litmus
  demo stress --duration 2s --litmus-files 'flags/check/testdata/*.litmus' --json`,
		RunE: a.started(func(a *app, c *cobra.Command) error { return a.stress(c, o) }),
	}
	f := c.Flags()
	f.DurationVar(&o.duration, "duration", 30*time.Second, "how long to make calls")
	f.IntVar(&a.opt.ranks, "ranks", 0, "world size (default: one rank per device, 4 on the emulator; 4 that share it on a single device)")
	f.BoolVar(&a.opt.share, "share", false, "allow several ranks on one device")
	f.StringVar(&a.opt.algo, "algo", "auto", "auto, "+strings.Join(algorithmNames(), ", ")+"; with auto, all that can work take turns")
	f.Uint64Var(&a.opt.seed, "seed", 1, "seed of the calls, the payloads and the pauses")
	f.StringVar(&o.maxBytes, "max-bytes", "", "largest message (default 1MB, emulated 8KB)")
	f.StringVar(&o.delays, "delays", "on", "on or off: random pauses in the kernels and before them")
	f.StringVar(&o.load, "load", "both", "none, sm, copy or both: other work on the devices")
	f.BoolVar(&o.control, "control", false, "run kernels without their synchronisation too, which should go wrong")
	f.BoolVar(&o.litmus, "litmus", true, "run litmus tests on the devices")
	f.BoolVar(&o.without, "no-litmus", false, "the same as --litmus=false")
	f.DurationVar(&o.litmusTime, "litmus-time", 20*time.Second, "how long to run litmus tests, all together")
	f.StringSliceVar(&o.litmusFiles, "litmus-files", nil, "more litmus tests: files, or patterns")
	f.DurationVar(&a.opt.timeout, "timeout", 10*time.Second, "longest wait for a rank")
	f.SortFlags = false
	return c
}

func (o *stressOptions) check(s settings) (*stressSettings, error) {
	set := &stressSettings{settings: s, stressOptions: *o}
	switch {
	case o.duration <= 0 || o.duration > 7*24*time.Hour:
		return nil, usagef("--duration", o.duration.String(), "use more than 0 and at most a week, such as 30s")
	case o.litmusTime <= 0:
		return nil, usagef("--litmus-time", o.litmusTime.String(), "use more than 0, such as 20s, or --no-litmus")
	case s.knobs.Algorithm == allreduce.NCCL:
		return nil, usagef("FENCELINE_ALGO", s.knobs.Algorithm.String(), "its bits are not the reference's, and there is no fence of ours in it to stress: unset it")
	case o.delays != "on" && o.delays != "off":
		return nil, usagef("--delays", o.delays, "use on or off")
	}
	set.delays = o.delays == "on"
	switch o.load {
	case "none":
	case "sm":
		set.loadSM = true
	case "copy":
		set.loadCopy = true
	case "both":
		set.loadSM, set.loadCopy = true, true
	default:
		return nil, usagef("--load", o.load, "use none, sm, copy or both")
	}
	set.litmus = o.litmus && !o.without
	if o.maxBytes != "" {
		size, err := parseSize(o.maxBytes, o.maxBytes)
		if err != nil || size.n < 64 || size.n > 64<<20 {
			return nil, usagef("--max-bytes", o.maxBytes, "use a number of bytes from 64 to 64MB, such as 256KB")
		}
		set.maxBytes = size.n / 16 * 16
	}
	return set, nil
}

// stresser is one run.
type stresser struct {
	set  *stressSettings
	rt   *launcher.Runtime
	rep  stressReport
	w    *stressWork
	rng  *rand.Rand
	deck []allreduce.Algorithm // the direct ones that are still to come before any comes again
	beat *heartbeat
	lost bool // a device, in the control
}

// stress is `demo stress`.
func (a *app) stress(c *cobra.Command, o *stressOptions) (err error) {
	basic, err := a.opt.checkRun(c.Flags().Changed)
	if err != nil {
		return err
	}
	set, err := o.check(basic)
	if err != nil {
		return err
	}
	tests, err := litmusTests(set)
	if err != nil {
		return err
	}
	defer moreConnections()()
	rt, err := open(basic)
	if err != nil {
		return err
	}
	r := &stresser{set: set, rt: rt, rng: rand.New(rand.NewPCG(set.seed, 0x57))}
	defer func() {
		if r.lost { // by the control: there is nothing left to free
			_ = rt.Close()
			return
		}
		closeRuntime(rt, &err)
	}()
	if r.rep.machineReport, err = describe(rt); err == nil {
		err = r.rep.stated(basic)
	}
	if err != nil {
		return err
	}
	emulated := r.rep.Backend.Emulated
	if r.rep.World, err = set.place(len(r.rep.Devices), emulated); err != nil {
		return err
	}
	if err := r.selectable(); err != nil {
		return err
	}
	if err := r.examine(c.Context()); err != nil {
		return err
	}
	if set.maxBytes == 0 {
		set.maxBytes = 1 << 20
		if emulated {
			set.maxBytes = 8 << 10
		}
	}
	set.patch = stressSabotage
	r.rep.start(set)
	if !a.opt.json {
		r.rep.head(a.stdout)
	}
	r.beat = newHeartbeat(a.stderr, set.duration)
	err = r.all(c.Context(), tests)
	r.beat.close()
	if c.Context().Err() != nil && err == nil {
		err = errInterrupted
	}
	r.rep.finish(err)
	if a.opt.json {
		if werr := writeJSON(a.stdout, &r.rep); werr != nil {
			return errors.Join(err, werr)
		}
	} else {
		r.rep.print(a.stdout)
	}
	if err == nil && !r.rep.OK {
		return errReported
	}
	return err
}

// examine probes what the ranks would rely on, so that kernels, copies and litmus tests go by what was seen.
func (r *stresser) examine(ctx context.Context) (err error) {
	knobs := r.set.knobs
	knobs.Algorithm = allreduce.Auto // rounds have algorithms of their own
	if noPeers(r.set.algorithm, knobs) && !r.set.litmus {
		return nil
	}
	r.rep.Measurement, err = r.set.settings.check(ctx, r.rep.machine, r.rep.World.Devices, false, true)
	if err := afterProbe(ctx, err, ""); err != nil {
		return err
	}
	return r.selectable()
}

// selectable refuses an algorithm that was asked for by name and cannot work.
func (r *stresser) selectable() error {
	if r.set.algorithm == allreduce.Auto {
		return nil
	}
	if _, err := allreduce.Select(r.set.selectInput(&r.rep.machineReport, &r.rep.World, r.rep.Measurement, r.set.algorithm)); err != nil {
		return &usageError{Flag: "--algo", Err: err}
	}
	return nil
}

// all runs the calls, the litmus tests and the control, each as far as it is wanted and the run not interrupted.
func (r *stresser) all(ctx context.Context, tests []*litmus.Test) (err error) {
	if r.w, err = newStressWork(r.rt, r.rep.World.Devices, r.set); err != nil {
		return err
	}
	hung := false
	defer func() {
		if !hung && !r.lost {
			err = errors.Join(err, r.w.close())
		}
	}()
	load, err := startLoad(r.rt, &r.rep, r.set)
	if err != nil {
		return err
	}
	err = r.calls(ctx)
	hung = errors.Is(err, allreduce.ErrBusy)
	if lerr := load.close(); lerr != nil {
		err = errors.Join(err, fmt.Errorf("load: %w", lerr))
	}
	if err == nil && ctx.Err() == nil && r.set.litmus {
		err = r.litmus(ctx, tests)
	}
	if err == nil && ctx.Err() == nil && r.set.control {
		err = r.control(ctx)
	}
	return err
}

// calls makes rounds of calls until the time is up, each with a new group and new pauses.
func (r *stresser) calls(ctx context.Context) error {
	end := time.Now().Add(r.set.duration)
	length := min(max(r.set.duration/8, 500*time.Millisecond), 30*time.Second)
	for i := 0; ctx.Err() == nil && time.Until(end) > 0; i++ {
		round := r.draw(i)
		cfg := r.config(&round)
		if round.DelayOneIn > 0 {
			cfg.Patch = r.delayed(&round, cfg.Patch)
		}
		err := r.round(ctx, cfg, &round, length, end, &r.rep.Total)
		if errors.Is(err, allreduce.ErrNoPlan) && r.set.algorithm == allreduce.Auto && round.Algorithm != allreduce.Auto {
			continue // this machine cannot do it
		}
		if err != nil {
			r.rep.Rounds = append(r.rep.Rounds, round)
			return fmt.Errorf("round %d, %v: %w", i, round.Algorithm, err)
		}
		r.rep.Rounds = append(r.rep.Rounds, round)
	}
	return nil
}

// round makes calls on one group for a length of time, but not beyond end; two batches at least.
func (r *stresser) round(ctx context.Context, cfg allreduce.Config, round *stressRound, length time.Duration, end time.Time, total *stressTally) (err error) {
	start := time.Now()
	var t stressTally
	defer func() {
		round.fill(&t, time.Since(start))
		total.add(&t)
	}()
	w := r.w
	if err := w.open(cfg); err != nil {
		return err
	}
	if plan, perr := w.g.Plan(r.set.maxBytes/4, allreduce.F32); perr == nil {
		round.Algorithm, round.Grid = plan.Algorithm, fmt.Sprintf("%dx%d", plan.Blocks, plan.Threads)
	}
	start = time.Now() // without what the compiler takes
	defer func() { err = errors.Join(err, w.others(err), w.shut()) }()
	collect := func(s *stressSet) error {
		var one stressTally
		err := w.collect(s, &one)
		t.add(&one)
		r.beat.add(&one)
		return err
	}
	for i := 0; i < 2 || ctx.Err() == nil && time.Since(start) < length && time.Now().Before(end); i++ {
		if err := w.queue(context.WithoutCancel(ctx), w.sets[i%2]); err != nil {
			return err
		}
		if err := collect(w.sets[(i+1)%2]); err != nil {
			return err
		}
	}
	for _, s := range w.sets { // one of them is still under way
		if err := collect(s); err != nil {
			return err
		}
	}
	sync, cancel := context.WithTimeout(context.Background(), r.set.timeout+stressPatience)
	defer cancel()
	if err := w.g.Sync(sync); err != nil {
		return err
	}
	return w.inputs(&t)
}

// draw chooses what varies from round to round.
func (r *stresser) draw(i int) stressRound {
	round := stressRound{Algorithm: r.set.algorithm, DirectBytes: []uint64{1, 64 << 10, 1 << 30}[r.rng.IntN(3)],
		PieceBytes: r.set.maxBytes, FirstEpoch: []uint32{0, 1<<20 - 100, 1<<31 - 100, ^uint32(0) - 100}[r.rng.IntN(4)]}
	if r.rng.IntN(3) == 0 {
		round.PieceBytes = max(64, r.set.maxBytes/4/16*16)
	}
	if r.set.algorithm == allreduce.Auto {
		round.Algorithm = r.next(i)
	}
	if r.set.delays && i%4 != 2 {
		round.DelayOneIn, round.DelayMaxNS, round.DelaySeed = 2<<r.rng.IntN(6), 256<<r.rng.IntN(7), r.rng.Uint32()
	}
	return round
}

// next is the algorithm of round i: each direct one comes before one comes again, and every fourth round is copy or host.
func (r *stresser) next(i int) allreduce.Algorithm {
	if i%4 == 3 {
		return []allreduce.Algorithm{allreduce.Copy, allreduce.Host}[i/4%2]
	}
	if len(r.deck) == 0 {
		for _, a := range allreduce.Algorithms() {
			if a.Direct() {
				r.deck = append(r.deck, a)
			}
		}
		r.rng.Shuffle(len(r.deck), func(a, b int) { r.deck[a], r.deck[b] = r.deck[b], r.deck[a] })
	}
	a := r.deck[0]
	r.deck = r.deck[1:]
	return a
}

func (r *stresser) config(round *stressRound) allreduce.Config {
	w := r.rep.World
	return allreduce.Config{Ranks: w.Ranks, Devices: w.Devices, Share: w.Shared, Algorithm: round.Algorithm, MaxBytes: round.PieceBytes,
		DirectBytes: round.DirectBytes, Timeout: min(r.set.timeout, maxTimeout), FirstEpoch: round.FirstEpoch, Machine: r.rep.machine, Measurement: r.rep.Measurement,
		Knobs: r.set.knobs, Patch: r.set.patch}
}

// delayed puts the round's pauses behind another patch.
func (r *stresser) delayed(round *stressRound, first func(string, []byte) ([]byte, error)) func(string, []byte) ([]byte, error) {
	d := stress.Delays{Seed: round.DelaySeed, OneIn: round.DelayOneIn, MaxNS: round.DelayMaxNS}
	return func(file string, ptx []byte) (out []byte, err error) {
		if first != nil {
			if ptx, err = first(file, ptx); err != nil {
				return nil, err
			}
		}
		out, n, err := d.Patch(file, ptx)
		round.DelayPlaces = max(round.DelayPlaces, n)
		return out, err
	}
}
