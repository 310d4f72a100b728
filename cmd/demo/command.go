package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/internal/nccl"
)

// app is one execution of the command line.
type app struct {
	stdout *sticky
	stderr io.Writer
	opt    options
	ran    bool // a command was found and its flags parsed
}

const examples = `  demo                                   all sizes 1KB to 1MB, all dtypes, GPUs or else the emulator
  demo --machine no-p2p                  an emulated machine without peer access: falls back to host
  demo --machine one-way                 peer access in one direction only: falls back to copy
  demo --machine read-garbage            peer access that lies: probed, found out, and not used
  demo --ranks 3 --sizes 1,7,4097,65538 --dtype bf16
  demo --sizes 1KB:64KB,1MB --iters 20   doubling from 1KB to 64KB, and 1MB
  demo --backend emu --devices 2 --ranks 8 --share
  demo --absent 2 --timeout 2s           rank 2 never arrives: who notices, and how it goes on
  demo --json | jq .ok`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "demo",
		Short: "All-reduce through peer kernels, on GPUs or emulated devices",
		Long: `demo sums buffers across ranks through Fenceline's peer kernels, checks every bit against the CPU and prints the times.
Without a GPU the same PTX runs on emulated devices, and the output says so. Without a command it does "demo run".

Exit codes: 0 all right, 1 a result is wrong or a fault was found, 2 wrong usage, 130 interrupted.`,
		Example:           examples,
		Args:              func(_ *cobra.Command, args []string) error { return noArgs("demo", args) },
		RunE:              a.started((*app).run),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	a.machineFlags(root)
	a.runFlags(root)

	run := &cobra.Command{
		Use:     "run",
		Short:   "Run, check and time the all-reduce (the default)",
		Example: examples,
		RunE:    a.started((*app).run),
	}
	a.runFlags(run)
	devices := &cobra.Command{
		Use:     "devices",
		Short:   "Print the backend, the devices and the P2P matrix",
		Example: "  demo devices\n  demo devices --machine one-way\n  demo devices --json",
		RunE:    a.started((*app).devices),
	}
	topology := &cobra.Command{
		Use:   "topo",
		Short: "Print the machine as nvidia-smi topo does, and what an all-reduce would do on it",
		Example: `  demo topo
  demo topo --machine dgx1-v100 --plan --ranks 0,1,2,3
  demo topo --machine write-only --plan
  demo topo --from machine.json --plan --bytes 64KB --dtype bf16
  demo topo --p2p r,w                    as nvidia-smi topo -p2p r, and -p2p w
  demo topo --svg machine.svg
  demo topo --save known-good.json
  demo topo --check known-good.json      what has changed since; 1 if anything did`,
		RunE: a.started((*app).topo),
	}
	a.topoFlags(topology)
	probe := &cobra.Command{
		Use:   "probe",
		Short: "Find out what peer access does between each two devices, and how fast it is",
		Long: `demo probe reads, writes, flags and counts across each ordered pair of devices, and measures latencies and bandwidths.
Real devices are probed in child processes, so that one that hangs costs only its probe. It exits with 1 when something
that is claimed does not work.

A pair that works takes a few seconds with its numbers, an emulated one much less. A probe that hangs takes --timeout and
a new child, 5 × --timeout and 3 s at worst, where the driver itself does not come back: eight real devices none of which
can read its peers take about four minutes. Emulated pairs are probed several at once, so the same machine takes 12 s.

Bandwidths and latencies of kernels are taken with peer access only: without it a kernel reaches no memory but its own device's,
and that is the diagonal of the same matrices (--virtual).`,
		Example: `  demo probe
  demo probe --machine read-garbage
  demo probe --virtual --numbers=false --json`,
		RunE: a.started((*app).probe),
	}
	a.probeFlags(probe)
	child := &cobra.Command{Use: childCommand, Hidden: true, Short: "Probe what stdin says", RunE: a.started((*app).probeChild)}
	doctor := &cobra.Command{
		Use:   "doctor",
		Short: "Say what keeps GPUs, or peer access between them, from working, and what to do about it",
		Long: `demo doctor looks at this host, its driver and its environment, and names the first thing to mend. It changes nothing.
It exits with 1 when something fails.`,
		Example: `  demo doctor
  demo doctor --sysroot copied-root
  demo doctor --backend emu --json`,
		RunE: a.started((*app).doctor),
	}
	a.doctorFlags(doctor)
	version := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program and of its kernels",
		Example: "  demo version",
		RunE:    a.started((*app).version),
	}
	for _, c := range []*cobra.Command{run, devices, topology, probe, child, doctor, a.checkCommand(), a.stressCommand(), a.benchCommand(), a.tuneCommand(), a.ncclCommand(), version} {
		c.Args = func(c *cobra.Command, args []string) error { return noArgs(c.CommandPath(), args) }
		root.AddCommand(c)
	}
	return root
}

