package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Parsers of what the kernel writes. None of them trusts its input: a line that does not fit is passed over or is an
// error, never a guess.

// acs is the Access Control Services capability of a PCIe port (PCIe base specification, "ACS Extended Capability").
type acs struct {
	present bool
	control uint16
}

// The bits of the control register that turn peer traffic away from the direct way.
const (
	acsRequestRedirect    = 1 << 2
	acsCompletionRedirect = 1 << 3
	acsEgressControl      = 1 << 5
)

func (a acs) redirects() bool {
	return a.control&(acsRequestRedirect|acsCompletionRedirect|acsEgressControl) != 0
}

func (a acs) String() string {
	if !a.present {
		return "no ACS capability"
	}
	var on []string
	for i, name := range []string{"SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"} {
		if a.control&(1<<i) != 0 {
			on = append(on, name)
		}
	}
	if len(on) == 0 {
		on = []string{"all off"}
	}
	return fmt.Sprintf("ACS control %#04x (%s)", a.control, strings.Join(on, " "))
}

var (
	errShortConfig = errors.New("only the first 64 bytes are readable: reading the rest needs root")
	errNoExtended  = errors.New("no extended configuration space is visible")
	errConfigLoop  = errors.New("the capability list does not end")
	errOffBus      = errors.New("reads as all ones: the device does not answer")
)

// parseACS finds the ACS capability in a port's PCI configuration space.
func parseACS(config []byte) (acs, error) {
	const extended, id = 0x100, 0x000d
	switch {
	case offBus(config):
		return acs{}, errOffBus
	case len(config) <= 64:
		return acs{}, errShortConfig
	case len(config) < extended+4:
		return acs{}, errNoExtended
	}
	// 12 bits of offset in steps of 4: no honest list is longer than this.
	for at, n := extended, 0; at >= extended && at+4 <= len(config); n++ {
		if n > (4096-extended)/4 {
			return acs{}, errConfigLoop
		}
		head := binary.LittleEndian.Uint32(config[at:])
		if head == 0 || head == math.MaxUint32 {
			break
		}
		if head&0xffff == id {
			if at+8 > len(config) {
				return acs{}, errors.New("the ACS capability is cut off")
			}
			return acs{present: true, control: binary.LittleEndian.Uint16(config[at+6:])}, nil
		}
		at = int(head>>20) &^ 3
	}
	return acs{}, nil
}

// offBus is whether a device no longer answers: every read of it gives ones.
func offBus(config []byte) bool {
	return len(config) >= 4 && binary.LittleEndian.Uint32(config) == math.MaxUint32
}

// portType is the device/port type of the PCI Express capability: 4 root port, 5 switch upstream, 6 switch downstream.
// ok is false when there is no such capability or it is not readable.
func portType(config []byte) (t int, ok bool) {
	if len(config) < 64 || config[6]&0x10 == 0 {
		return 0, false
	}
	at := int(config[0x34]) &^ 3
	for range 48 {
		if at < 0x40 || at+4 > len(config) {
			return 0, false
		}
		if config[at] == 0x10 {
			return int(config[at+2] >> 4), true
		}
		at = int(config[at+1]) &^ 3
	}
	return 0, false
}

const rootPort = 4

// bar is one line of a PCI device's "resource" file.
type bar struct {
	start, size uint64
	wide        bool // a 64-bit address, which takes the next region's place too
}

// bar1 is the region that NVIDIA calls BAR1: the one after the registers', which are 64 bits wide since Hopper.
func bar1(bars []bar) (bar, error) {
	at := 1
	if len(bars) > 0 && bars[0].wide {
		at = 2
	}
	if len(bars) <= at {
		return bar{}, fmt.Errorf("%d regions, want at least %d", len(bars), at+1)
	}
	return bars[at], nil
}

// memory64 is IORESOURCE_MEM_64 of Linux's include/linux/ioport.h.
const memory64 = 0x100000

// parseResource reads the regions of a device. A region without an address has size 0.
func parseResource(text string) ([]bar, error) {
	var bars []bar
	for n, line := range strings.Split(strings.TrimSpace(text), "\n") {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("line %d: %d fields, want start, end and flags", n+1, len(f))
		}
		var v [3]uint64
		for i := range v {
			var err error
			if v[i], err = strconv.ParseUint(f[i], 0, 64); err != nil {
				return nil, fmt.Errorf("line %d: %q is not a number", n+1, clean(f[i]))
			}
		}
		b := bar{start: v[0], wide: v[2]&memory64 != 0}
		switch {
		case v[1] < v[0]:
			return nil, fmt.Errorf("line %d: the end lies before the start", n+1)
		case v[0] != 0:
			b.size = v[1] - v[0] + 1 // no region ends at 2^64-1
		}
		bars = append(bars, b)
	}
	return bars, nil
}

// param is one word of the kernel command line.
type param struct{ name, value string }

func (p param) String() string {
	if p.value == "" {
		return p.name
	}
	return p.name + "=" + p.value
}

