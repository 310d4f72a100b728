package doctor

import (
	"errors"
	"path"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/topo"
)

func checkFabric(h *host, f *Finding) {
	for _, s := range h.switches {
		f.see("/"+pciRoot+"/"+s.addr, "NVSwitch")
	}
	const nodes = "proc/driver/nvidia-nvswitch/devices"
	devices, err := h.t.list(nodes)
	if err == nil {
		f.see("/"+nodes, "%s", orNone(devices))
	}
	var e *gpu.Error
	notReady := errors.As(h.o.OpenErr, &e) && e.Code == resSystemNotReady
	if notReady {
		f.see("open", "%v", h.o.OpenErr)
	}
	if len(h.switches)+len(devices) == 0 && !notReady {
		switch {
		case h.pciErr == nil:
			f.conclude(Skipped, "no NVSwitch")
		case h.realDriver():
			f.conclude(OK, "CUDA starts, so a fabric, if there is one, is configured")
		default:
			f.conclude(Unknown, "whether there are NVSwitches cannot be seen", "run lspci -d 10de:")
		}
		return
	}
	release := parseRelease(h.t.word("proc/driver/nvidia/version"))
	start := "start it: systemctl enable --now nvidia-fabricmanager"
	if release != "" {
		start += "; its version must be the driver's, " + release
	}
	running, where := h.fabricManager()
	if where != "" {
		f.see(where, "nv-fabricmanager")
	}
	switch {
	case notReady && running:
		f.conclude(Fail, "the fabric manager runs, and the fabric is not ready",
			"read /var/log/fabricmanager.log; its version must be the driver's: systemctl restart nvidia-fabricmanager")
	case notReady:
		f.conclude(Fail, "the fabric is not ready and no fabric manager is seen", start)
	case running:
		f.conclude(OK, "the fabric manager runs")
	case h.realDriver():
		f.see("cuInit", "succeeds, which it does not on an unconfigured fabric")
		f.conclude(OK, "the fabric is configured; the manager is not seen from here")
	case h.inside != "" || h.privatePIDs():
		f.conclude(Unknown, "whether the fabric manager runs cannot be seen from this container", "on the host: systemctl status nvidia-fabricmanager")
	case h.t.exists("usr/bin/nv-fabricmanager") == topo.No:
		f.see("/usr/bin/nv-fabricmanager", "no such file")
		f.conclude(Fail, "there are NVSwitches and no fabric manager is installed",
			"install nvidia-fabricmanager"+branchSuffix(release)+" (the driver's version)", start)
	default:
		f.conclude(Fail, "there are NVSwitches and the fabric manager does not run", start)
	}
}

func branchSuffix(release string) string {
	major, _, _ := strings.Cut(release, ".")
	if major == "" {
		return ""
	}
	return "-" + major
}

// fabricManager looks for the daemon in the process table.
func (h *host) fabricManager() (running bool, where string) {
	entries, err := h.t.list("proc")
	if err != nil {
		return false, ""
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e); err != nil {
			continue
		}
		// The kernel keeps 15 characters of a name.
		if strings.HasPrefix(h.t.word(path.Join("proc", e, "comm")), "nv-fabricmanage") {
			return true, "/proc/" + e + "/comm"
		}
	}
	return false, ""
}

func checkMIG(h *host, f *Finding) {
	instances := 0
	unknown := false
	if m := h.realMachine(); m != nil {
		for _, d := range m.Devices {
			switch d.MIG {
			case topo.Yes:
				instances++
				f.see("NVML", "device %d is a MIG instance", d.Ordinal)
			case topo.Unknown:
				unknown = true
			}
		}
	}
	const caps = "proc/driver/nvidia/capabilities"
	cards, err := h.t.list(caps)
	if err == nil {
		for _, c := range cards {
			gis, err := h.t.list(path.Join(caps, c, "mig"))
			if !strings.HasPrefix(c, "gpu") || err != nil {
				continue
			}
			for _, gi := range gis {
				if strings.HasPrefix(gi, "gi") {
					f.see("/"+caps+"/"+c+"/mig", "GPU instance %s", gi)
					unknown = false
					instances = max(instances, 1)
				}
			}
		}
	}
	switch {
	case instances > 0:
		f.conclude(Warn, "MIG is on: instances have no peer access, so sums go by copies or through the host",
			"turn MIG off if peer access matters more than isolation: nvidia-smi -mig 0, then reset the GPU")
	case err != nil && (unknown || h.realMachine() == nil):
		f.see("/"+caps, "%s", reason(err))
		f.conclude(Unknown, "whether MIG is on cannot be seen", "run nvidia-smi --query-gpu=mig.mode.current --format=csv")
	default:
		f.conclude(OK, "no MIG instance")
	}
}

// checkParams looks at the module's parameters that change peer access.
func checkParams(h *host, f *Finding) {
	const file = "proc/driver/nvidia/params"
	text, err := h.t.text(file)
	if err != nil {
		f.see("/"+file, "%s", reason(err))
	}
	params := parseColons(text)
	// What is set for the next load counts too: it is why the machine changes at a reboot.
	for _, p := range h.cmdline {
		if v, ok := strings.CutPrefix(p.name, "nvidia.NVreg_"); ok {
			f.see("/proc/cmdline", "%s", p)
			if _, set := params[v]; !set {
				params[v] = p.value
			}
		}
	}
	if err != nil && len(params) == 0 {
		f.conclude(Unknown, "the module's parameters cannot be read", "run grep . /proc/driver/nvidia/params")
		return
	}
	keys := append(parseDwords(params["RegistryDwords"]), parseDwords(params["RegistryDwordsPerDevice"])...)
	const modprobe = "edit /etc/modprobe.d, rebuild the initramfs and reboot"
	var forcing []string
	for _, k := range keys {
		switch strings.ToLower(k.name) {
		case "forcep2p", "rmforcep2ptype", "rmpciep2ptype", "peermappingoverride", "grdmapcitopocheckoverride":
			f.see("/"+file, "RegistryDwords %s", k)
			forcing = append(forcing, k.name)
		}
	}
	if len(forcing) > 0 {
		f.conclude(Warn, "peer access is forced ("+names(forcing)+"): what the driver says of it is no longer its own judgement, only probes count",
			"run demo probe; if pairs fail, take the keys out of RegistryDwords: "+modprobe)
	}
	if on(params["NvLinkDisable"]) {
		f.see("/"+file, "NvLinkDisable: %s", params["NvLinkDisable"])
		f.conclude(Fail, "NVLink is switched off by a module parameter", "take NVreg_NvLinkDisable out: "+modprobe)
	}
	if f.Result == "" {
		f.conclude(OK, "none that changes peer access")
	}
}

// on is whether a kernel module's number means yes: any number but 0.
func on(value string) bool {
	n, err := strconv.ParseInt(value, 0, 64)
	return err == nil && n != 0
}
