package doctor

import (
	"fmt"
	"strings"

	"github.com/fenceline/fenceline/topo"
)

// readPlace finds out whether this is a container, a virtual machine or WSL.
func (h *host) readPlace() {
	version := strings.ToLower(h.t.word("proc/version"))
	mark := func(name string) bool {
		there := h.t.exists(name)
		if there == topo.Unknown {
			h.unseen = append(h.unseen, "/"+name)
		}
		return there == topo.Yes
	}
	h.wsl = strings.Contains(version, "microsoft") || mark("dev/dxg")
	switch {
	case mark("run/.containerenv"):
		h.inside = "Podman"
	case h.env["KUBERNETES_SERVICE_HOST"] != "":
		h.inside = "Kubernetes"
	case mark(".dockerenv"):
		h.inside = "Docker"
	default:
		cgroup := h.t.word("proc/1/cgroup")
		for _, k := range []struct{ word, name string }{{"kubepods", "Kubernetes"}, {"docker", "Docker"}, {"containerd", "containerd"}, {"lxc", "LXC"}} {
			if strings.Contains(cgroup, k.word) {
				h.inside = k.name
				break
			}
		}
	}
	for _, word := range strings.Fields(flagsLine(h.t.word("proc/cpuinfo"))) {
		if word == "hypervisor" {
			h.virtual = "a hypervisor"
		}
	}
	vendor := h.t.word("sys/class/dmi/id/sys_vendor") + " " + h.t.word("sys/class/dmi/id/product_name")
	for _, v := range []struct{ word, name string }{
		{"QEMU", "QEMU"}, {"KVM", "KVM"}, {"VMware", "VMware"}, {"Virtual Machine", "Hyper-V"}, {"VirtualBox", "VirtualBox"},
		{"Xen", "Xen"}, {"Amazon EC2", "Amazon EC2"}, {"Google Compute Engine", "Google Compute Engine"}, {"OpenStack", "OpenStack"},
	} {
		// EC2's bare-metal types carry the same vendor, and no hypervisor flag.
		if strings.Contains(vendor, v.word) && (h.virtual != "" || v.name != "Amazon EC2") {
			h.virtual = v.name
			break
		}
	}
}

// flagsLine is the first "flags" line of /proc/cpuinfo.
func flagsLine(cpuinfo string) string {
	for _, line := range strings.Split(cpuinfo, "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "flags" {
			return value
		}
	}
	return ""
}

func checkPlace(h *host, f *Finding) {
	if h.t.err != nil {
		f.see(h.o.Sysroot, "%s", reason(h.t.err))
		f.conclude(Unknown, "the system root cannot be read", "give --sysroot a folder that holds sys/, proc/ and dev/")
		return
	}
	if rel := h.t.word("proc/sys/kernel/osrelease"); rel != "" {
		f.see("/proc/sys/kernel/osrelease", "%s", rel)
	}
	var parts []string
	if h.wsl {
		f.see("/proc/version", "%s", h.t.word("proc/version"))
		f.conclude(Warn, "Windows Subsystem for Linux: GPUs have no peer access and no IPC between processes there",
			"run all ranks in one process, or boot Linux itself")
		return
	}
	if h.inside != "" {
		parts = append(parts, "a "+h.inside+" container")
	}
	if h.virtual != "" {
		if name := h.t.word("sys/class/dmi/id/product_name"); name != "" {
			f.see("/sys/class/dmi/id/product_name", "%s", name)
		}
		parts = append(parts, "a virtual machine ("+h.virtual+"): IOMMU and ACS of its host cannot be seen from here")
	}
	if len(h.unseen) > 0 && h.inside == "" {
		for _, name := range h.unseen {
			f.see(name, "cannot be looked at")
		}
		parts = append([]string{"whether this is a container or WSL cannot be told"}, parts...)
		f.conclude(Unknown, strings.Join(parts, "; "), "run doctor as root, or run ls -l "+strings.Join(h.unseen, " "))
		return
	}
	if len(parts) == 0 {
		f.conclude(OK, "no container, virtual machine or WSL recognised")
		return
	}
	f.conclude(OK, strings.Join(parts, ", in "))
}

