package allreduce

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/kernels"
	"github.com/fenceline/fenceline/topo"
)

// SelectInput is all that a plan depends on.
type SelectInput struct {
	Machine     *topo.Machine
	Measurement *topo.Measurement // what probing found of Machine; nil: claims decide
	Devices     []int             // the ordinal of each rank's device
	Bytes       uint64            // of the message
	DType       DType
	Want        Algorithm // other than Auto: this one if it can work at all; wins over Knobs.Algorithm
	MaxBytes    uint64    // as Config.MaxBytes; 0: the knob's, or the default
	PushBytes   uint64    // as Config.PushBytes
	Table       Table     // nil: the shipped choice
	AllowNCCL   bool      // as Config.AllowNCCL
	NCCL        error     // why the library cannot be loaded, from CheckNCCL; nil: it can, or nobody has tried
	Knobs       Knobs
}

// Table is what tuning found. Of the rules that match a call, the first whose algorithm can work is followed; Auto
// only. Where none does, the shipped choice is. A table that was saved is a TunedTable.
type Table []Rule

// Rule prefers an algorithm, and a grid, for some calls.
type Rule struct {
	World     int       `json:"world,omitempty"`  // ranks, 0: any
	DTypes    []DType   `json:"dtypes,omitempty"` // none: any
	From      uint64    `json:"from,omitempty"`   // bytes, inclusive
	To        uint64    `json:"to,omitempty"`     // bytes, inclusive; 0: no end
	Algorithm Algorithm `json:"algorithm"`
	Blocks    int       `json:"blocks,omitempty"`  // per rank, as many as can be resident at most; 0: by size
	Threads   int       `json:"threads,omitempty"` // per block, a multiple of 32 up to 512; 0: by size
}

// UnmarshalJSON reads a rule. Fields that it does not know are refused, and so is a list of element types that is none of names, which
// encoding/json would take for bytes.
func (r *Rule) UnmarshalJSON(b []byte) error {
	var names struct {
		DTypes []*string `json:"dtypes"`
	}
	if err := json.Unmarshal(b, &names); err != nil {
		return err
	}
	if i := slices.Index(names.DTypes, nil); i >= 0 {
		return fmt.Errorf("element type %d of a rule is null: use one of %s", i, strings.Join(dtypeNames[:], ", "))
	}
	type plain Rule
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	return dec.Decode((*plain)(r))
}

func (r *Rule) matches(world int, bytes uint64, dt DType) bool {
	return (r.World == 0 || r.World == world) && (len(r.DTypes) == 0 || slices.Contains(r.DTypes, dt)) &&
		bytes >= r.From && (r.To == 0 || bytes <= r.To)
}

// Select says what a call would do, on any machine, present or only described. It is a pure function: nothing is
// asked or changed. The ladder is direct kernels, for which every device must read and write every other and flags must
// work; direct kernels that only write to peers (push), where reading fails and the rest works; copy, which needs one
// direction of each pair; host, which needs nothing. The reason says why each rung above the one taken was refused. Among
// the direct kernels, size, world and links decide. All ranks get this plan, since every pair of their devices counts.
//
// A pair that probing found wanting is as good as absent, whatever is claimed. One that was not probed is taken at
// its claims. Where nothing at all is said of a pair's peer access, an NVLink between the two counts as a claim; a pair
// without one stays unknown, which is enough for copy and not for direct kernels.
//
// Wide packets take a kernel build that not every driver reads.
//
// NCCL is taken only where it is asked for, or where a rule of the table does and that is allowed. It needs a device for each rank, all
// in this process, and real ones.
//
// Blocks and Threads are for an empty device; a Group may have room for fewer. The error is an *ArgumentError for
// input that does not fit together, or a *PlanError.
func Select(in SelectInput) (Plan, error) {
	if err := in.validate(); err != nil {
		return Plan{}, err
	}
	s := selector{m: in.Machine, measured: in.Measurement, devices: in.Devices, knobs: in.Knobs, allowNCCL: in.AllowNCCL || in.Knobs.NCCL}
	s.library = func() error { return in.NCCL }
	p, err := s.policy(in.Want)
	if err != nil {
		return Plan{}, err
	}
	p.table, p.most, p.push = in.Table, in.MaxBytes, in.PushBytes
	p.bound()
	return p.plan(p.table, in.Bytes, in.DType, false, func(a Algorithm, n uint64, want grid) (int, int) {
		return shape(a, n, p.world, want, func(threads int) int { return fits(a, n, p.world, 2*p.mostBlocks(a, threads), 2) })
	}), nil
}

