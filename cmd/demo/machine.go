package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
	"github.com/fenceline/fenceline/topo/nvml"
)

// opened is told of each runtime, in tests.
var opened func(rt *launcher.Runtime)

// open opens the runtime that s asks for.
func open(s settings) (*launcher.Runtime, error) {
	cfg := launcher.Config{Backend: s.backend, Machine: s.machine, Devices: s.devices, WaitLimit: s.timeout}
	if s.backend != launcher.CUDA {
		cfg.Seed = s.seed // the emulator's; a real device has no use for it
	}
	rt, err := launcher.Open(cfg)
	switch {
	case err == nil && s.devices != 0 && !rt.Info().Emulated:
		return nil, errors.Join(usagef("--devices", fmt.Sprint(s.devices), "counts emulated devices, and GPUs were found: leave it out, or use --backend emu"), rt.Close())
	case err == nil:
		if opened != nil {
			opened(rt)
		}
		return rt, nil
	case errors.Is(err, launcher.ErrInvalidValue) && s.backend != launcher.CUDA && (s.machine != "" || s.devices != 0):
		return nil, &usageError{Flag: "--machine, --devices", Err: err}
	case s.backend == launcher.CUDA:
		return nil, fmt.Errorf("%w: or use --backend emu, which needs no GPU", err)
	}
	return nil, err
}

// closeRuntime adds a failure to close to err, and otherwise leaves it as it is.
func closeRuntime(rt *launcher.Runtime, err *error) {
	if cerr := rt.Close(); cerr != nil {
		*err = errors.Join(*err, cerr)
	}
}

// readMachine reads the machine: from the driver, and from NVML where there is one.
func readMachine(rt *launcher.Runtime) (*topo.Machine, error) {
	m, err := topo.FromDriver(rt.Driver())
	if err != nil {
		return nil, err
	}
	if !m.Emulated {
		if err := nvml.Augment(m); err != nil {
			m.Note("not all that NVML knows is shown: %v", err)
		}
	}
	return m, nil
}

// filePrefix ahead of a path makes an emulated machine of that file.
const filePrefix = "file:"

// stated adds to an emulated machine that comes from a file what NVML adds to a real one: the codes of reading, writing
// and the like, as the file states them. What the file leaves open the emulator had to decide, and a note says how.
func stated(s settings, m *topo.Machine) error {
	path, ok := strings.CutPrefix(s.machine, filePrefix)
	if !ok || !m.Emulated {
		return nil
	}
	from, err := topo.ReadFile(path)
	if err != nil {
		return err
	}
	if len(from.Devices) < len(m.Devices) {
		return fmt.Errorf("%s: it has %d devices, and had %d when it was opened: try again", path, len(from.Devices), len(m.Devices))
	}
	open, present := 0, 0
	for i, row := range m.Pairs {
		for j := range row {
			if i == j {
				continue
			}
			p, f := &row[j], from.Pairs[i][j]
			p.Read, p.ReadCode, p.Write, p.WriteCode = f.Read, f.ReadCode, f.Write, f.WriteCode
			p.AtomicsCode, p.NVLinkCode, p.PropertyCode, p.NVLinkVersion = f.AtomicsCode, f.NVLinkCode, f.PropertyCode, f.NVLinkVersion
			if f.CanRead() == topo.Unknown && f.CanWrite() == topo.Unknown {
				open++
				if p.Access == topo.Yes {
					present++
				}
			}
		}
	}
	if open > 0 {
		m.Note("the file states no peer access for %d ordered pair(s), and an emulated machine needs an answer: "+
			"%d have it here, over NVLink or inside a NUMA node, and %d are emulated as absent; demo topo --from leaves them open", open, present, open-present)
	}
	return nil
}

// stated is stated for a report.
func (r *machineReport) stated(s settings) error {
	err := stated(s, r.machine)
	r.Notes = r.machine.Notes
	return err
}

// describe reads the machine for a report.
func describe(rt *launcher.Runtime) (machineReport, error) {
	m, err := readMachine(rt)
	if err != nil {
		return machineReport{}, err
	}
	return machineReport{Version: reportVersion, Backend: rt.Info(), Devices: m.Devices, P2P: m.Pairs, Notes: m.Notes, machine: m}, nil
}

// devices is `demo devices`.
func (a *app) devices(c *cobra.Command) (err error) {
	s, err := a.opt.checkMachine(c.Flags().Changed)
	if err != nil {
		return err
	}
	rt, err := open(s)
	if err != nil {
		return err
	}
	defer closeRuntime(rt, &err)
	rep, err := describe(rt)
	if err == nil {
		err = rep.stated(s)
	}
	if err != nil {
		return err
	}
	if a.opt.json {
		return writeJSON(a.stdout, rep)
	}
	return rep.print(a.stdout)
}

// print writes the backend, the devices, the P2P matrix and, where known, the links.
func (r *machineReport) print(w io.Writer) error {
	return r.write(w, r.machine.WriteMatrix, r.machine.WriteLinks)
}

// brief is print without the legends, which stand in the way of results.
func (r *machineReport) brief(w io.Writer) error {
	return r.write(w, r.machine.WriteBareMatrix, r.machine.WriteBareLinks)
}

