package doctor

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// vendorIOMMU is how an IOMMU is named under /sys/class/iommu, and how to switch it off.
var vendorIOMMU = []struct{ prefix, maker, off string }{
	{"dmar", "Intel", "intel_iommu=off"},
	{"ivhd", "AMD", "amd_iommu=off"},
	{"smmu", "Arm", "iommu.passthrough=1"},
}

// noEffect are settings that people write and the kernel does not know.
var noEffect = map[string]string{
	"intel_iommu=pt": "iommu=pt is meant", "amd_iommu=pt": "iommu=pt is meant", "amd_iommu=on": "it is on by default; amd_iommu=off switches it off",
}

func checkIOMMU(h *host, f *Finding) {
	var typos []string
	for _, p := range h.cmdline {
		if slices.Contains([]string{"iommu", "intel_iommu", "amd_iommu", "iommu.passthrough", "iommu.strict"}, p.name) {
			why := noEffect[p.String()]
			if why == "" {
				f.see("/proc/cmdline", "%s", p)
				continue
			}
			f.see("/proc/cmdline", "%s (no effect: %s)", p, why)
			typos = append(typos, p.String())
		}
	}
	units, err := h.t.list("sys/class/iommu")
	if err == nil {
		f.see("/sys/class/iommu", "%s", orNone(units))
	}
	translated, through, ungrouped := []string{}, 0, 0
	for _, d := range h.gpus {
		to, lerr := h.t.link(path.Join(pciRoot, d.addr, "iommu_group"))
		if lerr != nil {
			ungrouped++
			continue
		}
		file := "sys/kernel/iommu_groups/" + path.Base(to) + "/type"
		kind, terr := h.t.text(file)
		if terr != nil {
			f.see("/"+file, "%s", reason(terr))
			continue
		}
		f.see("/"+file, "%s (%s)", kind, d.addr)
		switch kind {
		case "identity":
			through++
		case "DMA", "DMA-FQ":
			translated = append(translated, d.addr)
		}
	}
	switch {
	case len(translated) > 0:
		h.judgeTranslation(f, translated, units)
	case through > 0 && through+ungrouped == len(h.gpus):
		f.conclude(OK, "on, in passthrough mode for the GPUs")
	case err == nil && len(units) == 0 && h.virtual != "":
		f.conclude(Unknown, "none in this virtual machine; its host's cannot be seen", "on the host: iommu=pt, or believe the probes: demo probe")
	case err == nil && len(units) == 0:
		f.conclude(OK, "off")
	case err == nil && len(h.gpus) > 0 && ungrouped == len(h.gpus):
		f.conclude(OK, "on, and not for the GPUs")
	default:
		f.conclude(Unknown, "how it treats the GPUs cannot be read", "run as root: cat /sys/kernel/iommu_groups/*/type; dmesg | grep -i -e DMAR -e AMD-Vi")
	}
	if len(typos) > 0 && f.Status >= Warn {
		f.conclude(Warn, "no effect on the command line: "+names(typos))
	}
}

func (h *host) judgeTranslation(f *Finding, translated, units []string) {
	s, why := h.peerRisk()
	off := "iommu=off"
	for _, v := range vendorIOMMU {
		if len(units) > 0 && strings.HasPrefix(units[0], v.prefix) {
			off = v.off
		}
	}
	result := fmt.Sprintf("it translates the addresses of %s (%s)", plural(len(translated), "GPU"), why)
	if s == OK {
		f.conclude(OK, result)
		return
	}
	f.conclude(s, result, "add iommu=pt to the kernel command line (GRUB_CMDLINE_LINUX), run update-grub, reboot, and run demo probe again",
		"if pairs still fail: "+off+", or switch the IOMMU (VT-d, AMD-Vi) off in the BIOS")
}

func checkACS(h *host, f *Finding) {
	if h.pciErr != nil {
		f.see("/"+pciRoot, "%s", reason(h.pciErr))
		f.conclude(Unknown, "bridges cannot be read", "run as root: lspci -vvv | grep -e '^[0-9a-f]' -e ACSCtl")
		return
	}
	for _, p := range h.cmdline {
		if p.name == "pcie_acs_override" || p.name == "pci" && strings.Contains(p.value, "acs") {
			f.see("/proc/cmdline", "%s", p)
		}
	}
	var bridges []string
	for _, d := range h.gpus {
		for _, b := range d.bridges {
			if !slices.Contains(bridges, b) {
				bridges = append(bridges, b)
			}
		}
	}
	if len(bridges) == 0 {
		result := "no bridge above the GPUs is visible"
		switch {
		case h.count() == 1:
			f.conclude(OK, "one GPU: it has no peer")
		case h.virtual != "":
			f.conclude(Unknown, result+": the virtual machine's host has them", "on the host, as root: lspci -vvv | grep ACSCtl")
		default:
			f.conclude(Unknown, result, "run as root where /sys is mounted: lspci -vvv | grep ACSCtl")
		}
		return
	}
	var switchPorts, rootPorts, unread []string
	for _, b := range bridges {
		file := path.Join(pciRoot, b, "config")
		config, err := h.t.bytes(file)
		var a acs
		if err == nil {
			a, err = parseACS(config)
		}
		if err != nil {
			f.see("/"+file, "%s", reason(err))
			unread = append(unread, b)
			continue
		}
		kind := "port"
		if t, ok := portType(config); ok && t == rootPort {
			kind = "root port"
		}
		f.see("/"+file, "%s, %s", kind, a)
		switch {
		case !a.redirects():
		case kind == "root port":
			rootPorts = append(rootPorts, b)
		default:
			switchPorts = append(switchPorts, b)
		}
	}
	h.judgeACS(f, len(bridges), switchPorts, rootPorts, unread)
}

