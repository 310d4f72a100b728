package doctor

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/topo"
)

// host is what several checks look at, read once.
type host struct {
	o       Options
	t       *tree
	env     map[string]string
	cmdline []param
	cmdErr  error
	status  map[string]string // /proc/self/status

	gpus, switches []pciDevice
	pciErr         error

	virtual string // the virtual machine's maker, "" on bare metal or when it cannot be told
	wsl     bool
	inside  string   // the kind of container, "" outside
	unseen  []string // marks of containers and WSL that cannot be looked at
	stale   string   // why the measurement does not count, "" when it does

	signals func() ([]handler, error) // of this process; nil when it cannot be asked
}

// pciDevice is an NVIDIA function on the PCI bus.
type pciDevice struct {
	addr    string   // "0000:17:00.0"
	driver  string   // kernel driver bound to it, "" for none
	bridges []string // PCI bridges above it, the outermost first
	offBus  bool
}

const pciRoot = "sys/bus/pci/devices"

func newHost(o Options) *host {
	h := &host{o: o, t: openTree(o.Sysroot), env: map[string]string{}}
	if o.Env == nil && h.t.live {
		h.o.Env = os.Environ()
	}
	for _, e := range h.o.Env {
		name, value, _ := strings.Cut(e, "=")
		if _, seen := h.env[name]; !seen { // getenv takes the first
			h.env[name] = value
		}
	}
	text, err := h.t.text("proc/cmdline")
	h.cmdline, h.cmdErr = parseCmdline(text), err
	h.status = parseColons(h.t.word("proc/self/status"))
	h.readPCI()
	h.readPlace()
	h.stale = h.staleness()
	if h.t.live {
		h.signals = signalHandlers
	}
	return h
}

func (h *host) close() { h.t.close() }

var addrRE = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

func (h *host) readPCI() {
	names, err := h.t.list(pciRoot)
	h.pciErr = err
	for _, name := range names {
		dir := path.Join(pciRoot, name)
		if !addrRE.MatchString(name) || h.t.word(dir+"/vendor") != "0x10de" {
			continue
		}
		class := h.t.word(dir + "/class")
		d := pciDevice{addr: name}
		if to, err := h.t.link(dir + "/driver"); err == nil {
			d.driver = path.Base(to)
		}
		if to, err := h.t.link(dir); err == nil {
			for _, part := range strings.Split(path.Dir(to), "/") {
				if addrRE.MatchString(part) {
					d.bridges = append(d.bridges, part)
				}
			}
		}
		if config, err := h.t.bytes(dir + "/config"); err == nil {
			d.offBus = offBus(config)
		}
		switch {
		case strings.HasPrefix(class, "0x0300"), strings.HasPrefix(class, "0x0302"):
			h.gpus = append(h.gpus, d)
		case strings.HasPrefix(class, "0x0680"): // "other bridge": NVSwitch; NVIDIA makes no other
			h.switches = append(h.switches, d)
		}
	}
}

// realDriver is whether a GPU driver is open.
func (h *host) realDriver() bool { return h.o.Driver != nil && !h.o.Driver.Info().Emulated }

func (h *host) emulated() bool {
	return h.o.Driver != nil && h.o.Driver.Info().Emulated || h.o.Machine != nil && h.o.Machine.Emulated
}

// noGPU says why hardware checks make no sense here, "" when they do. A bus that cannot be read proves nothing.
func (h *host) noGPU() string {
	if h.realDriver() || h.pciErr != nil || len(h.gpus)+len(h.switches) > 0 || h.wsl || h.realMachine() != nil {
		return ""
	}
	if h.emulated() {
		return "no NVIDIA GPU here; the emulator needs none"
	}
	return "no NVIDIA GPU here"
}

// realMachine is the machine when it describes GPUs and not the emulator's devices.
func (h *host) realMachine() *topo.Machine {
	if h.o.Machine == nil || h.o.Machine.Emulated {
		return nil
	}
	return h.o.Machine
}

// count is how many GPUs could be peers.
func (h *host) count() int {
	if m := h.realMachine(); m != nil {
		return len(m.Devices)
	}
	if h.realDriver() {
		return h.o.Driver.DeviceCount()
	}
	return len(h.gpus)
}