func (r *machineReport) write(w io.Writer, matrix, links func(io.Writer) error) error {
	b := r.Backend
	fmt.Fprintf(w, "Backend: %s (%s), CUDA API %d.%d\n", b.Backend, b.Detail, b.DriverVersion/1000, b.DriverVersion%1000/10)
	fmt.Fprintf(w, "Why:     %s\n", b.Why)
	if b.Emulated {
		fmt.Fprintln(w, "EMULATED: no GPU executed anything; times are of the emulator and mean nothing for hardware")
	}
	fmt.Fprint(w, "\nDevices\n")
	if err := r.machine.WriteDevices(w); err != nil {
		return err
	}
	fmt.Fprint(w, "\nP2P: can the row's device reach the column's memory?\n")
	if err := matrix(w); err != nil {
		return err
	}
	if r.linked() {
		fmt.Fprint(w, "\nLinks\n")
		if err := links(w); err != nil {
			return err
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "\nNote: %s\n", n)
	}
	return nil
}

func (r *machineReport) linked() bool {
	return slices.ContainsFunc(r.P2P, func(row []topo.Pair) bool {
		return slices.ContainsFunc(row, func(p topo.Pair) bool { return p.Link != "" })
	})
}

// place decides how many ranks there are and where, on n devices.
func (s *settings) place(n int, emulated bool) (worldReport, error) {
	w := worldReport{Ranks: s.ranks}
	share := s.share
	switch {
	case s.ranks != 0:
		w.Why = "as asked for"
	case n == 1:
		w.Ranks, share = defaultRanks, true
		w.Why = fmt.Sprintf("the machine has one device, so %d virtual ranks share it: times are of kernel and protocol, not of a link", defaultRanks)
	case emulated && s.devices == 0 && s.machine == "":
		w.Ranks, w.Why = min(n, defaultRanks), "the default on the emulator"
	case emulated && s.devices == 0 && n > mostByMachine:
		w.Ranks, w.Why = mostByMachine, fmt.Sprintf("as many as the emulator takes of %d devices, unless asked otherwise", n)
	default:
		w.Ranks, w.Why = min(n, flags.MaxRanks), "one rank per device"
	}
	if w.Ranks > n && !share {
		remedy := fmt.Sprintf("add --share to put several ranks on a device, or use --ranks %d", n)
		if emulated {
			remedy += fmt.Sprintf(", or --devices %d", w.Ranks)
		}
		return w, usagef("--ranks", fmt.Sprint(w.Ranks), "more than the %d device(s) of this machine: %s", n, remedy)
	}
	for r := range w.Ranks {
		w.Devices = append(w.Devices, r%n)
	}
	w.Shared = w.Ranks > n
	return w, nil
}

// maxEmulated bounds the messages of all ranks together on the emulator: its devices' memory is this host's, which
// holds about four times as much for a run.
const maxEmulated = 512 << 20

// fits refuses messages that cannot lie in the devices' memory, before anything is allocated.
func (w *worldReport) fits(devices []topo.Device, emulated bool, message uint64) error {
	if all := message * uint64(w.Ranks); emulated && all > maxEmulated {
		return usagef("--sizes", "", "%d ranks with %d bytes each are more than the emulator is for (%d bytes together): use smaller sizes or fewer ranks", w.Ranks, message, maxEmulated)
	}
	sharing := map[int]uint64{}
	for _, d := range w.Devices {
		sharing[d]++
	}
	for d, ranks := range sharing {
		if need := ranks * 2 * bufferBytes(row{allreduce.F32, message / 4}); need > devices[d].TotalMem {
			return usagef("--sizes", "", "the buffers of %d rank(s) need %d bytes of device %d, which has %d: use smaller sizes or fewer ranks", ranks, need, d, devices[d].TotalMem)
		}
	}
	return nil
}

// groupTimeout is the group's own deadline: a little shorter than --timeout, so that its diagnosis arrives within it, and no shorter than
// a group takes.
func groupTimeout(t time.Duration) time.Duration { return max(t-min(t/4, time.Second), minTimeout) }

// selectInput is what to ask whether an algorithm can work in a world.
func (s *settings) selectInput(rep *machineReport, w *worldReport, found *topo.Measurement, want allreduce.Algorithm) allreduce.SelectInput {
	in := allreduce.SelectInput{Machine: rep.machine, Measurement: found, Devices: w.Devices, Want: want, Knobs: s.knobs}
	if want == allreduce.NCCL && (!rep.Backend.Emulated || ncclOnEmulator) { // or it is refused without a look at the library
		in.NCCL = allreduce.CheckNCCL(s.library)
	}
	return in
}

// groupConfig is the group for the world of a run.
func (s *settings) groupConfig(rep *runReport, message uint64) allreduce.Config {
	return s.worldConfig(&rep.machineReport, &rep.World, rep.Measurement, s.algorithm, s.rules(), message)
}

// worldConfig is a group for messages up to a size.
func (s *settings) worldConfig(rep *machineReport, w *worldReport, found *topo.Measurement, alg allreduce.Algorithm, t allreduce.Table, message uint64) allreduce.Config {
	cfg := allreduce.Config{
		Ranks: w.Ranks, Devices: w.Devices, Share: w.Shared, Algorithm: alg, Table: t,
		MaxBytes: min(allreduce.DefaultMaxBytes, (message+4095)/4096*4096),
		Timeout:  groupTimeout(s.timeout),
		Machine:  rep.machine, Measurement: found, Knobs: s.knobs, NCCLLibrary: s.library,
	}
	if s.knobs.MaxBytes != 0 {
		cfg.MaxBytes = 0 // the knob's
	}
	return cfg
}
