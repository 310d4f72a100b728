package doctor

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/internal/gpu"
	"github.com/fenceline/fenceline/topo"
)

// library is where the dynamic linker would find a library.
type library struct {
	found  string   // path as searched, without the leading slash; "" when absent
	file   string   // the file behind its links
	others []string // further places that have one
	unseen []string // places that cannot be looked at, ahead of where it was found
}

// defaultDirs are where distributions, WSL and the container toolkit keep driver libraries.
var defaultDirs = []string{
	"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu",
	"lib64", "usr/lib64", "lib", "usr/lib", "usr/local/nvidia/lib64", "usr/lib/wsl/lib", "usr/local/cuda/compat", "usr/local/cuda/lib64",
}

// find looks for a library in the linker's order: LD_LIBRARY_PATH, the configured folders, the usual ones.
func (h *host) find(name string) library {
	var dirs []string
	for _, d := range strings.FieldsFunc(h.env["LD_LIBRARY_PATH"], func(r rune) bool { return r == ':' || r == ';' }) {
		if path.IsAbs(d) {
			dirs = append(dirs, strings.TrimPrefix(path.Clean(d), "/"))
		}
	}
	dirs = append(dirs, h.linkerDirs()...)
	dirs = append(dirs, defaultDirs...)
	var l library
	seen := map[string]bool{}
	for _, d := range dirs {
		p := path.Join(d, name)
		file := h.t.follow(p)
		if seen[p] {
			continue
		}
		seen[p] = true
		switch h.t.exists(p) {
		case topo.No:
			continue
		case topo.Unknown:
			if l.found == "" {
				l.unseen = append(l.unseen, p)
			}
			continue
		}
		switch {
		case l.found == "":
			l.found, l.file = p, file
		case path.Base(file) != path.Base(l.file) && !slices.Contains(l.others, file):
			// The same file name elsewhere is nearly always the same file through a merged /usr.
			l.others = append(l.others, file)
		}
	}
	return l
}

// linkerDirs are the folders of /etc/ld.so.conf.d. The cache made from them is not read: it may be older.
func (h *host) linkerDirs() []string {
	names, err := h.t.list("etc/ld.so.conf.d")
	if err != nil {
		return nil
	}
	var dirs []string
	for _, n := range names {
		if strings.HasSuffix(n, ".conf") {
			dirs = append(dirs, parseLinkerConf(h.t.word("etc/ld.so.conf.d/"+n))...)
		}
	}
	return dirs
}

// parseLinkerConf reads the absolute folders of one ld.so.conf file, without the leading slash.
func parseLinkerConf(text string) []string {
	var dirs []string
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		for _, d := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t,:", r) }) {
			if path.IsAbs(d) && path.Clean(d) != "/" {
				dirs = append(dirs, strings.TrimPrefix(path.Clean(d), "/"))
			}
		}
	}
	return dirs
}

func (h *host) libcuda() library { return h.find("libcuda.so.1") }

// feature is what a library needs symbols for. A library without them still serves the rest.
type feature struct {
	symbol, use string
}

var (
	cudaFeatures = []feature{
		{"cuMemExportToShareableHandle", "sharing memory as descriptors"},
		{"cuIpcGetMemHandle", "sharing memory as IPC handles"},
		{"cuDeviceGetP2PAttribute", "ranks and atomics of pairs"},
		{"cuLaunchKernelEx", "dependent launches"},
	}
	nvmlFeatures = []feature{
		{"nvmlDeviceGetP2PStatus", "P2P matrices"},
		{"nvmlDeviceGetTopologyCommonAncestor", "PCIe paths"},
		{"nvmlDeviceGetNvLinkState", "NVLink paths"},
	}
	ncclFeatures = []feature{
		{"ncclCommInitRank", "communicators"},
		{"ncclAllReduce", "large all-reduce"},
	}
)

// machines are the ELF machine words of what Go calls an architecture.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "ppc64le": elf.EM_PPC64, "riscv64": elf.EM_RISCV, "s390x": elf.EM_S390}

