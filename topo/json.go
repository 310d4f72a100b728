package topo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/fenceline/fenceline/internal/plainfile"
)

// WriteJSON writes the machine as indented JSON with a final newline.
func (m *Machine) WriteJSON(w io.Writer) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write machine: %w", err)
	}
	if _, err := w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write machine: %w", err)
	}
	return nil
}

// ReadJSON reads one machine that WriteJSON wrote, and checks it. What is cut off, foreign, of another
// version or inconsistent is an error that matches ErrFormat and says where. So is what is longer than 8 MiB, has fields
// that are not known here, or control characters in its texts.
func ReadJSON(r io.Reader) (*Machine, error) {
	text, err := readAll(r)
	if err != nil {
		return nil, fmt.Errorf("read machine: %w", err)
	}
	if text, err = oneValue(bytes.TrimPrefix(text, byteOrderMark)); err != nil {
		return nil, formatError("%v", err)
	}
	return readMachine(text)
}

// maxFile is far more than a record of the largest machine takes.
const maxFile = 8 << 20

// readAll reads a whole file, unless it is longer than any that is of use here.
func readAll(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = errTooLong
	}
	return text, err
}

var errTooLong = fmt.Errorf("%w: it is longer than %d MiB, which no machine's record is: name another file", ErrFormat, maxFile>>20)

// readFile is readAll of a plain file; nothing else is opened.
func readFile(path string) ([]byte, error) {
	text, err := plainfile.Read(path, maxFile)
	if errors.Is(err, plainfile.ErrTooLong) {
		return nil, fmt.Errorf("%s: %w", path, errTooLong)
	}
	return text, err
}

// readMachine reads a machine from one JSON value.
func readMachine(text []byte) (*Machine, error) {
	// The version comes first: fields of another one may have other types.
	var h heading
	var m Machine
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, formatError("%v", err)
	}
	if h.Version > FormatVersion {
		return nil, formatError("version %d, this build reads version %d: use a newer build", h.Version, FormatVersion)
	}
	if h.Version != FormatVersion {
		return nil, formatError("version %d, this build reads version %d: save the machine again", h.Version, FormatVersion)
	}
	if err := strictly(text, &m); err != nil {
		return nil, formatError("%v", err)
	}
	if err := m.validate(); err != nil {
		return nil, err
	}
	return &m, nil
}

// What oneValue finds wrong: the text stops inside the value, or goes on behind it.
var (
	errCutOff = errors.New("the text is cut off")
	errBehind = errors.New("there is something behind the record")
)

// strictly reads one JSON value into v. A field that is not known here would be lost without a word, and with it what was
// saved. Characters that a terminal acts on are in no machine's texts.
func strictly(text []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("at byte %d: %w: save it again with this build", dec.InputOffset(), err)
	}
	for dec = json.NewDecoder(bytes.NewReader(text)); ; {
		token, err := dec.Token()
		if err != nil { // io.EOF: it has been read before
			return nil
		}
		s, _ := token.(string)
		if i := strings.IndexFunc(s, acts); i >= 0 {
			return fmt.Errorf("at byte %d: a text with the control character %q: take it out, or save it again", dec.InputOffset(), []rune(s[i:])[0])
		}
	}
}

// acts is whether a terminal may take a character for a command.
func acts(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
}

// oneValue is the only JSON value of a text. A second one means that two records were joined, or that an old tail was
// left behind.
func oneValue(text []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	var value json.RawMessage
	switch err := dec.Decode(&value); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%w: it is empty: save it again", errCutOff)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("%w: it ends at byte %d: save it again", errCutOff, len(text))
	case err != nil:
		at := dec.InputOffset()
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			at = syntax.Offset
		}
		return nil, fmt.Errorf("at byte %d: %w: save it again, or name another file", at, err)
	}
	end := int(dec.InputOffset())
	if rest := bytes.TrimLeft(text[end:], " \t\r\n"); len(rest) > 0 {
		return nil, fmt.Errorf("%w: it ends at byte %d, and text after it begins with %q: take that out, or save it again", errBehind, end, clip(string(rest)))
	}
	return value, nil
}

