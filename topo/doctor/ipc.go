package doctor

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/topo"
)

// Inode numbers of the namespaces that the machine boots with (include/linux/proc_ns.h).
const (
	initialIPC = 0xEFFFFFFF
	initialPID = 0xEFFFFFFC
)

func checkShm(h *host, f *Finding) {
	const needed = 256 << 20 // staging of eight ranks at the largest size, and as much again for others
	text, err := h.t.text("proc/self/mountinfo")
	if err != nil {
		f.see("/proc/self/mountinfo", "%s", reason(err))
		f.conclude(Unknown, "its size cannot be read", "run df -h /dev/shm")
		return
	}
	var size uint64
	mounted, sized := false, false
	for _, m := range parseMounts(text) {
		if m.point == "/dev/shm" {
			mounted = true
			size, sized = sizeOption(m.options)
			f.see("/proc/self/mountinfo", "/dev/shm is %s, %s", m.kind, m.options)
		}
	}
	if h.t.live {
		if free, total, err := diskFree("/dev/shm"); err == nil {
			f.see("statfs", "/dev/shm has %s free of %s", bytesText(free), bytesText(total))
			size, sized = free, true
		}
	}
	remedy := "mount it larger: mount -o remount,size=2g /dev/shm"
	if h.inside != "" {
		remedy = "start the container with --shm-size=2g or --ipc=host; in Kubernetes, mount an emptyDir of medium Memory at /dev/shm"
	}
	switch {
	case !mounted && h.t.exists("dev/shm") == topo.No:
		f.conclude(Warn, "missing: processes cannot stage through host memory", "mount -t tmpfs tmpfs /dev/shm")
	case !sized && mounted:
		f.conclude(OK, "default size, half of the memory")
	case !sized:
		f.conclude(Unknown, "its size cannot be read", "run df -h /dev/shm")
	case size < needed && h.count() == 1 && !h.emulated():
		f.conclude(OK, bytesText(size)+": little, and one GPU needs none")
	case size < needed:
		f.conclude(Warn, fmt.Sprintf("%s: less than the %s that staging between processes may take", bytesText(size), bytesText(needed)), remedy)
	default:
		f.conclude(OK, bytesText(size))
	}
}

// privatePIDs is whether this process is known to live in a PID namespace of its own.
func (h *host) privatePIDs() bool {
	link, err := h.t.link("proc/self/ns/pid")
	id := namespaceID(link)
	return err == nil && id != 0 && id != initialPID
}

func checkNamespaces(h *host, f *Finding) {
	private, unread := []string{}, false
	for _, ns := range []struct {
		name    string
		initial uint64
	}{{"ipc", initialIPC}, {"pid", initialPID}} {
		file := "proc/self/ns/" + ns.name
		own, err := h.t.link(file)
		if err != nil {
			f.see("/"+file, "%s", reason(err))
			unread = true
			continue
		}
		f.see("/"+file, "%s", own)
		if id := namespaceID(own); id != ns.initial {
			private = append(private, strings.ToUpper(ns.name))
		}
		for _, pid := range h.o.Peers {
			h.comparePeer(f, ns.name, own, pid)
		}
	}
	switch {
	case unread:
		f.conclude(Unknown, "they cannot be read", "run ls -l /proc/self/ns")
	case len(h.o.Peers) > 0:
		f.conclude(OK, "shared with the other ranks")
	case len(private) > 0 && h.count() == 1:
		f.conclude(OK, "private: "+names(private)+"; one GPU needs no other process")
	case len(private) > 0:
		f.conclude(Unknown, "private: "+names(private)+"; ranks must share them, which cannot be seen from one rank",
			"run all ranks in one container, or start each with --ipc=host --pid=host")
	default:
		f.conclude(OK, "the host's")
	}
}

// comparePeer holds a namespace of another rank against ours.
func (h *host) comparePeer(f *Finding, name, own string, pid int) {
	file := "proc/" + strconv.Itoa(pid) + "/ns/" + name
	theirs, err := h.t.link(file)
	switch {
	case err != nil && h.t.exists("proc/"+strconv.Itoa(pid)) == topo.No:
		f.see("/"+file, "no such process here")
		f.conclude(Fail, fmt.Sprintf("process %d is not visible: it ended, or lives in another PID namespace", pid),
			"run all ranks in one container, or start each with --ipc=host --pid=host")
	case err != nil:
		f.see("/"+file, "%s", reason(err))
		f.conclude(Unknown, fmt.Sprintf("namespaces of process %d cannot be read", pid), "run doctor as the ranks' user or as root")
	case theirs != own:
		f.see("/"+file, "%s", theirs)
		f.conclude(Fail, fmt.Sprintf("process %d is in another %s namespace: it cannot open this one's memory", pid, strings.ToUpper(name)),
			"run all ranks in one container, or start each with --ipc=host --pid=host")
	}
}

const capPtrace = 1 << 19 // CAP_SYS_PTRACE