// inspect reads a library's header and symbols. lacks is what it cannot do.
func inspect(r io.ReaderAt, features []feature) (lacks []string, err error) {
	var head [20]byte
	if n, err := r.ReadAt(head[:], 0); n < len(head) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case string(head[:4]) != elf.ELFMAG:
		return nil, errors.New("not a library")
	case elf.Class(head[4]) != elf.ELFCLASS64:
		return nil, errors.New("a 32-bit library")
	}
	// Only the header is needed for this, and the file may be cut.
	machine := elf.Machine(uint16(head[18]) | uint16(head[19])<<8)
	if want, known := machines[runtime.GOARCH]; known && machine != want {
		return nil, fmt.Errorf("built for %v, this is %v", machine, want)
	}
	have, err := exported(r, elf.Data(head[5]), features)
	if err != nil {
		return nil, err
	}
	for _, want := range features {
		if !have[want.symbol] {
			lacks = append(lacks, want.symbol+" ("+want.use+")")
		}
	}
	return lacks, nil
}

// Bounds on what is read of a library: real ones stay far below, and a broken header may ask for anything.
const (
	mostSections = 1 << 12
	mostTable    = 8 << 20 // bytes of the symbols, and of their names
)

// exported are those of the features that a 64-bit library defines. package debug/elf would read as much as headers say.
func exported(r io.ReaderAt, data elf.Data, features []feature) (map[string]bool, error) {
	var order binary.ByteOrder = binary.LittleEndian
	if data == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	read := func(at, n uint64) ([]byte, error) {
		if at > math.MaxInt64 || n > mostTable {
			return nil, errUnreadable
		}
		b := make([]byte, n)
		if got, _ := r.ReadAt(b, int64(at)); got < len(b) {
			return nil, errUnreadable
		}
		return b, nil
	}
	const headerSize, sectionSize, symbolSize = 64, 64, elf.Sym64Size
	b, err := read(0, headerSize)
	if err != nil {
		return nil, err
	}
	var h elf.Header64
	if _, err := binary.Decode(b, order, &h); err != nil {
		return nil, errUnreadable
	}
	if h.Shentsize != sectionSize || h.Shnum > mostSections {
		return nil, errUnreadable
	}
	if b, err = read(h.Shoff, uint64(h.Shnum)*sectionSize); err != nil {
		return nil, err
	}
	sections := make([]elf.Section64, h.Shnum)
	if _, err := binary.Decode(b, order, sections); err != nil {
		return nil, errUnreadable
	}
	at := slices.IndexFunc(sections, func(s elf.Section64) bool { return elf.SectionType(s.Type) == elf.SHT_DYNSYM })
	if at < 0 || int64(sections[at].Link) >= int64(len(sections)) {
		return nil, errUnreadable
	}
	table, strs := sections[at], sections[sections[at].Link]
	if elf.SectionFlag(table.Flags|strs.Flags)&elf.SHF_COMPRESSED != 0 { // the linker loads none
		return nil, errUnreadable
	}
	symbols, err := read(table.Off, table.Size)
	if err != nil {
		return nil, err
	}
	names, err := read(strs.Off, strs.Size)
	if err != nil {
		return nil, err
	}
	text := string(names)
	have := map[string]bool{}
	for ; len(symbols) >= symbolSize; symbols = symbols[symbolSize:] {
		var s elf.Sym64
		if _, err := binary.Decode(symbols[:symbolSize], order, &s); err != nil {
			return nil, errUnreadable
		}
		if elf.SectionIndex(s.Shndx) == elf.SHN_UNDEF || int64(s.Name) >= int64(len(text)) {
			continue
		}
		for _, f := range features {
			if strings.HasPrefix(text[s.Name:], f.symbol+"\x00") {
				have[f.symbol] = true
			}
		}
	}
	return have, nil
}

var errUnreadable = errors.New("its symbols cannot be read")

