//go:build linux && cgo

package cuda

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/internal/gpu"
)

// ptxHeader is what a PTX text says of itself in its first directives.
type ptxHeader struct {
	version int    // ISA version ×10: 87 is 8.7
	target  string // "sm_90a"
	sm      int    // 90
}

var (
	reVersion = regexp.MustCompile(`^\.version\s+(\d+)\.(\d)(\s|$)`)
	reHeader  = regexp.MustCompile(`^\.version\s+(\d+)\.(\d)\s+\.target\s+(sm_(\d+)[af]?)\b`)
)

// readHeader finds .version and .target, which PTX requires to come first, past comments and blank lines.
func readHeader(ptx []byte) (ptxHeader, error) {
	head := ""
	comment := false
	line := 0
	for text := range bytes.Lines(ptx) {
		line++
		s := stripComments(string(text), &comment)
		if s == "" {
			continue
		}
		head = strings.TrimSpace(head + " " + s)
		if m := reHeader.FindStringSubmatch(head); m != nil {
			major, _ := strconv.Atoi(m[1])
			minor, _ := strconv.Atoi(m[2])
			sm, _ := strconv.Atoi(m[4])
			return ptxHeader{version: 10*major + minor, target: m[3], sm: sm}, nil
		}
		// A version alone may go on in the next line; anything else that did not match never will.
		if head != ".version" && !reVersion.MatchString(head) {
			return ptxHeader{}, fmt.Errorf("line %d: want .version as the first directive, got `%s`", line, clip(s))
		}
		if len(head) > len(".version 99.9 .target") {
			return ptxHeader{}, fmt.Errorf("line %d: want .target sm_NN after .version, got `%s`", line, clip(s))
		}
	}
	if head == "" {
		return ptxHeader{}, fmt.Errorf("no .version directive: this is not PTX text")
	}
	return ptxHeader{}, fmt.Errorf("no .target directive after .version")
}

// stripComments drops comments from one line; in carries whether a /* is open across lines.
func stripComments(s string, in *bool) string {
	var b strings.Builder
	for s != "" {
		if *in {
			_, rest, found := strings.Cut(s, "*/")
			if !found {
				break
			}
			*in, s = false, rest
			continue
		}
		i := strings.IndexByte(s, '/')
		if i < 0 || i+1 == len(s) {
			b.WriteString(s)
			break
		}
		b.WriteString(s[:i])
		switch s[i+1] {
		case '/':
			s = ""
		case '*':
			*in, s = true, s[i+2:]
		default:
			b.WriteByte('/')
			s = s[i+1:]
		}
	}
	return strings.TrimSpace(b.String())
}

// clip keeps a line short enough for a message.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// checkPTX refuses PTX that this driver and device cannot load, before the driver is asked, because what it
// would say ("invalid PTX") names neither remedy.
func checkPTX(dev int, name string, ptx []byte, driver, sm int) error {
	refuse := func(kind error, format string, args ...any) error {
		return &gpu.Error{Op: "ModuleLoad", Device: dev, Kind: kind, Detail: name + ": " + fmt.Sprintf(format, args...)}
	}
	if i := bytes.IndexByte(ptx, 0); i >= 0 && i < len(ptx)-1 {
		return refuse(gpu.ErrInvalidPTX, "a zero byte at offset %d: this is not PTX text (a cubin or fatbin is not accepted)", i)
	}
	h, err := readHeader(ptx)
	if err != nil {
		return refuse(gpu.ErrInvalidPTX, "%v", err)
	}
	if need, known := gpu.DriverForPTX(h.version); known && need > driver {
		return refuse(gpu.ErrDriverTooOld, "%s", tooNew(ptx, driver))
	}
	if h.sm > sm {
		return refuse(gpu.ErrInvalidPTX, ".target %s needs a device of that capability or newer, device %d is sm_%d: build the PTX for sm_%d or older",
			h.target, dev, sm, sm)
	}
	return nil
}

// tooNew says which driver PTX that was refused for its version needs.
func tooNew(ptx []byte, driver int) string {
	h, err := readHeader(ptx)
	if err != nil {
		return "its PTX version is newer than the driver: update the driver"
	}
	wants := "a newer driver"
	if need, known := gpu.DriverForPTX(h.version); known {
		wants = "a driver for CUDA " + gpu.CUDAVersion(need) + " or newer"
	}
	return fmt.Sprintf("PTX %s needs %s, this one is for CUDA %s: update the driver, or build the PTX for an older ISA",
		gpu.PTXVersion(h.version), wants, gpu.CUDAVersion(driver))
}

var reLogLine = regexp.MustCompile(`line (\d+)`)

// explainLog turns the driver's compile log into one message that starts with file and line and quotes the
// PTX text there.
func explainLog(name string, ptx []byte, log string) string {
	log = strings.TrimSpace(strings.TrimRight(log, "\x00"))
	if log == "" {
		return name + ": the driver's compiler left no log"
	}
	where := name
	quote := ""
	if m := reLogLine.FindStringSubmatch(log); m != nil {
		where += ":" + m[1]
		if n, err := strconv.Atoi(m[1]); err == nil {
			if lines := bytes.Split(ptx, []byte("\n")); n >= 1 && n <= len(lines) {
				quote = " in `" + clip(strings.TrimSpace(string(lines[n-1]))) + "`"
			}
		}
	}
	return where + quote + ": " + strings.Join(strings.Fields(log), " ")
}
