package allreduce

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// KnobPrefix begins the name of every environment variable that is Fenceline's own.
const KnobPrefix = "FENCELINE_"

// Names of the knobs.
const (
	knobAlgo     = KnobPrefix + "ALGO"
	knobLevel    = KnobPrefix + "P2P_LEVEL"
	knobDisable  = KnobPrefix + "P2P_DISABLE"
	knobMaxBytes = KnobPrefix + "MAX_BYTES"
	knobTimeout  = KnobPrefix + "TIMEOUT"
	knobNCCL     = KnobPrefix + "NCCL"
)

var knobNames = [...]string{knobAlgo, knobLevel, knobDisable, knobMaxBytes, knobTimeout, knobNCCL} // in knobTable's order

// Knobs are what an operator may turn without changing a program. Transport (P2PLevel, P2PDisable) and kernel
// (Algorithm) are switched apart. The zero value turns nothing. Where a Config states the same thing, it wins.
type Knobs struct {
	Algorithm  Algorithm     `json:"algorithm,omitempty"`   // FENCELINE_ALGO
	P2PLevel   Level         `json:"p2p_level,omitempty"`   // FENCELINE_P2P_LEVEL
	P2PDisable bool          `json:"p2p_disable,omitempty"` // FENCELINE_P2P_DISABLE
	MaxBytes   uint64        `json:"max_bytes,omitempty"`   // FENCELINE_MAX_BYTES, as Config.MaxBytes; 0 is not set
	Timeout    time.Duration `json:"timeout_ns,omitempty"`  // FENCELINE_TIMEOUT, as Config.Timeout; 0 is not set
	NCCL       bool          `json:"nccl,omitempty"`        // FENCELINE_NCCL, as Config.AllowNCCL
}

// validate refuses what KnobsFromEnv could not have made. MaxBytes and Timeout are checked where they are used.
func (k *Knobs) validate() error {
	switch {
	case k.Algorithm >= numAlgorithms:
		return &NameError{Kind: "algorithm", Name: fmt.Sprint(uint8(k.Algorithm)), Known: algorithmNames[:]}
	case k.P2PLevel >= numLevels:
		return &NameError{Kind: "P2P level", Name: fmt.Sprint(uint8(k.P2PLevel)), Known: levelNames[1:]}
	}
	return nil
}

// Level is the farthest path over which direct access between devices is used, in the words of NCCL_P2P_LEVEL and
// `nvidia-smi topo`.
type Level uint8

// The levels, each of which allows what those before it allow.
const (
	LevelUnset Level = iota // no limit
	LevelLOC                // no direct access between devices
	LevelNVL                // NVLink
	LevelPIX                // one PCIe bridge
	LevelPXB                // several PCIe bridges, without the host bridge
	LevelPHB                // the PCIe host bridge
	LevelNODE               // host bridges of one NUMA node
	LevelSYS                // the link between NUMA nodes
	numLevels
)

var levelNames = [numLevels]string{"", "LOC", "NVL", "PIX", "PXB", "PHB", "NODE", "SYS"}

func (l Level) String() string {
	switch {
	case l == LevelUnset:
		return "unset"
	case l >= numLevels:
		return "invalid"
	}
	return levelNames[l]
}

// ParseLevel reads "LOC", "NVL", "PIX", "PXB", "PHB", "NODE" or "SYS", in either case. The error is a *NameError.
func ParseLevel(s string) (Level, error) {
	if i := slices.Index(levelNames[:], strings.ToUpper(s)); i > 0 {
		return Level(i), nil
	}
	return 0, &NameError{Kind: "P2P level", Name: s, Known: levelNames[1:]}
}

// MarshalText gives the name, "" for LevelUnset.
func (l Level) MarshalText() ([]byte, error) {
	if l >= numLevels {
		return nil, fmt.Errorf("P2P level %d does not exist", uint8(l))
	}
	return []byte(levelNames[l]), nil
}

// UnmarshalText reads what MarshalText writes.
func (l *Level) UnmarshalText(b []byte) (err error) {
	if len(b) == 0 {
		*l = LevelUnset
		return nil
	}
	*l, err = ParseLevel(string(b))
	return err
}

// levelOf is how far a path goes, LevelUnset when that is not known. Links are nvidia-smi's words.
func levelOf(link string) Level {
	if n, isNV := strings.CutPrefix(link, "NV"); isNV {
		if _, err := strconv.ParseUint(n, 10, 16); err == nil {
			return LevelNVL
		}
	}
	if l := Level(max(0, slices.Index(levelNames[:], link))); l >= LevelPIX {
		return l
	}
	return LevelUnset
}