func checkPidfd(h *host, f *Finding) {
	release, err := h.t.text("proc/sys/kernel/osrelease")
	if err != nil {
		f.see("/proc/sys/kernel/osrelease", "%s", reason(err))
		f.conclude(Unknown, "the kernel's version cannot be read", "run uname -r: pidfd_getfd needs 5.6")
		return
	}
	f.see("/proc/sys/kernel/osrelease", "%s", release)
	const socket = "or pass descriptors over a Unix socket, which needs no such right"
	bad, alone := Warn, ""
	if h.count() == 1 && !h.emulated() {
		bad, alone = OK, "; one GPU needs no other process"
	}
	if enough, ok := kernelAtLeast(release, 5, 6); ok && !enough {
		f.conclude(bad, "the kernel is older than 5.6 and has no pidfd_getfd"+alone, "update the kernel, "+socket)
		return
	}
	if h.t.live {
		err := fetchOwnDescriptor()
		if errors.Is(err, errors.ErrUnsupported) {
			f.conclude(Unknown, "cannot be tried on this platform")
			return
		}
		if err != nil {
			f.see("pidfd_getfd", "on this process: %v", err)
			f.conclude(bad, "pidfd_getfd does not work even on this process: a system call filter (seccomp) or a sandbox"+alone,
				"start the container with --cap-add=SYS_PTRACE or --security-opt seccomp=unconfined, "+socket)
			return
		}
		f.see("pidfd_getfd", "works on this process")
	}
	caps, cerr := strconv.ParseUint(h.status["CapEff"], 16, 64)
	if cerr == nil {
		f.see("/proc/self/status", "CapEff %s", h.status["CapEff"])
	}
	scope, err := h.t.text("proc/sys/kernel/yama/ptrace_scope")
	if err != nil {
		f.see("/proc/sys/kernel/yama/ptrace_scope", "%s", reason(err))
		f.conclude(OK, "no Yama: ranks of one user may fetch from each other")
		return
	}
	f.see("/proc/sys/kernel/yama/ptrace_scope", "%s", scope)
	may := cerr == nil && caps&capPtrace != 0
	allow := "allow it: sysctl kernel.yama.ptrace_scope=0, or give CAP_SYS_PTRACE (container: --cap-add=SYS_PTRACE), "
	switch {
	case scope == "0":
		f.conclude(OK, "ranks of one user may fetch from each other")
	case scope == "3":
		f.conclude(bad, "Yama forbids it to everyone until reboot"+alone, "set kernel.yama.ptrace_scope=1 and reboot, "+socket)
	case (scope == "1" || scope == "2") && may:
		f.conclude(OK, "restricted by Yama, and this process has CAP_SYS_PTRACE")
	case scope == "1":
		f.conclude(bad, "Yama lets a process fetch from its descendants only: sibling ranks are refused"+alone, allow+socket)
	case scope == "2":
		f.conclude(bad, "Yama asks for CAP_SYS_PTRACE, which this process lacks"+alone, allow+socket)
	default:
		f.conclude(Unknown, "unknown ptrace_scope", "run sysctl kernel.yama.ptrace_scope")
	}
}

func checkLimits(h *host, f *Finding) {
	text, err := h.t.text("proc/self/limits")
	if err != nil {
		f.see("/proc/self/limits", "%s", reason(err))
		f.conclude(Unknown, "they cannot be read", "run ulimit -a")
		return
	}
	limits := parseLimits(text)
	report := func(name, unit string) (uint64, bool) {
		v, ok := limits[name]
		switch {
		case ok && v == math.MaxUint64:
			f.see("/proc/self/limits", "%s: unlimited", name)
		case ok && unit == "bytes":
			f.see("/proc/self/limits", "%s: %s", name, bytesText(v))
		case ok:
			f.see("/proc/self/limits", "%s: %d", name, v)
		}
		return v, ok
	}
	locked, ok := report("Max locked memory", "bytes")
	hcas, _ := h.t.list("sys/class/infiniband") // absent on most machines
	if ok && locked < 1<<30 && len(hcas) > 0 {
		f.see("/sys/class/infiniband", "%s", names(hcas))
		f.conclude(Warn, "little memory may be locked: NCCL cannot register buffers with the InfiniBand adapters",
			"ulimit -l unlimited, or in a container --ulimit memlock=-1")
	}
	if space, ok := report("Max address space", "bytes"); ok && space != math.MaxUint64 {
		f.conclude(Warn, "the address space is limited: CUDA reserves more than all devices' memory", "ulimit -v unlimited")
	}
	if files, ok := report("Max open files", ""); ok && files < 1024 {
		f.conclude(Warn, "few files may be open: each peer's buffers take descriptors", "ulimit -n 4096")
	}
	if h.t.word("proc/sys/vm/overcommit_memory") == "2" {
		f.see("/proc/sys/vm/overcommit_memory", "2")
		f.conclude(Warn, "the kernel does not overcommit memory: CUDA's and Go's reservations may be refused", "sysctl vm.overcommit_memory=0")
	}
	if f.Result == "" {
		if len(limits) == 0 {
			f.conclude(Unknown, "no limit was recognised", "run ulimit -a")
			return
		}
		f.conclude(OK, "high enough")
	}
}
