package topo

import "fmt"

// Check is the outcome of one probe of one ordered pair. Unknown means that it was not run.
type Check struct {
	Answer Tri    `json:"answer"`
	Detail string `json:"detail,omitempty"` // why not, in words: "timed out after 2s", "child process died: …"
	// Of a wrong pattern: the byte offset of the first wrong word, what was expected there, and what was found.
	Offset   uint64 `json:"offset,omitempty"`
	Expected uint64 `json:"expected,omitempty"`
	Got      uint64 `json:"got,omitempty"`
}

// Refutes is whether the probe speaks against the pair. One that could not be made although it was tried, say because an earlier one
// still hangs, does so too; one that nobody asked for does not.
func (c Check) Refutes() bool { return c.Answer == No || c.Answer == Unknown && c.Detail != "" }

func (c Check) String() string {
	switch {
	case c.Answer == Yes:
		return "ok"
	case c.Detail != "":
		return c.Detail
	case c.Answer == No:
		return fmt.Sprintf("expected %#x, got %#x at offset %d", c.Expected, c.Got, c.Offset)
	}
	return "not probed"
}

// Measured is what probing found of one ordered pair (i reaches j's memory). Numbers are 0 when not measured.
type Measured struct {
	Read    Check `json:"read"`    // a kernel on i reads a pattern in j's memory
	Write   Check `json:"write"`   // a kernel on i writes a pattern into j's memory, j checks
	Flags   Check `json:"flags"`   // data, then a flag, written by i: j sees the data when it sees the flag
	Atomics Check `json:"atomics"` // atomics from both sides on one word add up

	FlagLatency float64 `json:"flag_latency_ns,omitempty"` // one way, nanoseconds
	LoadLatency float64 `json:"load_latency_ns,omitempty"` // one dependent load, nanoseconds
	CopyRate    float64 `json:"copy_gbs,omitempty"`        // copy engine, peer access on, GB/s (10^9 bytes)
	CopyNoP2P   float64 `json:"copy_nop2p_gbs,omitempty"`  // copy engine, peer access off
	CopyBoth    float64 `json:"copy_both_gbs,omitempty"`   // copy engine, both directions at once, sum
	BothNoP2P   float64 `json:"both_nop2p_gbs,omitempty"`  // the same, peer access off
	KernelRate  float64 `json:"kernel_gbs,omitempty"`      // loads by a kernel, GB/s
	KernelBoth  float64 `json:"kernel_both_gbs,omitempty"` // loads by kernels, both directions at once, sum
}

// Usable is whether direct kernels may use the pair: what they do must have been seen to work.
func (m Measured) Usable() (read, write Tri) {
	return m.Read.Answer.And(m.Flags.Answer), m.Write.Answer.And(m.Flags.Answer)
}

// Key says for which state of which machine a measurement holds. Any difference voids it.
type Key struct {
	UUIDs  []string `json:"uuids"`
	Driver string   `json:"driver"`  // release, or API version where the release is not known
	Kernel string   `json:"kernel"`  // uname -r
	BootID string   `json:"boot_id"` // /proc/sys/kernel/random/boot_id
}

// Measurement is the probes of a whole machine.
type Measurement struct {
	Version int          `json:"version"` // FormatVersion
	Key     Key          `json:"key"`
	Pairs   [][]Measured `json:"pairs"` // as Machine.Pairs
}