// Knob is one environment variable of Fenceline.
type Knob struct {
	Name    string
	Allowed string // the values it takes, in words
	Help    string
	set     func(k *Knobs, value string) bool // false: not such a value
}

// Check refuses a value that the knob does not take, with a *KnobError.
func (k Knob) Check(value string) error {
	var trial Knobs
	if !k.set(&trial, value) {
		return &KnobError{Name: k.Name, Value: value, Allowed: k.Allowed}
	}
	return nil
}

var knobTable = []Knob{
	{knobAlgo, strings.Join(algorithmNames[:], ", "), "the algorithm; auto takes the best that the machine supports",
		func(k *Knobs, v string) bool {
			a, err := ParseAlgorithm(v)
			k.Algorithm = a
			return err == nil
		}},
	{knobLevel, strings.Join(levelNames[1:], ", "), "the farthest path over which devices access each other directly; LOC is never",
		func(k *Knobs, v string) bool {
			l, err := ParseLevel(v)
			k.P2PLevel = l
			return err == nil
		}},
	{knobDisable, "0, 1", "1 turns direct access between devices off",
		func(k *Knobs, v string) bool {
			k.P2PDisable = v == "1"
			return v == "0" || v == "1"
		}},
	{knobMaxBytes, "a multiple of 16 from 16 to 1G, such as 4194304 or 4M", "the largest message of one launch; staging grows with it",
		func(k *Knobs, v string) bool {
			n, ok := parseBytes(v)
			k.MaxBytes = n
			return ok && n >= 16 && n <= 1<<30 && n%16 == 0
		}},
	{knobTimeout, "a duration from 1ms to 24h with its unit, such as 500ms or 10s", "how long one rank waits for another",
		func(k *Knobs, v string) bool {
			d, err := time.ParseDuration(v)
			k.Timeout = d
			return err == nil && d >= shortestTimeout && d <= longestTimeout
		}},
	{knobNCCL, "0, 1", "1 allows auto to take nccl where a tuning table asks for it, whose sums are not in rank order",
		func(k *Knobs, v string) bool {
			k.NCCL = v == "1"
			return v == "0" || v == "1"
		}},
}

// KnobTable lists all environment variables that Fenceline reads.
func KnobTable() []Knob { return slices.Clone(knobTable) }

// KnobsFromEnv reads the knobs of an environment, "NAME=value" each, as os.Environ gives it. It is strict: a variable with
// Fenceline's prefix in any case that is no knob, one that is there twice with different values, and a value that is
// not allowed, the empty one included, are each a *KnobError.
func KnobsFromEnv(environ []string) (Knobs, error) {
	var k Knobs
	seen := map[string]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(strings.ToUpper(name), KnobPrefix) {
			continue
		}
		i := slices.IndexFunc(knobTable, func(k Knob) bool { return k.Name == name })
		if i < 0 {
			return Knobs{}, &KnobError{Name: name, Value: value, Unknown: true}
		}
		if before, twice := seen[name]; twice && before != value {
			return Knobs{}, &KnobError{Name: name, Value: value, Allowed: "one value, not two (also " + strconv.Quote(before) + ")"}
		}
		seen[name] = value
		if !knobTable[i].set(&k, value) {
			return Knobs{}, &KnobError{Name: name, Value: value, Allowed: knobTable[i].Allowed}
		}
	}
	return k, nil
}

// parseBytes reads a whole number with K, M or G, or KB, MB or GB, for powers of 1024.
func parseBytes(s string) (uint64, bool) {
	shift := 0
	if n := len(s); n > 1 && s[n-1] == 'B' && strings.IndexByte("KMG", s[n-2]) >= 0 {
		s = s[:n-1]
	}
	if s != "" {
		if i := strings.IndexByte("KMG", s[len(s)-1]); i >= 0 {
			s, shift = s[:len(s)-1], 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > math.MaxUint64>>shift {
		return 0, false
	}
	return n << shift, true
}

// KnobError is an environment variable that cannot be used.
type KnobError struct {
	Name    string
	Value   string
	Allowed string // what the variable takes, in words
	Unknown bool   // there is no such variable
}

func (e *KnobError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("environment: there is no variable %q: use one of %s, or unset it", e.Name, strings.Join(knobNames[:], ", "))
	}
	return fmt.Sprintf("environment: %s=%q: want %s", e.Name, e.Value, e.Allowed)
}

// Unwrap gives ErrKnob.
func (e *KnobError) Unwrap() error { return ErrKnob }