func (in *SelectInput) validate() error {
	if err := checkMachine(in.Machine); err != nil {
		return err
	}
	n := len(in.Machine.Devices)
	if len(in.Devices) < 1 || len(in.Devices) > flags.MaxRanks {
		return bad("devices", "%d ranks: use 1 to %d", len(in.Devices), flags.MaxRanks)
	}
	for r, d := range in.Devices {
		if d < 0 || d >= n {
			return &ArgumentError{Rank: r, Arg: "devices", Detail: fmt.Sprintf("device %d: there are 0 to %d", d, n-1)}
		}
	}
	if err := checkMeasurement(in.Measurement, in.Machine); err != nil {
		return err
	}
	if err := in.Knobs.validate(); err != nil {
		return err
	}
	if in.MaxBytes == 0 {
		in.MaxBytes = in.Knobs.MaxBytes
	}
	if in.MaxBytes == 0 {
		in.MaxBytes = DefaultMaxBytes
	}
	const most = 1 << 62 // so that sums do not wrap
	switch {
	case in.MaxBytes%16 != 0 || in.MaxBytes > mostMaxBytes:
		return bad("MaxBytes", "%d: use a multiple of 16 up to 32 GiB", in.MaxBytes)
	case in.PushBytes%16 != 0 || in.PushBytes > mostPushBytes:
		return bad("PushBytes", "%d: use a multiple of 16 up to 4 GiB", in.PushBytes)
	case in.Bytes > most:
		return bad("bytes", "%d is above %d", in.Bytes, uint64(most))
	case !in.DType.valid():
		return &NameError{Kind: "dtype", Name: fmt.Sprint(uint8(in.DType)), Known: dtypeNames[:]}
	}
	return in.Table.check()
}

func (t Table) check() error {
	for i, r := range t {
		if r.Algorithm == Auto || r.Algorithm >= numAlgorithms {
			return bad("table", "rule %d prefers algorithm %v: use one of %s", i, r.Algorithm, strings.Join(algorithmNames[1:], ", "))
		}
		switch {
		case r.World < 0 || r.World > flags.MaxRanks:
			return bad("table", "rule %d is for %d ranks: use 1 to %d, or 0 for any number", i, r.World, flags.MaxRanks)
		case r.To != 0 && r.From > r.To:
			return bad("table", "rule %d ends at %d bytes, before it starts at %d: put the smaller size first", i, r.To, r.From)
		case r.Blocks < 0 || r.Blocks > flags.MaxBlocks:
			return bad("table", "rule %d has %d blocks: use 1 to %d, or 0 to choose by size", i, r.Blocks, flags.MaxBlocks)
		case r.Threads < 0 || r.Threads > maxThreads || r.Threads%32 != 0:
			return bad("table", "rule %d has %d threads: use a multiple of 32 up to %d, or 0 to choose by size", i, r.Threads, maxThreads)
		}
		for _, dt := range r.DTypes {
			if !dt.valid() {
				return bad("table", "rule %d is for element type %d: use one of %s", i, uint8(dt), strings.Join(dtypeNames[:], ", "))
			}
		}
	}
	return nil
}

// asks is whether a rule for so many ranks asks for an algorithm.
func (t Table) asks(a Algorithm, world int) bool {
	return slices.ContainsFunc(t, func(r Rule) bool { return r.Algorithm == a && (r.World == 0 || r.World == world) })
}

func checkMachine(m *topo.Machine) error {
	if m == nil || len(m.Devices) == 0 {
		return bad("machine", "none is given, or one without devices")
	}
	n := len(m.Devices)
	if len(m.Pairs) != n || slices.ContainsFunc(m.Pairs, func(row []topo.Pair) bool { return len(row) != n }) {
		return bad("machine", "it has %d devices, and pairs for another number", n)
	}
	return nil
}

// checkMeasurement refuses a measurement of other devices. nil is none.
func checkMeasurement(meas *topo.Measurement, m *topo.Machine) error {
	if meas == nil {
		return nil
	}
	n := len(m.Devices)
	if len(meas.Pairs) != n || slices.ContainsFunc(meas.Pairs, func(row []topo.Measured) bool { return len(row) != n }) {
		return bad("measurement", "it was not taken on %d devices: probe again", n)
	}
	if len(meas.Key.UUIDs) == 0 {
		return nil
	}
	for i, d := range m.Devices {
		if len(meas.Key.UUIDs) != n || d.UUID != "" && meas.Key.UUIDs[i] != d.UUID {
			return bad("measurement", "it was taken on other devices than %s, or in another order: probe again", d.UUID)
		}
	}
	return nil
}

