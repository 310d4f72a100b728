package doctor

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/fenceline/fenceline/topo"
)

// maxRead bounds what is read of any file: /proc files have no size of their own.
const maxRead = 1 << 20

// tree reads files below a folder that stands for "/". Paths are written without the leading slash.
// Below a folder other than "/" no symbolic link leads out of it.
type tree struct {
	root *os.Root // nil on the running host, whose links are absolute at times
	err  error    // why nothing can be read
	live bool
}

func openTree(dir string) *tree {
	if dir == "" || filepath.Clean(dir) == "/" {
		return &tree{live: true}
	}
	root, err := os.OpenRoot(dir)
	return &tree{root: root, err: err}
}

func (t *tree) close() {
	if t.root != nil {
		t.root.Close() // opened for reading only
	}
}

// readOnly does not wait for a pipe's writer.
const readOnly = os.O_RDONLY | syscall.O_NONBLOCK

func (t *tree) open(name string) (*os.File, error) {
	switch {
	case t.err != nil:
		return nil, t.err
	case t.live:
		return os.OpenFile("/"+name, readOnly, 0)
	}
	return t.root.OpenFile(name, readOnly, 0)
}

// bytes is the content of a file, cut at maxRead.
func (t *tree) bytes(name string) ([]byte, error) {
	f, err := t.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("not a plain file")}
	}
	return io.ReadAll(io.LimitReader(f, maxRead))
}

// text is a file's content without surrounding white space.
func (t *tree) text(name string) (string, error) {
	b, err := t.bytes(name)
	return strings.TrimSpace(string(b)), err
}

// word is text where failure needs no telling apart from an empty file.
func (t *tree) word(name string) string {
	s, err := t.text(name)
	if err != nil {
		return ""
	}
	return s
}

// list is the sorted names in a folder.
func (t *tree) list(name string) ([]string, error) {
	f, err := t.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// link is where a symbolic link points.
func (t *tree) link(name string) (string, error) {
	switch {
	case t.err != nil:
		return "", t.err
	case t.live:
		return os.Readlink("/" + name)
	}
	return t.root.Readlink(name)
}

// exists follows links. It is Unknown where that may not be looked at, or a link leads out of the tree.
func (t *tree) exists(name string) topo.Tri {
	var err error
	switch {
	case t.err != nil:
		return topo.Unknown
	case t.live:
		_, err = os.Stat("/" + name)
	default:
		_, err = t.root.Stat(name)
	}
	switch {
	case err == nil:
		return topo.Yes
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return topo.No
	}
	return topo.Unknown
}

// follow is the name at the end of a chain of links, as the running linker would come to it. A link that leads
// nowhere ends the chain.
func (t *tree) follow(name string) string {
	for range 16 {
		to, err := t.link(name)
		if err != nil {
			return name
		}
		if !path.IsAbs(to) {
			to = path.Join("/", path.Dir(name), to)
		}
		name = strings.TrimPrefix(path.Clean(to), "/")
	}
	return name
}

// reason is an error without the path that the evidence names already.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// clean makes text from the machine safe to print: one line of bounded length, nothing that a terminal acts on.
func clean(s string) string {
	const limit = 300
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, s)
	if len(s) > limit {
		cut := limit
		for !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return s
}