// parseCmdline splits the kernel command line; double quotes hold spaces together, as in the kernel. What
// stands behind "--" is for init.
func parseCmdline(text string) []param {
	var words []string
	var b strings.Builder
	quoted, some := false, false
	for _, r := range text {
		switch {
		case r == '"':
			quoted, some = !quoted, true
		case !quoted && (r == ' ' || r == '\t' || r == '\n'):
			if some {
				words = append(words, b.String())
			}
			b.Reset()
			some = false
		default:
			b.WriteRune(r)
			some = true
		}
	}
	if some {
		words = append(words, b.String())
	}
	var params []param
	for _, w := range words {
		if w == "--" {
			break
		}
		name, value, _ := strings.Cut(w, "=")
		params = append(params, param{name, value})
	}
	return params
}

// mount is one line of mountinfo.
type mount struct{ point, kind, options string }

var octal = regexp.MustCompile(`\\[0-7]{3}`)

// parseMounts reads /proc/self/mountinfo. Lines of another form are passed over. Later mounts hide earlier ones.
func parseMounts(text string) []mount {
	unescape := func(s string) string {
		return octal.ReplaceAllStringFunc(s, func(e string) string {
			v, err := strconv.ParseUint(e[1:], 8, 8)
			if err != nil {
				return e
			}
			return string([]byte{byte(v)})
		})
	}
	var mounts []mount
	for _, line := range strings.Split(text, "\n") {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			continue
		}
		mounts = append(mounts, mount{unescape(l[4]), r[0], r[2]})
	}
	return mounts
}

// sizeOption is the "size=" of a tmpfs in bytes. ok is false when it has none or it can't be read; the kernel writes it in KiB.
func sizeOption(options string) (size uint64, ok bool) {
	for _, o := range strings.Split(options, ",") {
		if v, found := strings.CutPrefix(o, "size="); found {
			return parseSize(v)
		}
	}
	return 0, false
}

// parseSize reads a number with the suffix k, m or g (or none), in either case.
func parseSize(s string) (uint64, bool) {
	shift := 0
	if s != "" {
		if i := strings.IndexByte("kmg", s[len(s)-1]|0x20); i >= 0 {
			shift, s = 10*(i+1), s[:len(s)-1]
		}
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n > math.MaxUint64>>shift {
		return 0, false
	}
	return n << shift, true
}

// parseLimits reads the soft limits of /proc/self/limits by name. "unlimited" is MaxUint64.
func parseLimits(text string) map[string]uint64 {
	limits := map[string]uint64{}
	for _, line := range strings.Split(text, "\n") {
		// The name is padded to 25 columns and holds spaces.
		if len(line) < 26 || !strings.HasPrefix(line, "Max ") {
			continue
		}
		f := strings.Fields(line[25:])
		if len(f) == 0 {
			continue
		}
		name := strings.TrimSpace(line[:25])
		if f[0] == "unlimited" {
			limits[name] = math.MaxUint64
		} else if n, err := strconv.ParseUint(f[0], 10, 64); err == nil {
			limits[name] = n
		}
	}
	return limits
}

// parseColons reads lines of the form "Name: value", as /proc/self/status and /proc/driver/nvidia/params have them.
func parseColons(text string) map[string]string {
	values := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			values[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return values
}

// parseDwords reads NVreg_RegistryDwords: "ForceP2P=0x11;Other=1".
func parseDwords(text string) []param {
	var keys []param
	for _, w := range strings.Split(strings.Trim(text, `"`), ";") {
		if name, value, ok := strings.Cut(strings.TrimSpace(w), "="); ok && name != "" {
			keys = append(keys, param{strings.TrimSpace(name), strings.TrimSpace(value)})
		}
	}
	return keys
}

var releaseRE = regexp.MustCompile(`(?:^|[\s.])(\d{3,4}\.\d{1,3}(?:\.\d{1,3})?)(?:\s|$)`)

// parseRelease finds the driver release in the NVRM line of /proc/driver/nvidia/version, "" when there is none.
func parseRelease(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if m := releaseRE.FindStringSubmatch(line); m != nil {
		return m[1]
	}
	return ""
}

// libRelease is the release in the name of a driver library, "libcuda.so.535.129.03"; "" when there is none.
func libRelease(name string) string {
	_, v, ok := strings.Cut(name, ".so.")
	if !ok || !regexp.MustCompile(`^\d{3,4}\.\d{1,3}(\.\d{1,3})?$`).MatchString(v) {
		return ""
	}
	return v
}

// kernelAtLeast compares the start of "5.15.0-91-generic" with major.minor. ok is false when it is no version.
func kernelAtLeast(release string, major, minor int) (atLeast, ok bool) {
	var a, b int
	if n, err := fmt.Sscanf(release, "%d.%d", &a, &b); err != nil || n != 2 {
		return false, false
	}
	return a > major || a == major && b >= minor, true
}

// namespaceID is the inode in "ipc:[4026531839]", 0 when the text has another form.
func namespaceID(link string) uint64 {
	_, s, ok := strings.Cut(link, ":[")
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(s, "]"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
