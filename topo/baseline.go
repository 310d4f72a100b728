package topo

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Baseline is what a machine was once found to be, kept to be told when that changes.
type Baseline struct {
	Kind        string       `json:"kind"`
	Version     int          `json:"version"` // FormatVersion
	Key         Key          `json:"key"`
	Machine     *Machine     `json:"machine"`
	Measurement *Measurement `json:"measurement,omitempty"` // nil: claims alone
}

const baselineKind, baselineName = "fenceline-baseline", "baseline"

// NewBaseline is the baseline of a machine; measured may be nil.
func NewBaseline(k Key, m *Machine, measured *Measurement) *Baseline {
	return &Baseline{Kind: baselineKind, Version: FormatVersion, Key: k, Machine: m, Measurement: measured}
}

// Save writes the baseline to a file, whole or not at all. Symbolic links are followed, and what is no plain file is
// refused. A baseline that could not be read back is refused with an error that matches ErrFormat.
func (b *Baseline) Save(path string) error {
	if err := b.validate(); err != nil {
		return fmt.Errorf("save %s: %w: %w", baselineName, ErrFormat, err)
	}
	return writeRecord(path, baselineName, b)
}

// ReadBaseline reads what Save wrote. A file that is cut off, foreign or of another version is a *RecordError.
func ReadBaseline(path string) (*Baseline, error) {
	var b Baseline
	if err := readRecord(path, baselineName, baselineKind, &b); err != nil {
		return nil, err
	}
	return &b, nil
}

func (b *Baseline) validate() error {
	if b.Machine == nil {
		return errors.New("no machine")
	}
	if err := b.Machine.validate(); err != nil {
		return err
	}
	if err := b.Key.fits(b.Machine); err != nil {
		return fmt.Errorf("the key: %w", err)
	}
	if b.Measurement == nil {
		return nil
	}
	if err := b.Measurement.Key.fits(b.Machine); err != nil {
		return fmt.Errorf("the measurement: %w", err)
	}
	if n := len(b.Machine.Devices); len(b.Measurement.Pairs) != n {
		return fmt.Errorf("the measurement has %d rows for %d devices", len(b.Measurement.Pairs), n)
	}
	return b.Measurement.validate()
}

// fits refuses a key of other devices than m's, or of another order. One that names no device is of a machine in a file.
func (k *Key) fits(m *Machine) error {
	if len(k.UUIDs) == 0 {
		return nil
	}
	if len(k.UUIDs) != len(m.Devices) {
		return fmt.Errorf("it is of %d devices, and the machine has %d", len(k.UUIDs), len(m.Devices))
	}
	for i, d := range m.Devices {
		if k.UUIDs[i] != d.UUID {
			return fmt.Errorf("its device %d is %q, and the machine's is %q", i, clip(k.UUIDs[i]), clip(d.UUID))
		}
	}
	return nil
}

// Difference is one thing that is not as the baseline has it.
type Difference struct {
	What     string `json:"what"` // "GPU0 to GPU1: read"
	Expected string `json:"expected"`
	Got      string `json:"got"`
}

// Tolerance is the share by which Check lets a rate fall, or a latency rise, before it is a difference.
const Tolerance = 0.25

// Check lists how now differs from the baseline; none is nil. Devices are matched by UUID, and in pasted text, which has
// none, by ordinal. Only what the baseline knew is expected: an answer it did not have cannot differ, but one
// that is not known any more does. A rate may fall and a latency rise by tolerance, a share: 0 is Tolerance.
// The boot id is not compared: a baseline is to outlive a reboot.
func (b *Baseline) Check(now *Baseline, tolerance float64) []Difference {
	if tolerance == 0 {
		tolerance = Tolerance
	}
	c := &comparison{was: b, is: now, tolerance: tolerance}
	c.same("backend", b.Machine.Driver.Name, now.Machine.Driver.Name)
	c.same("emulated", strconv.FormatBool(b.Machine.Emulated), strconv.FormatBool(now.Machine.Emulated))
	c.same("driver", b.Key.Driver, now.Key.Driver)
	c.same("driver API", number(b.Machine.Driver.API), number(now.Machine.Driver.API))
	c.same("kernel", b.Key.Kernel, now.Key.Kernel)
	at := c.match()
	if b.Measurement != nil && now.Measurement == nil {
		c.add("probes", "probed", "not probed")
	}
	for i, d := range b.Machine.Devices {
		if at[i] >= 0 {
			c.device(fmt.Sprintf("GPU%d: ", i), d, now.Machine.Devices[at[i]])
		}
	}
	for i := range at {
		for j := range at {
			if at[i] >= 0 && at[j] >= 0 {
				c.pair(i, j, at[i], at[j])
			}
		}
	}
	c.nics(at)
	return c.found
}