// selector judges pairs by all that is known of them.
type selector struct {
	m        *topo.Machine
	measured *topo.Measurement
	devices  []int
	knobs    Knobs

	allowNCCL bool
	library   func() error // why NCCL's cannot be loaded; asked only where all else is right
}

// policy climbs down the ladder for all ranks. What a size decides is left to the policy.
func (s *selector) policy(want Algorithm) (*policy, error) {
	asked, remedy, or := "asked for", "use auto, copy or host", ", or "
	if want == Auto && s.knobs.Algorithm != Auto {
		want, asked = s.knobs.Algorithm, "asked for by "+knobAlgo
		or = "; "
		remedy = knobAlgo + " asks for it: set it to auto, copy or host, or unset it"
	}
	p := &policy{world: len(s.devices), class: classify(s.m, s.devices), forced: want, rung: asked}
	if want >= numAlgorithms {
		return nil, &PlanError{Algorithm: want, Reason: "there is no such algorithm", Remedy: "use one of " + strings.Join(algorithmNames[:], ", ")}
	}
	if want == NCCL {
		if why, mend := s.refuseNCCL(); why != "" {
			return nil, &PlanError{Algorithm: want, Reason: why, Remedy: mend + or + remedy}
		}
		p.rung += ncclBits
		return p, nil
	}
	if want != Auto {
		if why := s.refuse(want); why != "" && want.Direct() {
			if want.wide() && s.refusePush() == "" {
				remedy = strings.Replace(remedy, "auto, ", "auto, oneshot-push, twoshot-push, ", 1)
			}
			return nil, &PlanError{Algorithm: want, Reason: why, Remedy: remedy}
		}
		return p, nil
	}
	for a := OneshotPull; a < NCCL; a++ {
		p.refused[a] = s.refuse(a)
		p.allowed[a] = p.refused[a] == ""
	}
	p.refused[NCCL] = "Config.AllowNCCL and " + knobNCCL + "=1 do not allow it"
	if s.allowNCCL {
		p.refused[NCCL], _ = s.refuseNCCL()
		p.allowed[NCCL] = p.refused[NCCL] == ""
	}
	p.last, p.rung = s.rung()
	if noPull, _ := s.obstacle(); noPull != "" && p.last == Auto && p.allowed[Copy] {
		p.allowed[Copy], p.refused[Copy] = false, noPull+", and copies would do so over the pairs that the group's kernels write over" // see claimPaths
	}
	return p, nil
}

// rung is Copy or Host where no direct kernel can run, otherwise Auto, and why.
func (s *selector) rung() (Algorithm, string) {
	noPull, open := s.obstacle()
	if noPull == "" {
		return Auto, s.describe()
	}
	if s.refusePush() == "" {
		return Auto, noPull + ", so peers are only written to"
	}
	if noCopy := s.refuseCopy(); noCopy != "" {
		return Host, fmt.Sprintf("%s, so direct kernels cannot run and copies would pass through host memory anyway", noCopy)
	}
	if open {
		return Copy, noPull + "; direct kernels are not risked on that, and the driver finds copies a way"
	}
	return Copy, fmt.Sprintf("%s, and direct kernels need both directions", noPull)
}

// nextRung is the policy below direct kernels, when they are refused for a reason other than the topology.
func (s *selector) nextRung(p policy, refused string) *policy {
	p.limit = [numAlgorithms]uint64{}
	for a := range p.allowed {
		if Algorithm(a).Direct() && p.allowed[a] {
			p.allowed[a], p.refused[a] = false, refused
		}
	}
	p.last, p.rung = Copy, refused+", so direct kernels cannot run"
	noCopy := s.refuseCopy()
	p.allowed[Copy], p.refused[Copy] = noCopy == "", noCopy
	if noCopy != "" {
		p.last, p.rung = Host, refused+"; "+noCopy
	}
	p.bound()
	return &p
}

// refuseWide is why there is no build of a kernel with wide packets for some device, "" where there is, or nobody knows.
func (s *selector) refuseWide(a Algorithm) string {
	for _, i := range s.devices {
		if sm, driver := s.m.Devices[i].SM, s.m.Driver.API; sm != 0 && driver != 0 {
			if _, err := kernels.Find(sources[a].file, sm, driver); err != nil {
				return fmt.Sprintf("device %d: %v", i, err)
			}
		}
	}
	return ""
}