func checkGPUs(h *host, f *Finding) {
	vfio, foreign, none, lost := []string{}, []string{}, []string{}, []string{}
	for _, d := range h.gpus {
		bound := d.driver
		if bound == "" {
			bound = "no driver"
		}
		f.see("/"+pciRoot+"/"+d.addr, "GPU, bound to %s", bound)
		switch {
		case d.offBus:
			lost = append(lost, d.addr)
		case d.driver == "nvidia":
		case d.driver == "":
			none = append(none, d.addr)
		case strings.HasPrefix(d.driver, "vfio"):
			vfio = append(vfio, d.addr)
		default:
			foreign = append(foreign, d.addr+" ("+d.driver+")")
		}
	}
	switch {
	case h.pciErr != nil && h.realDriver():
		f.see("/"+pciRoot, "%s", reason(h.pciErr))
		f.conclude(Unknown, fmt.Sprintf("the PCI bus cannot be listed; the driver has %s", plural(h.o.Driver.DeviceCount(), "device")),
			"run doctor where /sys is mounted to have IOMMU, ACS and BAR1 looked at")
	case h.pciErr != nil:
		f.see("/"+pciRoot, "%s", reason(h.pciErr))
		f.conclude(Unknown, "the PCI bus cannot be listed", "run doctor where /sys is mounted, or look with lspci -d 10de:")
	case len(h.gpus) > 0:
		f.conclude(OK, plural(len(h.gpus), "GPU"))
	case h.wsl:
		f.conclude(Unknown, "WSL shows GPUs as /dev/dxg, not on a PCI bus", "run nvidia-smi -L")
	case h.realDriver():
		f.conclude(Unknown, fmt.Sprintf("none listed, though the driver has %s", plural(h.o.Driver.DeviceCount(), "device")),
			"run doctor where the host's /sys is mounted to have IOMMU, ACS and BAR1 looked at")
	case h.emulated():
		f.conclude(Skipped, "none; the emulator needs none")
	case h.virtual != "" || h.inside != "":
		f.conclude(Fail, "none", "pass GPUs through: docker run --gpus all, or the virtual machine's PCI passthrough",
			"without a GPU, use the emulator")
	default:
		f.conclude(Fail, "none", "check that the card is seated, powered and enabled in the BIOS: lspci -d 10de: lists it then",
			"without a GPU, use the emulator")
	}
	if len(lost) > 0 {
		f.conclude(Fail, names(lost)+" does not answer: it has fallen off the bus",
			"look for Xid 79 in dmesg, power-cycle the machine, and check the card's power and riser")
	}
	if len(foreign) > 0 {
		f.conclude(Fail, "another driver holds "+names(foreign), "install NVIDIA's driver and blacklist the other: "+
			"echo blacklist nouveau > /etc/modprobe.d/nouveau.conf, rebuild the initramfs, reboot")
	}
	if len(vfio) > 0 {
		f.conclude(Warn, names(vfio)+" is handed to virtual machines (vfio) and cannot be used here",
			"unbind it from vfio-pci to use it on this host")
	}
	if len(none) > 0 {
		f.conclude(Fail, "no driver holds "+names(none), "install NVIDIA's driver and load it: modprobe nvidia; dmesg says why if it does not load")
	}
}

func checkModule(h *host, f *Finding) {
	const file = "proc/driver/nvidia/version"
	text, err := h.t.text(file)
	if err != nil {
		f.see("/"+file, "%s", reason(err))
		switch {
		case h.realDriver():
			f.conclude(Unknown, "its version cannot be read; the driver works", "run nvidia-smi")
		case len(h.gpus) > 0:
			f.conclude(Fail, "NVIDIA's kernel module is not loaded",
				"install the driver, then modprobe nvidia; with Secure Boot the module must be signed (mokutil --sb-state)")
		default:
			f.conclude(Unknown, "not seen", "run modinfo nvidia")
		}
		return
	}
	line, _, _ := strings.Cut(text, "\n")
	f.see("/"+file, "%s", line)
	release := parseRelease(text)
	if release == "" {
		f.conclude(Unknown, "no release in its version line", "run modinfo -F version nvidia")
		return
	}
	f.conclude(OK, "release "+release)
	if lib := h.libcuda(); lib.found != "" {
		v := libRelease(lib.file)
		switch {
		case v == "" || v == release:
		case strings.Contains(lib.file, "compat"):
			f.see("/"+lib.file, "forward-compatibility library")
		default:
			f.see("/"+lib.file, "release %s", v)
			f.conclude(Fail, fmt.Sprintf("the module is release %s, the library %s", release, v),
				"reboot after a driver update, or unload the old module (rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia)",
				"in a container, use the host's library: start it with --gpus all instead of installing a driver inside")
		}
	}
}

func checkNodes(h *host, f *Finding) {
	if h.wsl {
		node := "dev/dxg"
		switch h.t.exists(node) {
		case topo.Yes:
			f.conclude(OK, "/dev/dxg is there")
		case topo.No:
			f.conclude(Fail, "/dev/dxg is missing", "update WSL and the Windows driver: wsl --update")
		default:
			f.conclude(Unknown, "/dev/dxg cannot be looked at", "run ls -l /dev/dxg")
		}
		return
	}
	entries, err := h.t.list("dev")
	if err != nil {
		f.see("/dev", "%s", reason(err))
		f.conclude(Unknown, "/dev cannot be listed", "run ls -l /dev/nvidia*")
		return
	}
	cards := 0
	for _, e := range entries {
		if n, ok := strings.CutPrefix(e, "nvidia"); ok && n != "" && strings.Trim(n, "0123456789") == "" {
			cards++
		}
	}
	var missing, refused []string
	for _, node := range []string{"nvidiactl", "nvidia-uvm"} {
		file, err := h.t.open("dev/" + node)
		switch {
		case err == nil:
			file.Close() // nothing was written
		case h.t.exists("dev/"+node) == topo.No:
			missing = append(missing, "/dev/"+node)
		default:
			refused = append(refused, "/dev/"+node)
			f.see("/dev/"+node, "%s", reason(err))
		}
	}
	if cards == 0 {
		missing = append(missing, "/dev/nvidia0")
	}
	f.see("/dev", "%s, missing: %s", plural(cards, "card node"), orNone(missing))
	switch {
	case len(missing) > 0 && h.inside != "":
		f.conclude(Fail, "missing: "+names(missing), "start the container with --gpus all (NVIDIA container toolkit)")
	case len(missing) > 0:
		f.conclude(Fail, "missing: "+names(missing), "run nvidia-modprobe -c 0 -u as root, or start nvidia-persistenced")
	default:
		f.conclude(OK, plural(cards, "card")+", control and UVM nodes")
	}
	if len(refused) > 0 {
		f.conclude(Fail, "may not be opened: "+names(refused),
			"check the nodes' owner and mode; in a container the device cgroup may have dropped them (after systemctl daemon-reload): restart it")
	}
	if cards > 0 && cards < len(h.gpus) {
		f.conclude(Warn, fmt.Sprintf("%d of %d GPUs have a node here", cards, len(h.gpus)),
			"if more are wanted: NVIDIA_VISIBLE_DEVICES=all or --gpus all for a container")
	}
}

func orNone(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return names(words)
}