// judgeACS weighs what redirects. A switch port that does sends every peer access up to the root complex. A root
// port's setting matters only to traffic that crosses root ports, which takes that way anyhow: it is named when
// probes fail.
func (h *host) judgeACS(f *Finding, total int, switchPorts, rootPorts, unread []string) {
	s, why := h.peerRisk()
	bad := switchPorts
	if s == Fail {
		bad = append(slices.Clone(switchPorts), rootPorts...)
	}
	switch {
	case len(bad) > 0 && s == OK:
		f.conclude(OK, fmt.Sprintf("%s peer traffic (%s)", redirect(len(bad)), why))
	case len(bad) > 0:
		if len(switchPorts) == 0 {
			s = Warn
		}
		f.conclude(s, fmt.Sprintf("%s peer traffic through the CPU (%s)", redirect(len(bad)), why),
			fmt.Sprintf("as root, until the next boot: for b in %s; do setpci -s $b ECAP_ACS+6.w=0000; done", strings.Join(bad, " ")),
			"for good: switch ACS off in the BIOS (where virtual machines do not need it), or do the above in a boot script; then run demo probe again")
	case len(unread) > 0 && s != OK:
		f.conclude(Unknown, fmt.Sprintf("%d of %s cannot be read", len(unread), plural(total, "bridge")),
			"run as root: demo doctor, or lspci -vvv | grep -e '^[0-9a-f]' -e ACSCtl")
	case len(unread) > 0:
		f.conclude(OK, why)
	default:
		f.conclude(OK, fmt.Sprintf("no switch port redirects peer traffic (%s looked at)", plural(total, "bridge")))
	}
}

func redirect(n int) string {
	if n == 1 {
		return "1 bridge redirects"
	}
	return fmt.Sprintf("%d bridges redirect", n)
}

func checkBAR1(h *host, f *Finding) {
	const small = 256 << 20 // what GPUs have without a resizable BAR
	var none, little, unread []string
	for _, d := range h.gpus {
		file := path.Join(pciRoot, d.addr, "resource")
		text, err := h.t.text(file)
		var bars []bar
		if err == nil {
			bars, err = parseResource(text)
		}
		var window bar
		if err == nil {
			window, err = bar1(bars)
		}
		if err != nil {
			f.see("/"+file, "%s", reason(err))
			unread = append(unread, d.addr)
			continue
		}
		size := window.size
		said := "BAR1 " + bytesText(size)
		dev := h.device(d.addr)
		if size == 0 && dev != nil && dev.BAR1 != 0 { // NVML has asked the card itself
			size = dev.BAR1
			said = "no BAR1, but NVML says " + bytesText(size)
		}
		if dev != nil {
			said += " for " + bytesText(dev.TotalMem) + " of memory"
		}
		f.see("/"+file, "%s", said)
		switch {
		case size == 0:
			none = append(none, d.addr)
		case size <= small, dev != nil && size < dev.TotalMem:
			little = append(little, d.addr)
		}
	}
	const above4G = "enable Above 4G Decoding and Resizable BAR in the BIOS"
	s, why := h.peerRisk()
	switch {
	case len(h.gpus) == 0:
		f.conclude(Unknown, "no GPU is listed on the PCI bus", "run nvidia-smi -q -d MEMORY")
	case len(unread) == len(h.gpus):
		f.conclude(Unknown, "it cannot be read", "run nvidia-smi -q -d MEMORY")
	default:
		f.conclude(OK, "covers the memory that peers need")
	}
	if len(little) > 0 {
		result := fmt.Sprintf("smaller than the memory on %s: peers over PCIe may not reach all of it", plural(len(little), "GPU"))
		if s == OK {
			f.conclude(OK, "smaller than the memory ("+why+")")
		} else {
			f.conclude(Warn, result, above4G+"; on cards that offer it, nvidia-smi -q -d MEMORY then shows a BAR1 as large as the memory")
		}
	}
	if len(none) > 0 {
		f.conclude(Fail, "no address was given to BAR1 of "+names(none), above4G, "or add pci=realloc to the kernel command line")
	}
}

// bytesText is a size in binary units.
func bytesText(n uint64) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n >= 1<<u.shift {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(uint64(1)<<u.shift)), ".0") + " " + u.name
		}
	}
	return fmt.Sprintf("%d B", n)
}

func checkPCIe(h *host, f *Finding) {
	var narrow []string
	known := 0
	for _, d := range h.gpus {
		dir := path.Join(pciRoot, d.addr)
		now, most := h.t.word(dir+"/current_link_width"), h.t.word(dir+"/max_link_width")
		speed, best := h.t.word(dir+"/current_link_speed"), h.t.word(dir+"/max_link_speed")
		if now == "" || most == "" {
			continue
		}
		known++
		// An idle card lowers its speed, never its width: only the width is a fault.
		f.see("/"+dir, "width x%s of x%s, %s of %s", now, most, speed, best)
		if now != most && now != "0" && most != "255" {
			narrow = append(narrow, fmt.Sprintf("%s (x%s of x%s)", d.addr, now, most))
		}
	}
	switch {
	case known == 0:
		f.conclude(Unknown, "link widths cannot be read", "run nvidia-smi -q -d PCIE")
	case len(narrow) > 0:
		f.conclude(Warn, "fewer lanes than the card has: "+names(narrow), "reseat the card or riser, and check how the BIOS splits the slot's lanes (bifurcation)")
	default:
		f.conclude(OK, "full width")
	}
}