// refuse is why an algorithm other than NCCL should not be taken, "" for no reason.
func (s *selector) refuse(a Algorithm) string {
	switch {
	case a.pulls():
		return s.refusePull()
	case a.wide():
		return cmp.Or(s.refusePush(), s.refuseWide(a))
	case a.pushes():
		return s.refusePush()
	case a == Copy:
		return s.refuseCopy()
	}
	return ""
}

func (s *selector) describe() string {
	distinct := slices.Compact(slices.Sorted(slices.Values(s.devices)))
	switch {
	case len(s.devices) == 1:
		return "a single rank"
	case len(distinct) == 1:
		return fmt.Sprintf("all ranks share device %d", distinct[0])
	}
	probed, inferred, readsOnly := true, false, false
	for _, i := range distinct {
		for _, j := range distinct {
			if i != j {
				r, w := s.found(i, j).Usable()
				good := r == topo.Yes && w == topo.Yes
				probed = probed && good
				inferred = inferred || !good && unstated(s.m.Pairs[i][j])
				readsOnly = readsOnly || !good && writesUnstated(s.m.Pairs[i][j])
			}
		}
	}
	text := fmt.Sprintf("all %d devices reach each other directly", len(distinct))
	switch {
	case probed:
		return text + ", as probing found"
	case inferred:
		return text + ", if their NVLinks mean what they usually do: nothing states their peer access"
	case readsOnly:
		return text + ", if they write as they read: only reading is stated"
	}
	return text
}

// refusePull says which pair stands in the way of kernels that read peers' data and write peers' flags, "" for none.
func (s *selector) refusePull() string {
	why, _ := s.obstacle()
	return why
}

// obstacle is refusePull, and whether all that is wrong is that nothing states the access. A pair that is known to lack
// it comes first.
func (s *selector) obstacle() (why string, open bool) {
	return s.first(func(i, j int) (topo.Tri, string) {
		answer, text := s.reads(i, j)
		if text == "" {
			answer, text = s.writes(i, j)
		}
		return answer, text
	})
}

// refusePush is refusePull for kernels that only write to their peers.
func (s *selector) refusePush() string {
	why, _ := s.first(s.writes)
	return why
}

// first is the first thing said against any pair, what is certain before what is only not known; open is whether that is
// all.
func (s *selector) first(judge func(i, j int) (topo.Tri, string)) (why string, open bool) {
	for _, i := range s.devices {
		for _, j := range s.devices {
			if i == j {
				continue
			}
			switch answer, text := judge(i, j); {
			case text != "" && answer == topo.No:
				return text, false
			case text != "" && why == "":
				why = text
			}
		}
	}
	return why, why != ""
}

// refuseCopy says which pair has no peer access either way that copies can use, "" for none. Where nothing is
// known, copies are as good as any: the driver finds them a way.
func (s *selector) refuseCopy() string {
	for _, i := range s.devices {
		for _, j := range s.devices {
			if i >= j {
				continue
			}
			there, why := s.reads(i, j)
			back, whyBack := s.reads(j, i)
			if there != topo.No || back != topo.No {
				continue
			}
			switch {
			case s.barred(i, j) != "":
				return why
			case s.claimsRead(i, j) == topo.No && s.claimsRead(j, i) == topo.No:
				return fmt.Sprintf("devices %d and %d have no peer access in either direction%s", i, j, s.code(i, j, s.m.Pairs[i][j].ReadCode))
			}
			return fmt.Sprintf("devices %d and %d have no peer access that works in either direction: %s; %s", i, j, why, whyBack)
		}
	}
	return ""
}

func (s *selector) found(i, j int) topo.Measured {
	if s.measured == nil {
		return topo.Measured{}
	}
	return s.measured.Pairs[i][j]
}

// barred is why a knob keeps two devices from direct access, "" if none does.
func (s *selector) barred(i, j int) string {
	if s.knobs.P2PDisable {
		return knobDisable + "=1 turns direct access off"
	}
	limit := s.knobs.P2PLevel
	if limit == LevelUnset || limit == LevelSYS {
		return ""
	}
	i, j = min(i, j), max(i, j)
	there, back := s.m.Pairs[i][j].Link, s.m.Pairs[j][i].Link
	switch {
	case limit == LevelLOC:
		return fmt.Sprintf("%s=%v allows no direct access between devices", knobLevel, limit)
	case levelOf(there) == LevelUnset || levelOf(back) == LevelUnset:
		return fmt.Sprintf("the path between devices %d and %d is not known, and %s=%v sets a limit", i, j, knobLevel, limit)
	case levelOf(there) > limit:
		return fmt.Sprintf("the path between devices %d and %d is %s, farther than %s=%v allows", i, j, there, knobLevel, limit)
	case levelOf(back) > limit:
		return fmt.Sprintf("the path between devices %d and %d is %s, farther than %s=%v allows", i, j, back, knobLevel, limit)
	}
	return ""
}