// started notes that the command line itself was in order, and refuses an environment that is not: a variable that is
// misspelt must not be ignored in silence. The doctor reports it among its findings, and a child's parent has looked.
func (a *app) started(f func(*app, *cobra.Command) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error {
		a.ran = true
		if c.Name() != "doctor" && c.Name() != childCommand && c.Name() != ncclChildCommand {
			if _, err := readKnobs(); err != nil {
				return err
			}
		}
		return f(a, c)
	}
}

func noArgs(path string, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if path == "demo" {
		return fmt.Errorf("unknown command %q, there are run, devices, topo, probe, doctor, check, stress, bench, tune and version", args[0])
	}
	return fmt.Errorf("%s takes no argument %q", path, args[0])
}

// machineFlags say what to open. Every command has them.
func (a *app) machineFlags(c *cobra.Command) {
	f, o := c.PersistentFlags(), &a.opt
	f.StringVar(&o.backend, "backend", "auto", "auto, cuda or emu; auto takes GPUs where there are any")
	f.StringVar(&o.machine, "machine", "", "emulated machine: nvlink, pcie, nvlink-8, dgx1-v100, pcie-2socket, mig; with faults one-way, no-p2p, write-only, read-garbage, lying; or file:PATH, a saved one or a paste of nvidia-smi topo -m (default nvlink)")
	f.IntVar(&o.devices, "devices", 0, "number of emulated devices (default: the machine's own)")
	f.BoolVar(&o.json, "json", false, "print one JSON document instead of text")
}

func (a *app) runFlags(c *cobra.Command) {
	f, o := c.Flags(), &a.opt
	f.IntVar(&o.ranks, "ranks", 0, fmt.Sprintf("world size, 1 to %d (default: one rank per device; 4 on the emulator, or up to 8 with --machine; 4 that share it on a single device)", flags.MaxRanks))
	f.BoolVar(&o.share, "share", false, "allow several ranks on one device")
	f.StringSliceVar(&o.sizes, "sizes", []string{defaultSizes}, "message sizes: a plain number counts elements; with B, KB, MB or GB (also KiB, MiB, GiB; all powers of 1024) it is bytes, a multiple of the element size; A:B doubles from A up to B")
	f.StringSliceVar(&o.dtypes, "dtype", []string{"f32", "f16", "bf16"}, "element types")
	f.IntVar(&o.iters, "iters", 0, fmt.Sprintf("timed repetitions (default %d emulated, fewer where they take long; %d on GPUs)", emulatedIters, gpuIters))
	f.StringVar(&o.algo, "algo", "auto", "auto, "+strings.Join(algorithmNames(), ", "))
	f.StringVar(&o.table, "table", "", "auto goes by this table of demo tune")
	f.StringVar(&o.library, "nccl", nccl.DefaultLibrary, "the library of --algo nccl")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the payloads and of the emulator's schedule")
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "longest wait for the result of a call; the group itself gives a rank up after three quarters of it (1s less, if that is later), so that its error comes within it")
	f.StringVar(&o.probing, "probe", probeAuto, "auto, always or never: check first that peer access does what it claims; auto remembers what it found of GPUs, and spares emulated NVLinks")
	f.IntVar(&o.absent, "absent", 0, "demonstrate a fault: this rank never arrives")
	f.SortFlags = false
}
