package topo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
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
// version or inconsistent is an error that matches ErrFormat and says where.
func ReadJSON(r io.Reader) (*Machine, error) {
	dec := json.NewDecoder(r)
	var text json.RawMessage
	if err := dec.Decode(&text); err != nil {
		return nil, formatError("at byte %d: %v", dec.InputOffset(), err)
	}
	// A second value means two records were joined, or an old tail was left behind.
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, formatError("at byte %d: text after the record", dec.InputOffset())
	}
	// The version comes first: fields of another one may have other types.
	var h heading
	var m Machine
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, formatError("%v", err)
	}
	if h.Version > FormatVersion {
		return nil, formatError("version %d, this build reads version %d: use a newer build", h.Version, FormatVersion)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, formatError("%v", err)
	}
	if err := m.validate(); err != nil {
		return nil, err
	}
	return &m, nil
}

// ReadFile reads a machine from a file: JSON that WriteJSON wrote, or the output of `nvidia-smi topo -m` (see ParseSMI).
// The error names the file.
func ReadFile(path string) (*Machine, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return ParseSMI(path, text)
	}
	m, err := ReadJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
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
	}
	return nil
}

func formatError(format string, args ...any) error {
	return fmt.Errorf("read machine: %w: %s", ErrFormat, fmt.Sprintf(format, args...))
}
