package topo

import "fmt"

// Tri is a three-valued answer. The zero value is Unknown: what nobody asked is not a no.
type Tri uint8

const (
	Unknown Tri = iota
	No
	Yes
)

// Known turns a plain answer into a Tri.
func Known(b bool) Tri {
	if b {
		return Yes
	}
	return No
}

// And joins what two sources say of the same thing: No if either says no, else Yes if either
// says yes, else Unknown.
func (t Tri) And(u Tri) Tri {
	switch {
	case t == No || u == No:
		return No
	case t == Yes || u == Yes:
		return Yes
	}
	return Unknown
}

var triNames = [...]string{Unknown: "unknown", No: "no", Yes: "yes"}

func (t Tri) String() string {
	if int(t) < len(triNames) {
		return triNames[t]
	}
	return fmt.Sprintf("Tri(%d)", uint8(t))
}

// MarshalText writes "unknown", "no" or "yes".
func (t Tri) MarshalText() ([]byte, error) {
	if int(t) >= len(triNames) {
		return nil, fmt.Errorf("no such answer: %v", t)
	}
	return []byte(triNames[t]), nil
}

// UnmarshalText reads what MarshalText writes, and nothing else.
func (t *Tri) UnmarshalText(b []byte) error {
	for v, name := range triNames {
		if string(b) == name {
			*t = Tri(v)
			return nil
		}
	}
	return fmt.Errorf("answer %q: want unknown, no or yes", b)
}

// Code is NVML's word for the state of one peer capability, as nvidia-smi prints it. Empty when NVML
// was not asked.
type Code string

// The codes of nvmlGpuP2PStatus_t, by nvidia-smi's abbreviations.
const (
	CodeOK  Code = "OK"  // works
	CodeCNS Code = "CNS" // chipset not supported
	CodeGNS Code = "GNS" // GPU not supported
	CodeTNS Code = "TNS" // PCIe topology not supported
	CodeDR  Code = "DR"  // disabled by a driver registry key
	CodeNS  Code = "NS"  // not supported, no reason given
	CodeU   Code = "U"   // unknown
)

// Tri is the answer that a code gives. A code of a later driver that is not known here is
// Unknown, not No.
func (c Code) Tri() Tri {
	switch c {
	case CodeOK:
		return Yes
	case CodeCNS, CodeGNS, CodeTNS, CodeDR, CodeNS:
		return No
	}
	return Unknown
}