// ReadFile reads a machine from a file: JSON that WriteJSON wrote, a saved Baseline, a document that has a machine as its
// field "machine", as `demo topo --json` and `demo probe --json` print it, or the output of `nvidia-smi topo -m` (see
// ParseSMI). The error names the file.
func ReadFile(path string) (*Machine, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	text = bytes.TrimPrefix(text, byteOrderMark)
	if start := bytes.TrimSpace(text); !bytes.HasPrefix(start, []byte("{")) && !json.Valid(start) {
		return ParseSMI(path, text)
	}
	m, err := readDocument(path, text)
	if err != nil && !errors.As(err, new(*RecordError)) { // which names it itself
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, err
}

// readDocument reads the machine of any JSON document that holds one; path is for messages.
func readDocument(path string, text []byte) (*Machine, error) {
	const want = `want a machine, a file of demo topo --save, or what demo topo --json or demo probe --json prints`
	value, err := oneValue(text)
	if err != nil {
		return nil, formatError("%v", err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(value, &fields); err != nil {
		return nil, formatError("this is JSON, and no object: %s", want)
	}
	var kind string
	_ = json.Unmarshal(fields["kind"], &kind) // of another type it is no kind of ours
	switch {
	case kind == baselineKind:
		var b Baseline
		if err := parseRecord(path, baselineName, baselineKind, text, &b); err != nil {
			return nil, err
		}
		return b.Machine, nil
	case kind != "":
		return nil, formatError("this is a record of kind %q: %s", kind, want)
	case fields["machine"] != nil:
		return readMachine(fields["machine"])
	case fields["devices"] != nil && fields["pairs"] != nil:
		return readMachine(value)
	}
	names := slices.Sorted(maps.Keys(fields))
	for i, n := range names {
		names[i] = strconv.Quote(clip(n))
	}
	const most = 8
	if len(names) > most {
		names = append(names[:most], "…")
	}
	found := "no fields"
	if len(names) > 0 {
		found = "the fields " + strings.Join(names, ", ")
	}
	return nil, formatError("this is JSON with %s: %s", found, want)
}

func (m *Machine) validate() error {
	n := len(m.Devices)
	switch {
	case m.Version != FormatVersion:
		return formatError("version %d, this build reads version %d: save the machine again", m.Version, FormatVersion)
	case n == 0:
		return formatError("no devices")
	case len(m.Pairs) != n:
		return formatError("pairs has %d rows for %d devices", len(m.Pairs), n)
	}
	named := slices.ContainsFunc(m.Devices, func(d Device) bool { return d.UUID != "" })
	seen := make(map[string]int, n)
	for i, d := range m.Devices {
		if d.Ordinal != i {
			return formatError("devices[%d] has ordinal %d", i, d.Ordinal)
		}
		if d.UUID == "" && named { // pasted text names no device at all
			return formatError("devices[%d] has no uuid", i)
		}
		if j, ok := seen[d.UUID]; ok && named {
			return formatError("devices[%d] and devices[%d] share uuid %s", j, i, d.UUID)
		}
		seen[d.UUID] = i
		if len(m.Pairs[i]) != n {
			return formatError("pairs[%d] has %d cells for %d devices", i, len(m.Pairs[i]), n)
		}
		for j, p := range m.Pairs[i] {
			if !isPath(p.Link) {
				return formatError("pairs[%d][%d] has the link %q: want NV1 to NV99, PIX, PXB, PHB, NODE or SYS, or none", i, j, clip(p.Link))
			}
		}
	}
	for _, c := range m.Columns {
		if !slices.Contains(affinityNames[:], c) {
			return formatError("no affinity column is called %q", c)
		}
	}
	for k, nic := range m.NICs {
		if len(nic.GPUs) != n || nic.NICs != nil && len(nic.NICs) != len(m.NICs) {
			return formatError("nics[%d] has paths to %d devices and %d NICs, there are %d and %d", k, len(nic.GPUs), len(nic.NICs), n, len(m.NICs))
		}
		for _, link := range slices.Concat(nic.GPUs, nic.NICs) {
			if link != "X" && !isPath(link) {
				return formatError("nics[%d] has the link %q: want NV1 to NV99, PIX, PXB, PHB, NODE or SYS", k, clip(link))
			}
		}
	}
	return nil
}

// isPath is whether a link is one of nvidia-smi's words for a path, or empty for an unknown one.
func isPath(link string) bool { return link == "" || link != "SOC" && linkCell.MatchString(link) }

func formatError(format string, args ...any) error {
	return fmt.Errorf("read machine: %w: %s", ErrFormat, fmt.Sprintf(format, args...))
}
