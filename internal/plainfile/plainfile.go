// Package plainfile reads what a user names: plain files, up to a length.
package plainfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// What an *Error matches.
var (
	ErrNotPlain = errors.New("not a plain file")
	ErrTooLong  = errors.New("the file is too long")
)

// Error is a file that is there and is not read.
type Error struct {
	Path   string
	Kind   error  // ErrNotPlain or ErrTooLong
	Detail string // what it is, and the remedy
}

func (e *Error) Error() string { return fmt.Sprintf("read %s: %s", e.Path, e.Detail) }

func (e *Error) Unwrap() error { return e.Kind }

// Read reads a whole file of at most so many bytes. Symbolic links are followed. What is no plain file is refused unopened: a
// pipe would wait for its other end, and a device need not end. The error is an *Error or the system's; both name the path.
func Read(path string, most int64) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := plain(path, st); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may have become a pipe
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := plain(path, st); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1)) // what a file of /proc says of its size is nothing
	if err == nil && int64(len(text)) > most {
		return nil, &Error{path, ErrTooLong, fmt.Sprintf("it is longer than %s, the most that is read: name another file", size(most))}
	}
	return text, err
}

// plain refuses what is no plain file.
func plain(path string, st fs.FileInfo) error {
	var detail string
	switch mode := st.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		detail = "this is a folder: name a file in it"
	case mode&fs.ModeNamedPipe != 0:
		detail = "this is a pipe: save what comes through it in a file, and name that"
	case mode&fs.ModeSocket != 0:
		detail = "this is a socket: name a plain file"
	case mode&fs.ModeDevice != 0:
		detail = "this is a device: name a plain file"
	default:
		detail = "this is no plain file: name one"
	}
	return &Error{path, ErrNotPlain, detail}
}

func size(n int64) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}