// NotCompared lists what Check leaves out of account, for the baseline does not know it: probes, the paths of pairs, and
// what peer access they have. It is nil when the baseline has all of that.
func (b *Baseline) NotCompared() []string {
	var paths, access, list []string
	for i, row := range b.Machine.Pairs {
		for j, p := range row {
			pair := fmt.Sprintf("GPU%d to GPU%d", i, j)
			if i != j && p.Link == "" {
				paths = append(paths, pair)
			}
			if i != j && p.CanRead() == Unknown && p.CanWrite() == Unknown {
				access = append(access, pair)
			}
		}
	}
	if b.Measurement == nil {
		list = append(list, "probes")
	}
	for _, l := range []struct {
		what  string
		pairs []string
	}{{"path", paths}, {"peer access", access}} {
		const most = 4
		switch n := len(l.pairs); {
		case n > most:
			list = append(list, fmt.Sprintf("%s of %s and %d more", l.what, strings.Join(l.pairs[:most], ", "), n-most))
		case n > 0:
			list = append(list, l.what+" of "+strings.Join(l.pairs, ", "))
		}
	}
	return list
}

// comparison collects differences.
type comparison struct {
	was, is   *Baseline
	tolerance float64
	found     []Difference
}

func (c *comparison) add(what, expected, got string) {
	c.found = append(c.found, Difference{what, expected, dash(got)})
}

// same expects a value, where one was known.
func (c *comparison) same(what, was, is string) {
	if was != "" && was != is {
		c.add(what, was, is)
	}
}

// match finds for each device of the baseline its ordinal now, -1 when it is gone. Gone and new ones are differences.
func (c *comparison) match() []int {
	was, is := c.was.Machine.Devices, c.is.Machine.Devices
	at := make([]int, len(was))
	taken := make([]bool, len(is))
	for i, d := range was {
		at[i] = -1
		for j, e := range is {
			if d.UUID == e.UUID && (d.UUID != "" || i == j) {
				at[i], taken[j] = j, true
			}
		}
		if at[i] < 0 {
			c.add(fmt.Sprintf("GPU%d", i), called(d), "absent")
		}
	}
	for j, e := range is {
		if !taken[j] {
			c.add(fmt.Sprintf("a further device, GPU%d", j), "absent", called(e))
		}
	}
	return at
}

func called(d Device) string {
	if d.UUID != "" {
		return d.UUID
	}
	return d.Name
}

// device compares what does not hang on a peer.
func (c *comparison) device(who string, was, is Device) {
	c.same(who+"name", was.Name, is.Name)
	c.same(who+"PCI address", was.PCI, is.PCI)
	c.same(who+"compute capability", number(was.SM), number(is.SM))
	c.same(who+"SMs", number(was.SMs), number(is.SMs))
	c.same(who+"memory", bytesOf(was.TotalMem), bytesOf(is.TotalMem))
	c.same(who+"BAR1", bytesOf(was.BAR1), bytesOf(is.BAR1))
	c.same(who+"NUMA node", optional(was.NUMA), optional(is.NUMA))
	c.same(who+"NVLinks", optional(was.NVLinks), optional(is.NVLinks))
	c.tri(who+"MIG", was.MIG, is.MIG)
	if was.Slice != nil {
		c.same(who+"MIG slice", was.Slice.String(), is.Slice.String())
	}
	if was.Affinity != nil {
		a := is.Affinity
		if a == nil {
			a = &Affinity{}
		}
		for k, name := range affinityNames {
			c.same(who+name, was.Affinity.cells()[k], a.cells()[k])
		}
	}
}

// String is a slice as CUDA_VISIBLE_DEVICES names it; "" for none.
func (s *Slice) String() string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("MIG-%s/%d/%d", s.GPU, s.GPUInstance, s.ComputeInstance)
}

// nics compares the NICs, which only pasted text has. They are matched by what the legend calls them, else by name; a
// number alone may be another adapter's after one was added.
func (c *comparison) nics(at []int) {
	was, is := c.was.Machine.NICs, c.is.Machine.NICs
	where := make([]int, len(was))
	taken := make([]bool, len(is))
	for k, n := range was {
		where[k] = slices.IndexFunc(is, func(o NIC) bool {
			if n.Device != "" && o.Device != "" {
				return n.Device == o.Device
			}
			return n.Name == o.Name
		})
		if where[k] < 0 {
			c.add(n.called(), "present", "absent")
			continue
		}
		taken[where[k]] = true
	}
	pasted := c.was.Machine.Driver.Name == pastedName // and then it had none
	for k, n := range is {
		if !taken[k] && (len(was) > 0 || pasted) {
			c.add("a further NIC, "+n.called(), "absent", "present")
		}
	}
	for k, n := range was {
		if where[k] < 0 {
			continue
		}
		now := is[where[k]]
		for i, path := range n.GPUs {
			if at[i] >= 0 {
				c.same(fmt.Sprintf("%s to GPU%d: path", n.called(), i), path, now.GPUs[at[i]])
			}
		}
		for l, path := range n.NICs {
			if l <= k || where[l] < 0 {
				continue
			}
			got := ""
			if now.NICs != nil {
				got = now.NICs[where[l]]
			}
			c.same(n.called()+" to "+was[l].called()+": path", path, got)
		}
	}
}