// checkLibrary looks at a library that is optional (missing is Warn or Skipped) or needed (Fail).
func checkLibrary(h *host, f *Finding, name string, features []feature, missing Status, without string, remedy ...string) library {
	l := h.find(name)
	there := func(dir string) bool { return h.t.exists(dir) == topo.Yes }
	if l.found == "" && len(l.unseen) > 0 {
		for _, p := range l.unseen {
			f.see("/"+p, "cannot be looked at")
		}
		f.conclude(Unknown, "whether "+name+" is there cannot be told", "run ls -lL /"+l.unseen[0])
		return l
	}
	if l.found == "" && !slices.ContainsFunc(defaultDirs, there) {
		f.conclude(Unknown, "no library folder can be read", "run ldconfig -p | grep "+name)
		return l
	}
	if l.found == "" {
		f.see("linker's folders", "no %s", name)
		f.conclude(missing, name+" is missing: "+without, remedy...)
		return l
	}
	f.see("/"+l.found, "%s", "→ /"+l.file)
	for _, o := range l.others {
		f.see("/"+o, "another one, later in the search")
	}
	r, err := h.t.open(l.found)
	if err != nil {
		f.see("/"+l.file, "%s", reason(err))
		f.conclude(Unknown, "it cannot be read", "check the file's mode: ls -lL /"+l.found)
		return l
	}
	defer r.Close()
	lacks, err := inspect(r, features)
	switch {
	case errors.Is(err, errUnreadable):
		f.conclude(OK, "/"+l.file+" (symbols not read)")
	case err != nil:
		f.see("/"+l.file, "%v", err)
		f.conclude(max(missing, Warn), fmt.Sprintf("/%s: %v", l.file, err), append([]string{"take its folder out of LD_LIBRARY_PATH, or reinstall it"}, remedy...)...)
	case len(lacks) > 0:
		f.conclude(Warn, "/"+l.file+" lacks "+strings.Join(lacks, ", "), "update the driver to have it")
	default:
		f.conclude(OK, "/"+l.file)
	}
	return l
}

func checkCUDALibrary(h *host, f *Finding) {
	remedy := "install NVIDIA's driver (its user-space part too)"
	if h.inside != "" {
		remedy = "start the container with --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility"
	}
	missing := Fail
	if h.realDriver() {
		missing = Unknown // it was found where we did not look
		remedy = ""
	}
	l := checkLibrary(h, f, "libcuda.so.1", cudaFeatures, missing, "CUDA cannot be used", remedy)
	if strings.Contains(l.file, "/stubs/") || strings.Contains(l.found, "/stubs/") {
		f.conclude(Fail, "/"+l.found+" is the toolkit's stub, not a driver", "take the toolkit's stubs folder out of LD_LIBRARY_PATH")
	}
	if errors.Is(h.o.OpenErr, gpu.ErrMissingSymbol) {
		f.see("dlsym", "%v", h.o.OpenErr)
		f.conclude(Fail, "the library lacks functions that are needed", "reinstall or update the driver: its library is not complete")
	}
}

func checkNVML(h *host, f *Finding) {
	remedy := "install the driver's utilities (libnvidia-compute, nvidia-driver-NVML)"
	if h.inside != "" {
		remedy = "add utility to the container's NVIDIA_DRIVER_CAPABILITIES"
	}
	checkLibrary(h, f, "libnvidia-ml.so.1", nvmlFeatures, Warn, "links and P2P codes stay unknown", remedy)
	if h.o.NVMLErr != nil {
		f.see("nvmlInit", "%v", h.o.NVMLErr)
		f.conclude(Warn, "NVML does not answer: "+clean(h.o.NVMLErr.Error()), "run nvidia-smi: it fails in the same way and says more")
	}
}

func checkNCCL(h *host, f *Finding) {
	checkLibrary(h, f, "libnccl.so.2", ncclFeatures, Skipped, "optional, for large sizes and several nodes",
		"install libnccl2, or add the folder of Python's nvidia-nccl package to LD_LIBRARY_PATH")
}
