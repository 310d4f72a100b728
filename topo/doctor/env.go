package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// variable is an environment variable of others that changes what GPUs do here.
type variable struct {
	name  string
	judge func(h *host, value string) verdict
}

// verdict is what a value leads to. The zero value is a good one.
type verdict struct {
	status Status
	result string
	remedy string
}

// toggle is a variable that is on for one value alone. Anything that is neither that nor off is a mistake: it may mean
// either to whoever reads it.
func toggle(s Status, result, remedy string) func(*host, string) verdict {
	return func(_ *host, v string) verdict {
		switch v {
		case "1":
			return verdict{s, result, remedy}
		case "0", "":
			return verdict{}
		}
		return verdict{Warn, "is neither 0 nor 1", "set it to 0 or 1, or unset it"}
	}
}

// oneOf is a variable with a list of values. CUDA and NCCL ignore others without a word.
func oneOf(values ...string) func(*host, string) verdict {
	return func(_ *host, v string) verdict {
		if slices.Contains(values, v) {
			return verdict{}
		}
		return verdict{Warn, "is none of " + strings.Join(values, ", ") + " and is ignored", "correct or unset it"}
	}
}

var cudaVariables = []variable{
	{"CUDA_VISIBLE_DEVICES", judgeVisible},
	{"CUDA_DEVICE_ORDER", oneOf("FASTEST_FIRST", "PCI_BUS_ID")},
	{"CUDA_MODULE_LOADING", func(_ *host, v string) verdict {
		switch v {
		case "EAGER", "DEFAULT":
			return verdict{}
		case "LAZY":
			return verdict{Warn, "loads kernels at their first launch, which waits for a peer that may be waiting for it",
				"unset it: Fenceline then sets EAGER before CUDA starts"}
		}
		return verdict{Warn, "is none of EAGER, LAZY, DEFAULT and is ignored", "correct or unset it"}
	}},
	{"CUDA_LAUNCH_BLOCKING", toggle(Fail, "makes each launch wait for its kernel: ranks of one process wait for each other until the deadline", "unset it")},
	{"CUDA_DISABLE_PTX_JIT", toggle(Fail, "forbids compiling PTX, which is how all kernels are loaded", "unset it")},
	{"CUDA_CACHE_DISABLE", toggle(Warn, "compiles all kernels anew in each process", "unset it")},
	{"CUDA_DEVICE_MAX_CONNECTIONS", func(_ *host, v string) verdict {
		n, err := strconv.Atoi(v)
		switch {
		case err != nil || n < 1 || n > 32:
			return verdict{Warn, "is no number from 1 to 32 and is ignored", "correct or unset it"}
		case n == 1:
			return verdict{Warn, "puts all streams of a device into one queue: ranks that share a device may wait for each other", "unset it, or set 8 or more"}
		}
		return verdict{}
	}},
	{"CUDA_MPS_PIPE_DIRECTORY", func(_ *host, v string) verdict {
		return verdict{Unknown, "is set: GPUs may be shared through MPS, where a fault of one process ends others", "stop MPS if ranks fail together: echo quit | nvidia-cuda-mps-control"}
	}},
	{"NVIDIA_VISIBLE_DEVICES", func(h *host, v string) verdict {
		if v == "none" || v == "void" || v == "" {
			if h.realDriver() {
				return verdict{} // mounted by other means
			}
			return verdict{Fail, "gives this container no GPU", "start it with --gpus all, or NVIDIA_VISIBLE_DEVICES=all and the nvidia runtime"}
		}
		return verdict{}
	}},
	{"NVIDIA_DRIVER_CAPABILITIES", func(_ *host, v string) verdict {
		have := strings.Split(v, ",")
		if slices.Contains(have, "all") || slices.Contains(have, "compute") && slices.Contains(have, "utility") || v == "" {
			return verdict{}
		}
		if slices.Contains(have, "compute") {
			return verdict{Warn, "lacks utility: NVML is not mounted", "set it to compute,utility"}
		}
		return verdict{Fail, "lacks compute: libcuda is not mounted", "set it to compute,utility"}
	}},
}

// judgeVisible reads CUDA_VISIBLE_DEVICES as far as that is possible without knowing the devices: CUDA cuts the list
// at the first entry that it can't resolve, without a word.
func judgeVisible(h *host, v string) verdict {
	const fix = "list indices or UUIDs (nvidia-smi -L), with commas between, or unset it"
	if strings.TrimSpace(v) == "" {
		return verdict{Fail, "is empty and hides every device", "unset it"}
	}
	var seen []string
	for i, e := range strings.Split(v, ",") {
		e = strings.TrimSpace(e)
		n, err := strconv.Atoi(e)
		uuid := strings.HasPrefix(e, "GPU-") || strings.HasPrefix(e, "MIG-")
		bad := ""
		switch {
		case err == nil && n < 0:
			bad = fmt.Sprintf("%q ends the list", e)
		case err == nil && h.physical() > 0 && n >= h.physical():
			bad = fmt.Sprintf("there is no device %d", n)
		case err != nil && !uuid:
			bad = fmt.Sprintf("%q is neither an index nor a UUID", clean(e))
		case slices.Contains(seen, e):
			bad = fmt.Sprintf("%q is there twice", clean(e))
		}
		switch {
		case bad != "" && i == 0:
			return verdict{Fail, bad + ": no device is visible", fix}
		case bad != "":
			return verdict{Warn, fmt.Sprintf("%s: CUDA ignores it and what follows, or all of the list", bad), fix}
		}
		seen = append(seen, e)
	}
	return verdict{}
}