func (n *NIC) called() string {
	if n.Device != "" {
		return n.Name + " (" + n.Device + ")"
	}
	return n.Name
}

func (c *comparison) tri(what string, was, is Tri) {
	if was != Unknown && was != is {
		c.add(what, was.String(), is.String())
	}
}

// pair compares what is claimed and what was measured of i reaching j, which are now ni and nj.
func (c *comparison) pair(i, j, ni, nj int) {
	who := fmt.Sprintf("GPU%d to GPU%d: ", i, j)
	if i != j {
		was, is := c.was.Machine.Pairs[i][j], c.is.Machine.Pairs[ni][nj]
		c.same(who+"path", was.Link, is.Link)
		c.same(who+"NVLink version", was.NVLinkVersion, is.NVLinkVersion)
		c.tri(who+"peer access", was.Access, is.Access)
		c.state(who+"read claim", was.Read, was.ReadCode, is.Read, is.ReadCode)
		c.state(who+"write claim", was.Write, was.WriteCode, is.Write, is.WriteCode)
		c.state(who+"atomics claim", was.NativeAtomics, was.AtomicsCode, is.NativeAtomics, is.AtomicsCode)
		c.state(who+"NVLink claim", was.NVLinkCode.Tri(), was.NVLinkCode, is.NVLinkCode.Tri(), is.NVLinkCode)
		c.state(who+"property claim", was.PropertyCode.Tri(), was.PropertyCode, is.PropertyCode.Tri(), is.PropertyCode)
		if was.Access == Yes && is.Access == Yes { // a rank of a pair without access means nothing
			c.same(who+"performance rank", strconv.Itoa(was.PerfRank), strconv.Itoa(is.PerfRank))
		}
	}
	if c.was.Measurement == nil || c.is.Measurement == nil {
		return
	}
	was, is := c.was.Measurement.Pairs[i][j], c.is.Measurement.Pairs[ni][nj]
	now := is.checks()
	for k, w := range was.checks() {
		if n := now[k]; w.Answer != Unknown && w.Answer != n.Answer {
			c.add(who+w.name, w.String(), n.Check.String())
		}
	}
	values := is.numbers()
	for k, w := range was.numbers() {
		n := values[k]
		worse := n.value < w.value*(1-c.tolerance)
		if w.latency {
			worse = n.value == 0 || n.value > w.value*(1+c.tolerance)
		}
		if w.value != 0 && worse {
			c.add(who+w.name, w.String(), n.String())
		}
	}
}

// state compares an answer with its code. Where both have a code the code counts, for it holds the reason.
func (c *comparison) state(what string, was Tri, wasCode Code, is Tri, isCode Code) {
	if wasCode != "" && isCode != "" {
		c.same(what, string(wasCode), string(isCode))
		return
	}
	if was != Unknown && was != is {
		c.add(what, status(was, wasCode), status(is, isCode))
	}
}

// widest is the longest text that WriteDifferences gives a column for.
const widest = 40

// WriteDifferences prints the differences as a table; without any it says so. What was expected goes on a line of its
// own where it is long: a column as wide would push all others off the screen.
func WriteDifferences(w io.Writer, all []Difference) error {
	if len(all) == 0 {
		return flush(w, "differences", "As the baseline has it.\n")
	}
	what, expected := len("What"), len("Expected")
	for _, d := range all {
		what = max(what, utf8.RuneCountInString(d.What))
		if n := utf8.RuneCountInString(d.Expected); n <= widest {
			expected = max(expected, n)
		}
	}
	var b strings.Builder
	line := func(first, second, third string) {
		fmt.Fprintf(&b, "%-*s  %-*s  %s\n", what, first, expected, second, third)
	}
	line("What", "Expected", "Got")
	for _, d := range all {
		if utf8.RuneCountInString(d.Expected) <= widest {
			line(d.What, d.Expected, d.Got)
			continue
		}
		fmt.Fprintf(&b, "%-*s  %s\n", what, d.What, d.Expected)
		line("", "", d.Got)
	}
	return flush(w, "differences", b.String())
}

// number, bytesOf and optional write what is known; unknown is empty.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func bytesOf(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%d bytes)", memory(n), n)
}

func optional(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}
