// Package kernels holds Fenceline's CUDA kernels: their sources, the PTX built from them (committed, so that
// neither users nor tests need a compiler), and the manifest that ties the two together.
//
// Each source is built for several targets. Find picks the newest that a device and its driver can load; all
// builds of a source give the same bits. `make ptx` rebuilds them with mkptx.
package kernels

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/fenceline/fenceline/internal/gpu"
)

//go:embed ptx/*.ptx ptx/manifest.json *.cu *.cuh
var files embed.FS

// ManifestVersion is the format of ptx/manifest.json.
const ManifestVersion = 1

// Manifest is what mkptx writes beside the PTX.
type Manifest struct {
	Version  int      `json:"version"`
	Compiler string   `json:"compiler"` // "clang 19.1.7"
	Flags    []string `json:"flags"`    // those common to all modules
	Modules  []Module `json:"modules"`
}

// Module is one PTX file.
type Module struct {
	File         string   `json:"file"`   // "oneshot_pull.sm_70.ptx"
	Source       string   `json:"source"` // "oneshot_pull"
	SM           int      `json:"sm"`     // lowest compute capability that loads it, ×10
	PTX          int      `json:"ptx"`    // PTX ISA version ×10
	Flags        []string `json:"flags"`  // those of this target
	SourceSHA256 string   `json:"source_sha256"`
	PTXSHA256    string   `json:"ptx_sha256"`
	Entries      []Entry  `json:"entries"`
}

// Entry is one kernel of a module.
type Entry struct {
	Name   string  `json:"name"`
	Params []Param `json:"params"`
	Bytes  int     `json:"bytes"` // size of the parameter buffer
}

// Param is one parameter: its declared type, and its place in the parameter buffer in bytes.
type Param struct {
	Type   string `json:"type"`
	Offset int    `json:"offset"`
	Size   int    `json:"size"`
}

// ErrUnavailable matches an *UnavailableError.
var ErrUnavailable = errors.New("no build of the kernel fits")

// UnavailableError says why no build of a source can run on a device.
type UnavailableError struct {
	Source string
	SM     int    // the device's
	Driver int    // the driver's CUDA version, 1000*major + 10*minor
	Need   string // what would do
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("kernel %s: no build for sm_%d with a CUDA %s driver: %s", e.Source, e.SM, gpu.CUDAVersion(e.Driver), e.Need)
}

// Unwrap gives ErrUnavailable.
func (e *UnavailableError) Unwrap() error { return ErrUnavailable }

// Load reads the embedded manifest. It fails only if the build is broken.
var Load = sync.OnceValues(func() (*Manifest, error) {
	text, err := files.ReadFile("ptx/manifest.json")
	if err != nil {
		return nil, fmt.Errorf("kernel manifest: %w", err)
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("kernel manifest: %w", err)
	}
	if m.Version != ManifestVersion {
		return nil, fmt.Errorf("kernel manifest: version %d, want %d", m.Version, ManifestVersion)
	}
	return &m, nil
})

// Find returns the build of source for the highest target that a device of compute capability sm (×10) and
// a driver (1000*major + 10*minor) can load. The error is an *UnavailableError.
func Find(source string, sm, driver int) (*Module, error) {
	m, err := Load()
	if err != nil {
		return nil, err
	}
	var best, least *Module
	for i := range m.Modules {
		c := &m.Modules[i]
		if c.Source != source {
			continue
		}
		if least == nil || c.SM < least.SM {
			least = c
		}
		if c.SM <= sm && driverFor(c) <= driver && (best == nil || c.SM > best.SM) {
			best = c
		}
	}
	if best == nil {
		need := "there is no such kernel"
		if least != nil {
			need = fmt.Sprintf("needs sm_%d or newer and a CUDA %s driver or newer", least.SM, gpu.CUDAVersion(driverFor(least)))
		}
		return nil, &UnavailableError{Source: source, SM: sm, Driver: driver, Need: need}
	}
	return best, nil
}

// Optional is whether a device that no build of source fits can do without it, since other kernels do the same.
func Optional(source string) bool { return strings.HasSuffix(source, "_wide") }

// Text is the module's PTX.
func (m *Module) Text() ([]byte, error) {
	if parts := joinedParts(m.File); parts != nil {
		return joinedText(parts)
	}
	return files.ReadFile("ptx/" + m.File)
}

// driverFor is the oldest driver that reads a build. mkptx writes no PTX version that the table lacks; a test
// holds that.
func driverFor(m *Module) int {
	driver, _ := gpu.DriverForPTX(m.PTX)
	return driver
}

// Source is the text of a source file, by name: "oneshot_pull.cu", "fenceline.cuh".
func Source(name string) ([]byte, error) { return files.ReadFile(name) }

var include = regexp.MustCompile(`(?m)^#include "([^"]+)"`)

// SourceHash is the SHA-256 of a source and, recursively, of what it includes from this folder. read gives a file's text.
func SourceHash(name string, read func(string) ([]byte, error)) (string, error) {
	h := sha256.New()
	seen := map[string]bool{}
	var add func(string) error
	add = func(f string) error {
		if seen[f] {
			return nil
		}
		seen[f] = true
		text, err := read(f)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n", f, len(text))
		h.Write(text)
		for _, m := range include.FindAllSubmatch(text, -1) {
			if err := add(path.Clean(string(m[1]))); err != nil {
				return err
			}
		}
		return nil
	}
	if err := add(name); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