// physical is the number of GPUs on the host as this process sees it, 0 when it is not known.
func (h *host) physical() int {
	n := 0
	for _, d := range h.gpus {
		if d.driver == "nvidia" || d.driver == "" {
			n++
		}
	}
	return n
}

const ownWay = "; Fenceline does not read it"

var ncclVariables = []variable{
	{"NCCL_P2P_DISABLE", toggle(Warn, "keeps NCCL from peer access"+ownWay, "unset it once demo probe passes")},
	{"NCCL_P2P_LEVEL", func(_ *host, v string) verdict {
		if slices.Contains([]string{"LOC", "NVL", "PIX", "PXB", "PXN", "PHB", "SYS"}, v) {
			return verdict{}
		}
		if n, err := strconv.Atoi(v); err == nil && n >= 0 {
			return verdict{}
		}
		return verdict{Warn, "is none of LOC, NVL, PIX, PXB, PXN, PHB, SYS", "correct or unset it"}
	}},
	{"NCCL_P2P_DIRECT_DISABLE", toggle(Warn, "keeps NCCL from direct access inside a process"+ownWay, "unset it once demo probe passes")},
	{"NCCL_IGNORE_DISABLED_P2P", toggle(Warn, "makes NCCL overlook that NVML reports peer access as broken", "unset it and mend the cause")},
	{"NCCL_SHM_DISABLE", toggle(Warn, "keeps NCCL from host shared memory"+ownWay, "unset it once /dev/shm is large enough")},
	{"NCCL_P2P_USE_CUDA_MEMCPY", oneOf("0", "1")},
	{"NCCL_CUMEM_ENABLE", oneOf("0", "1", "-2")},
	{"NCCL_DEBUG", func(_ *host, v string) verdict {
		if slices.Contains([]string{"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"}, strings.ToUpper(v)) {
			return verdict{}
		}
		return verdict{Warn, "is none of VERSION, WARN, INFO, TRACE and is ignored", "correct or unset it"}
	}},
}

func checkCUDAEnv(h *host, f *Finding) { judgeVariables(h, f, cudaVariables) }

func checkNCCLEnv(h *host, f *Finding) { judgeVariables(h, f, ncclVariables) }

func judgeVariables(h *host, f *Finding, vars []variable) {
	for _, v := range vars {
		value, set := h.env[v.name]
		if !set {
			continue
		}
		f.see(v.name, "%q", value)
		if w := v.judge(h, value); w.status != OK {
			f.conclude(w.status, fmt.Sprintf("%s=%s %s", v.name, clean(value), w.result), v.name+": "+w.remedy)
		}
	}
	switch {
	case f.Result != "":
	case len(f.Evidence) == 0:
		f.conclude(OK, "nothing set")
	default:
		f.conclude(OK, "nothing harmful set")
	}
}

const ownPrefix = "FENCELINE_"

func checkOwnEnv(h *host, f *Finding) {
	var set []string
	for name := range h.env {
		if strings.HasPrefix(strings.ToUpper(name), ownPrefix) {
			set = append(set, name)
		}
	}
	slices.Sort(set)
	for _, name := range set {
		value := h.env[name]
		f.see(name, "%q", value)
		i := slices.IndexFunc(h.o.Knobs, func(k Knob) bool { return k.Name == name })
		switch {
		case h.o.Knobs == nil:
			f.conclude(Unknown, name+" cannot be judged: the list of knobs was not given", "run demo doctor")
		case i < 0:
			remedy := "unset " + name
			if near := h.nearest(name); near != "" {
				remedy = near + " may be meant; otherwise unset " + name
			}
			f.conclude(Fail, name+" is no knob of Fenceline", remedy)
		case h.o.Knobs[i].Check != nil:
			if err := h.o.Knobs[i].Check(value); err != nil {
				f.conclude(Fail, fmt.Sprintf("%s=%s: %s", name, clean(value), clean(err.Error())), "correct "+name+" or unset it")
			}
		}
	}
	switch {
	case f.Result != "":
	case len(set) == 0:
		f.conclude(OK, "nothing set")
	default:
		f.conclude(OK, "all names and values are known")
	}
}

// nearest is the knob whose name is at most three edits away, "" when there is none.
func (h *host) nearest(name string) string {
	best, least := "", 4
	for _, k := range h.o.Knobs {
		if d := distance(strings.ToUpper(name), k.Name); d < least {
			best, least = k.Name, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete or change between two words. Very long words are simply far.
func distance(a, b string) int {
	if len(a) > 100 || len(b) > 100 {
		return 100
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