// device is the machine's record of a PCI address, nil when there is none. CUDA writes addresses in upper or lower case.
func (h *host) device(addr string) *topo.Device {
	if m := h.realMachine(); m != nil {
		for i := range m.Devices {
			if shortAddr(m.Devices[i].PCI) == shortAddr(addr) {
				return &m.Devices[i]
			}
		}
	}
	return nil
}

// shortAddr brings "00000000:1B:00.0" and "0000:1b:00.0" to one form.
func shortAddr(addr string) string {
	domain, rest, ok := strings.Cut(strings.ToLower(addr), ":")
	if !ok {
		return strings.ToLower(addr)
	}
	return strings.TrimLeft(domain, "0") + ":" + rest
}

// measured is the measurement that counts, nil when there is none.
func (h *host) measured() *topo.Measurement {
	if h.stale != "" {
		return nil
	}
	return h.o.Measurement
}

// staleness says why the measurement is not about this machine as it is now.
func (h *host) staleness() string {
	m := h.o.Measurement
	if m == nil {
		return ""
	}
	if mach := h.o.Machine; mach != nil {
		if len(m.Pairs) != len(mach.Devices) {
			return fmt.Sprintf("it covers %d devices, the machine has %d", len(m.Pairs), len(mach.Devices))
		}
		if len(m.Key.UUIDs) > 0 {
			for i, d := range mach.Devices {
				if i >= len(m.Key.UUIDs) || m.Key.UUIDs[i] != d.UUID {
					return "it was taken on other devices"
				}
			}
		}
	}
	for _, row := range m.Pairs {
		if len(row) != len(m.Pairs) {
			return "its rows have different lengths"
		}
	}
	if id := h.t.word("proc/sys/kernel/random/boot_id"); id != "" && m.Key.BootID != "" && id != m.Key.BootID {
		return "it was taken before the last boot"
	}
	if rel := h.t.word("proc/sys/kernel/osrelease"); rel != "" && m.Key.Kernel != "" && rel != m.Key.Kernel {
		return "it was taken under kernel " + clean(m.Key.Kernel)
	}
	return ""
}

// peerRisk judges a condition that can break peer traffic over PCIe: what was measured outweighs what is configured.
// why says in words what the judgement rests on.
func (h *host) peerRisk() (s Status, why string) {
	if h.count() == 1 {
		return OK, "one GPU: it has no peer"
	}
	m := h.realMachine()
	over, tested, broken, never := 0, 0, 0, 0
	if m != nil {
		meas := h.measured()
		for i, row := range m.Pairs {
			for j, p := range row {
				if i == j || strings.HasPrefix(p.Link, "NV") {
					continue
				}
				over++
				if p.ReadCode == topo.CodeGNS && p.WriteCode == topo.CodeGNS {
					never++
				}
				if meas == nil || i >= len(meas.Pairs) || j >= len(meas.Pairs[i]) {
					continue
				}
				switch pairState(meas.Pairs[i][j]) {
				case topo.Yes:
					tested++
				case topo.No:
					broken++
				}
			}
		}
		if over == 0 {
			return OK, "every pair is joined by NVLink, which does not pass through it"
		}
	}
	switch {
	case broken > 0:
		return Fail, fmt.Sprintf("%d of %d pairs over PCIe fail their probes", broken, over)
	case over > 0 && never == over:
		return OK, "the driver offers no peer access for these GPUs, whatever this is set to"
	case over > 0 && tested == over:
		return OK, "all pairs over PCIe pass their probes in spite of it"
	}
	return Warn, "peer traffic over PCIe has not been probed"
}

// pairState is whether reading, writing and flags of a pair all work.
func pairState(m topo.Measured) topo.Tri {
	all := []topo.Tri{m.Read.Answer, m.Write.Answer, m.Flags.Answer}
	switch {
	case slices.Contains(all, topo.No):
		return topo.No
	case slices.Contains(all, topo.Unknown):
		return topo.Unknown
	}
	return topo.Yes
}

// names joins words and bounds their number.
func names(words []string) string {
	const most = 6
	if len(words) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(words[:most], ", "), len(words)-most)
	}
	return strings.Join(words, ", ")
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