// reads is whether i can read j directly, and why not if that is not Yes.
func (s *selector) reads(i, j int) (topo.Tri, string) {
	if why := s.barred(i, j); why != "" {
		return topo.No, why
	}
	if c := s.claimsRead(i, j); c != topo.Yes {
		return c, s.refusal(i, j, "read", c, s.m.Pairs[i][j].ReadCode)
	}
	f := s.found(i, j)
	if why := disproved(i, j, "read", f.Read); why != "" {
		return topo.No, why
	}
	return topo.Yes, ""
}

// writes is whether i can write to j directly, flags included, and why not if that is not Yes.
func (s *selector) writes(i, j int) (topo.Tri, string) {
	if why := s.barred(i, j); why != "" {
		return topo.No, why
	}
	if c := s.claimsWrite(i, j); c != topo.Yes {
		return c, s.refusal(i, j, "write", c, s.m.Pairs[i][j].WriteCode)
	}
	f := s.found(i, j)
	why := disproved(i, j, "write", f.Write)
	if why == "" {
		why = disproved(i, j, "raise flags in", f.Flags)
	}
	if why != "" {
		return topo.No, why
	}
	return topo.Yes, ""
}

// disproved is what a probe says against a pair, "" for nothing.
func disproved(i, j int, what string, c topo.Check) string {
	switch {
	case !c.Refutes():
		return ""
	case c.Answer == topo.Unknown:
		return fmt.Sprintf("%d→%d: probing could not find out whether device %d can %s the memory of device %d (%s)", i, j, i, what, j, c.Detail)
	}
	return fmt.Sprintf("%d→%d: probing found that device %d cannot %s the memory of device %d (%s)", i, j, i, what, j, told(c))
}

// told is a failed probe's outcome, wrong value included.
func told(c topo.Check) string {
	s := c.String()
	if c.Expected != c.Got && !strings.Contains(s, "expected") {
		s += fmt.Sprintf("; expected %#x, got %#x at offset %d", c.Expected, c.Got, c.Offset)
	}
	return s
}

// unstated is a pair of whose peer access no source says anything. The code U, unknown, is nothing.
func unstated(p topo.Pair) bool {
	return p.Access == topo.Unknown && p.Read == topo.Unknown && p.Write == topo.Unknown && silent(p.ReadCode) && silent(p.WriteCode)
}

// writesUnstated is a pair that can read, and of whose writes no source says anything: `nvidia-smi topo -p2p r` alone.
func writesUnstated(p topo.Pair) bool {
	return p.Access == topo.Unknown && p.Read == topo.Yes && p.Write == topo.Unknown && silent(p.WriteCode)
}

func silent(c topo.Code) bool { return c == "" || c == topo.CodeU }

// claimsRead and claimsWrite join what the sources claim. `nvidia-smi topo -m` alone states no peer access; drivers
// give it to every pair with an NVLink.
func (s *selector) claimsRead(i, j int) topo.Tri {
	if p := s.m.Pairs[i][j]; !unstated(p) || levelOf(p.Link) != LevelNVL {
		return p.CanRead()
	}
	return topo.Yes
}

func (s *selector) claimsWrite(i, j int) topo.Tri {
	p := s.m.Pairs[i][j]
	if writesUnstated(p) || unstated(p) && levelOf(p.Link) == LevelNVL {
		return topo.Yes
	}
	return p.CanWrite()
}

func (s *selector) refusal(i, j int, what string, answer topo.Tri, c topo.Code) string {
	if answer == topo.Unknown {
		text := fmt.Sprintf("%d→%d: it is not known whether device %d can %s the memory of device %d", i, j, i, what, j)
		if c != "" {
			return text + fmt.Sprintf(" (%s)", c)
		}
		return text + ", for nothing states it"
	}
	return fmt.Sprintf("%d→%d: device %d cannot %s the memory of device %d%s", i, j, i, what, j, s.code(i, j, c))
}

// code is why there is no access, in NVML's word, or because MIG instances have none.
func (s *selector) code(i, j int, c topo.Code) string {
	switch {
	case c != "" && c != topo.CodeOK:
		return fmt.Sprintf(" (%s)", c)
	case s.m.Devices[i].MIG == topo.Yes || s.m.Devices[j].MIG == topo.Yes:
		return " (MIG)"
	}
	return ""
}
