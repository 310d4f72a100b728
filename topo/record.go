package topo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// What can be wrong with a saved record. A *RecordError matches one of these, and ErrFormat.
var (
	ErrTruncated = errors.New("the record is cut off")
	ErrForeign   = errors.New("not such a record")
	ErrVersion   = errors.New("another version of the record")
)

// RecordError is a file that does not hold the record it should.
type RecordError struct {
	Path   string
	What   string // "baseline", "probe cache"
	Kind   error  // ErrTruncated, ErrForeign or ErrVersion
	Detail string // what was found, and the remedy
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("read %s %s: %v: %s", e.What, e.Path, e.Kind, e.Detail)
}

// Unwrap gives the kind, and ErrFormat.
func (e *RecordError) Unwrap() []error { return []error{e.Kind, ErrFormat} }

// heading is how every record starts: it tells a foreign file before its fields are looked at.
type heading struct {
	Kind    string `json:"kind"`
	Version int    `json:"version"`
}

// readRecord reads the record of a kind from a file into v. A file that cannot be opened is the system's error.
func readRecord(path, what, kind string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	return parseRecord(path, what, kind, text, v)
}

// parseRecord is readRecord of a text; path is for messages.
func parseRecord(path, what, kind string, text []byte, v any) error {
	bad := func(kind error, format string, args ...any) error {
		return &RecordError{Path: path, What: what, Kind: kind, Detail: fmt.Sprintf(format, args...)}
	}
	text, err := oneValue(bytes.TrimPrefix(text, byteOrderMark))
	switch {
	case errors.Is(err, errCutOff):
		_, detail, _ := strings.Cut(err.Error(), ": ") // the kind says the rest
		return bad(ErrTruncated, "%s", detail)
	case err != nil:
		return bad(ErrForeign, "%v", err)
	}
	var h heading
	if err := json.Unmarshal(text, &h); err != nil {
		return bad(ErrForeign, "%v", err)
	}
	switch {
	case h.Kind != kind:
		return bad(ErrForeign, "its kind is %q, want %q", h.Kind, kind)
	case h.Version > FormatVersion:
		return bad(ErrVersion, "version %d, this build reads version %d: use a newer build, or save it again with this one", h.Version, FormatVersion)
	case h.Version != FormatVersion:
		return bad(ErrVersion, "version %d, this build reads version %d: save it again", h.Version, FormatVersion)
	}
	// A field that is not known here would be lost without a word, and with it what was saved.
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return bad(ErrForeign, "at byte %d: %v", dec.InputOffset(), err)
	}
	if c, ok := v.(interface{ validate() error }); ok {
		if err := c.validate(); err != nil {
			return bad(ErrForeign, "%v", err)
		}
	}
	return nil
}

var errFolder = errors.New("this is a folder: name a file in it")

// writeRecord writes v to a file whole or not at all: under a temporary name in the same folder, onto the disk, and
// then in the place of the old one. Readers see the old record or the new one.
func writeRecord(path, what string, v any) (err error) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("save %s: %w", what, err)
	}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return fmt.Errorf("save %s: %w", what, &fs.PathError{Op: "write", Path: path, Err: errFolder})
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("save %s: %w", what, err)
	}
	defer func() {
		if err != nil {
			f.Close()           //nolint:errcheck // the first error is the one to tell
			os.Remove(f.Name()) //nolint:errcheck
			err = fmt.Errorf("save %s: %w", what, err)
		}
	}()
	if _, err = f.Write(append(text, '\n')); err != nil {
		return err
	}
	if err = f.Chmod(0o644); err != nil { // other users' ranks read it
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	syncDir(dir)
	return nil
}

// syncDir makes a rename last through a power cut. Not every file system can, and the record is whole either way.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		d.Sync()  //nolint:errcheck
		d.Close() //nolint:errcheck
	}
}
