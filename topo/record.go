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
	"syscall"
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
	text, err := readFile(path)
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
		return bad(ErrForeign, "%v: name a file that was saved as a %s", err, what)
	}
	switch {
	case h.Kind != kind:
		return bad(ErrForeign, "its kind is %q, want %q: name a file that was saved as a %s", clip(h.Kind), kind, what)
	case h.Version > FormatVersion:
		return bad(ErrVersion, "version %d, this build reads version %d: use a newer build, or save it again with this one", h.Version, FormatVersion)
	case h.Version != FormatVersion:
		return bad(ErrVersion, "version %d, this build reads version %d: save it again", h.Version, FormatVersion)
	}
	if err := strictly(text, v); err != nil {
		return bad(ErrForeign, "%v", err)
	}
	if c, ok := v.(interface{ validate() error }); ok {
		if err := c.validate(); err != nil {
			return bad(ErrForeign, "%v: save it again", err)
		}
	}
	return nil
}

// Why a path cannot be written to, with the remedy.
var (
	errFolder  = errors.New("this is a folder: name a file in it")
	errSpecial = errors.New("this is a device, pipe or socket: name a plain file")
	errLoop    = errors.New("its symbolic links lead in a circle: name a plain file")
	errNoFiles = errors.New("no file can be made in its folder: name one in another folder")
)

// writeRecord writes v to a file as writeFile does.
func writeRecord(path, what string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("save %s: %w", what, err)
	}
	if len(text) >= maxFile {
		return fmt.Errorf("save %s: %w", what, errTooLong)
	}
	return writeFile(path, what, append(text, '\n'))
}

// writeFile writes a file whole or not at all: under a temporary name in the same folder, onto the disk, and then in the
// place of the old one. Readers see the old text or the new one. A symbolic link stays, and what it leads to is written; a
// file that is there keeps its mode; anything but a plain file is refused. The error names path, and no other file.
func writeFile(path, what string, text []byte) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("save %s: %w", what, &fs.PathError{Op: "write", Path: path, Err: remedied(err)})
		}
	}()
	target, mode, err := destination(path)
	if err != nil {
		return err
	}
	dir := filepath.Dir(target)
	f, err := temporary(target)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()           //nolint:errcheck // the first error is the one to tell
			os.Remove(f.Name()) //nolint:errcheck
		}
	}()
	if _, err = f.Write(text); err != nil {
		return err
	}
	if err = f.Chmod(mode); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), target); err != nil {
		return err
	}
	syncDir(dir)
	return nil
}

// noFolderError is a folder that is not there.
type noFolderError string

func (dir noFolderError) Error() string { return "there is no folder " + string(dir) }

func (noFolderError) Unwrap() error { return fs.ErrNotExist }

// temporary makes a file beside target, under a name of its own.
func temporary(target string) (*os.File, error) {
	dir := filepath.Dir(target)
	f, err := os.CreateTemp(dir, "."+filepath.Base(target)+".*")
	if err == nil {
		return f, nil
	}
	switch _, there := os.Stat(dir); {
	case errors.Is(there, fs.ErrNotExist):
		return nil, noFolderError(dir)
	case there == nil && errors.Is(err, fs.ErrNotExist): // /proc
		return nil, errNoFiles
	}
	return nil, err
}

// destination is the file at the end of path's symbolic links, which need not be there yet, and the mode to give it.
func destination(path string) (string, fs.FileMode, error) {
	if st, err := os.Stat(path); err == nil && !st.IsDir() && !st.Mode().IsRegular() {
		return "", 0, errSpecial // a link of /proc to an open pipe names no path that leads there
	}
	for range 40 {
		st, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return path, 0o644, nil // other users' ranks read it
		case err != nil:
			return "", 0, err
		case st.IsDir():
			return "", 0, errFolder
		case st.Mode().IsRegular():
			return path, st.Mode().Perm(), nil
		case st.Mode()&fs.ModeSymlink == 0:
			return "", 0, errSpecial
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", 0, err
		}
		if !filepath.IsAbs(to) { // uncleaned: ".." behind a link to a folder leads elsewhere
			to = filepath.Dir(path) + string(filepath.Separator) + to
		}
		path = to
	}
	return "", 0, errLoop
}

// remedied is the system's reason for an error, without the name that the file had for a moment, and what to do.
func remedied(err error) error {
	for _, wrapped := range []any{new(*fs.PathError), new(*os.LinkError)} {
		if !errors.As(err, wrapped) {
			continue
		}
		switch w := wrapped.(type) {
		case **fs.PathError:
			err = (*w).Err
		case **os.LinkError:
			err = (*w).Err
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: make its folder first", err)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: name a file in a folder", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: name a file in a folder that may be written to", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: make room, or name a file on another disk", err)
	case errors.Is(err, syscall.ENAMETOOLONG):
		return fmt.Errorf("%w: give it a shorter name", err)
	case errors.Is(err, errFolder), errors.Is(err, errSpecial), errors.Is(err, errLoop), errors.Is(err, errNoFiles):
		return err
	}
	return fmt.Errorf("%w: name another file", err)
}

// syncDir makes a rename last through a power cut. Not every file system can, and the record is whole either way.
func syncDir(dir string) {
	if d, err := os.Open(dir); err == nil {
		d.Sync()  //nolint:errcheck
		d.Close() //nolint:errcheck
	}
}

// WriteFile writes a file whole or not at all, as records are saved: under a temporary name in the same folder, onto the disk,
// and then in the place of the old one. what names the file's kind in the error: "save what: write path: …".
func WriteFile(path, what string, text []byte) error { return writeFile(path, what, text) }

// CheckTarget refuses a path that WriteFile cannot write to. It makes a file beside it, and removes that again.
func CheckTarget(path string) error {
	target, _, err := destination(path)
	if err == nil {
		var f *os.File
		if f, err = temporary(target); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: remedied(err)}
	}
	return nil
}

// ReadRecord reads a record of a kind, {"kind": …, "version": FormatVersion, …}, from a file into v, which must have all of
// its fields. What is not such a record is a *RecordError, with what it was to hold (such as "tuning table") in its text; a file
// that cannot be opened is the system's error.
func ReadRecord(path, what, kind string, v any) error { return readRecord(path, what, kind, v) }

// WriteRecord saves v, which has the fields kind and version that ReadRecord wants, as WriteFile does.
func WriteRecord(path, what string, v any) error { return writeRecord(path, what, v) }
