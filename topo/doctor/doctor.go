// Package doctor says why GPUs do not reach each other, or why there are no GPUs at all, and what to do about it.
//
// Run looks at the host (sysfs, procfs, device nodes, libraries, the environment), at what the driver claims and at
// what probing measured, and returns a Report: findings in causal order, so that the first failing one is the one to
// mend first. It changes nothing. What it may not read, or what is not there, is a finding of status Unknown with
// the command that would tell; it never fails as a whole.
//
// Every file is read below Options.Sysroot, so that a report can be made from files copied off another machine.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/topo"
)

// FormatVersion is the version of the report's JSON form.
const FormatVersion = 1

// Options say what to look at. The zero value looks at the running host, without a driver.
type Options struct {
	// Sysroot is the folder that stands for "/". Empty or "/" is the running host: only then are system calls
	// made, to see free shared memory, signal handlers and whether descriptors can be fetched.
	Sysroot string
	Driver  gpu.Driver // the open driver, real or emulated; nil when there is none
	OpenErr error      // why the real driver did not open; nil when it did or was not tried
	NVMLErr error      // why NVML did not answer; nil when it did or was not asked
	Machine *topo.Machine
	// Measurement is what probing found; nil when nothing was probed. It is left out of account, with a finding,
	// when it was taken on other devices or on another boot.
	Measurement *topo.Measurement
	Env         []string // "NAME=value"; nil means the process's own on the running host, nothing elsewhere
	// Knobs are the FENCELINE_ variables that exist. A variable of that prefix that is not listed is a fault. When
	// Knobs is nil such variables cannot be judged and are reported as Unknown.
	Knobs []Knob
	Peers []int // process IDs of the other ranks on this host, when known: their namespaces are compared with ours
}

// Knob is one FENCELINE_ environment variable. Check refuses a value with an error that says which are allowed.
type Knob struct {
	Name  string
	Check func(value string) error
}

// Status is the outcome of one check.
type Status uint8

// The outcomes, the worse the higher.
const (
	OK      Status = iota // looked at, and good
	Skipped               // does not apply here; the result says why
	Unknown               // could not be found out; the remedy says how to
	Warn                  // works, but slower or by a fallback
	Fail                  // stops GPUs, or peer access between them, from working
)

var statusNames = [...]string{"ok", "skipped", "unknown", "warn", "fail"}

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("Status(%d)", s)
}

// MarshalText writes "ok", "skipped", "unknown", "warn" or "fail".
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes, and nothing else.
func (s *Status) UnmarshalText(b []byte) error {
	i := slices.Index(statusNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("status %q is none of %s", b, strings.Join(statusNames[:], ", "))
	}
	*s = Status(i)
	return nil
}

// Evidence is one thing that was looked at, and what it said.
type Evidence struct {
	Source string `json:"source"` // a path on the host, a call, or "probe"
	Said   string `json:"said"`
}

// Finding is the outcome of one check.
type Finding struct {
	ID       string     `json:"id"`    // stable: "iommu"
	Title    string     `json:"title"` // what was looked at: "IOMMU"
	Status   Status     `json:"status"`
	Result   string     `json:"result"` // the conclusion, in words
	Evidence []Evidence `json:"evidence,omitempty"`
	Remedy   []string   `json:"remedy,omitempty"` // what to do, in order
}

// conclude adds a conclusion. The worst status stands for the finding, and its conclusions and remedies come first.
// That something is in order is not worth saying beside a problem.
func (f *Finding) conclude(s Status, result string, remedy ...string) {
	problem := func(s Status) bool { return s >= Unknown }
	switch {
	case f.Result == "", problem(s) && !problem(f.Status):
		f.Status, f.Result, f.Remedy = s, result, nil
	case problem(f.Status) && !problem(s), slices.Contains(strings.Split(f.Result, "; "), result):
		return
	case s > f.Status:
		f.Status, f.Result = s, result+"; "+f.Result
		remedy, f.Remedy = append(slices.Clone(remedy), f.Remedy...), nil
	default:
		f.Result += "; " + result
	}
	for _, r := range remedy {
		if r != "" && f.Status != OK && !slices.Contains(f.Remedy, r) {
			f.Remedy = append(f.Remedy, r)
		}
	}
}

func (f *Finding) see(source, format string, args ...any) {
	e := Evidence{source, clean(fmt.Sprintf(format, args...))}
	if !slices.Contains(f.Evidence, e) {
		f.Evidence = append(f.Evidence, e)
	}
}

// check is one question about the host.
type check struct {
	id, title string
	hardware  bool // means nothing where no GPU is
	bus       bool // means nothing on WSL, where the bus belongs to Windows
	run       func(h *host, f *Finding)
}

// checks are in causal order: what stands earlier breaks what stands later.
var checks = []check{
	{"place", "where this runs", false, false, checkPlace},
	{"gpus", "NVIDIA GPUs on the PCI bus", false, false, checkGPUs},
	{"module", "kernel module", true, true, checkModule},
	{"nodes", "device nodes", true, false, checkNodes},
	{"libcuda", "CUDA driver library", true, false, checkCUDALibrary},
	{"env-cuda", "CUDA environment", false, false, checkCUDAEnv},
	{"fabric", "NVSwitch and fabric manager", true, true, checkFabric},
	{"driver", "driver", false, false, checkDriver},
	{"ptx", "driver against the kernels' PTX", false, false, checkPTX},
	{"nvml", "NVML library", true, false, checkNVML},
	{"nccl", "NCCL library", true, false, checkNCCL},
	{"env-nccl", "NCCL environment", false, false, checkNCCLEnv},
	{"env-fenceline", "Fenceline environment", false, false, checkOwnEnv},
	{"mig", "MIG", true, false, checkMIG},
	{"params", "kernel module parameters", true, true, checkParams},
	{"iommu", "IOMMU", true, true, checkIOMMU},
	{"acs", "PCIe access control (ACS)", true, true, checkACS},
	{"bar1", "BAR1", true, true, checkBAR1},
	{"pcie", "PCIe links", true, true, checkPCIe},
	{"p2p", "peer access", false, false, checkP2P},
	{"shm", "/dev/shm", false, false, checkShm},
	{"namespaces", "IPC and PID namespaces", false, false, checkNamespaces},
	{"pidfd", "fetching descriptors from peers", false, false, checkPidfd},
	{"limits", "resource limits", false, false, checkLimits},
	{"signals", "signal handlers", false, false, checkSignals},
}

// Run makes all checks. When ctx ends, the checks that are left are Unknown, and the report is Interrupted.
func Run(ctx context.Context, o Options) *Report {
	h := newHost(o)
	defer h.close()
	r := &Report{Version: FormatVersion}
	for _, c := range checks {
		f := Finding{ID: c.id, Title: c.title}
		absent := h.noGPU()
		switch err := ctx.Err(); {
		case err != nil:
			f.conclude(Unknown, "not looked at: "+err.Error(), "run doctor again with more time")
		case c.hardware && absent != "":
			f.conclude(Skipped, absent)
		case c.bus && h.wsl:
			f.conclude(Skipped, "WSL: it belongs to Windows")
		default:
			c.run(h, &f)
		}
		r.Findings = append(r.Findings, f)
	}
	r.Status, r.Interrupted = r.worst(), ctx.Err() != nil
	if b := r.Blocker(); b != nil && !r.Interrupted {
		r.First = b.ID
	}
	return r
}
