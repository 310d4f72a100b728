package doctor

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// entry is one file of a canned host.
type entry struct {
	kind string // "" text, "link", "dir", "elf" (the body lists its symbols), "config" (sparse hexadecimal)
	size int    // of a config
	body string
}

// layOut makes the tree of testdata/NAME.host and returns its folder.
//
// The form: "# remark" and "include OTHER.host" lines, then files, each under a line "-- PATH", "-- PATH -> TARGET"
// (a symbolic link), "-- PATH/" (a folder), "-- PATH elf", "-- PATH config [SIZE]", or "-- PATH deleted". Later
// files replace earlier ones of the same path.
func layOut(t *testing.T, name string) string {
	t.Helper()
	files := map[string]entry{}
	readHost(t, name, files)
	root := t.TempDir()
	for _, p := range slices.Sorted(maps.Keys(files)) {
		e := files[p]
		full := filepath.Join(root, p)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		switch e.kind {
		case "link":
			require.NoError(t, os.Symlink(e.body, full))
		case "dir":
			require.NoError(t, os.MkdirAll(full, 0o755))
		case "elf":
			require.NoError(t, os.WriteFile(full, sharedObject(machines[runtime.GOARCH], strings.Fields(e.body)...), 0o644))
		case "config":
			require.NoError(t, os.WriteFile(full, sparse(t, e.size, e.body), 0o644))
		default:
			require.NoError(t, os.WriteFile(full, []byte(e.body), 0o644))
		}
	}
	return root
}

func readHost(t *testing.T, name string, files map[string]entry) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	head, rest, _ := strings.Cut("\n"+string(text), "\n-- ")
	for _, line := range strings.Split(head, "\n") {
		if other, ok := strings.CutPrefix(line, "include "); ok {
			readHost(t, other, files)
		} else if line != "" {
			require.True(t, strings.HasPrefix(line, "#"), "%s: %q", name, line)
		}
	}
	if rest == "" {
		return
	}
	for _, part := range strings.Split(rest, "\n-- ") {
		title, body, _ := strings.Cut(part, "\n")
		path, target, isLink := strings.Cut(title, " -> ")
		words := strings.Fields(title)
		switch {
		case isLink:
			files[path] = entry{kind: "link", body: target}
		case len(words) == 1 && strings.HasSuffix(title, "/"):
			files[strings.TrimSuffix(title, "/")] = entry{kind: "dir"}
		case len(words) == 1:
			files[title] = entry{body: body + "\n"}
		case words[1] == "deleted":
			gone := len(files)
			maps.DeleteFunc(files, func(p string, _ entry) bool {
				return p == words[0] || strings.HasSuffix(words[0], "/") && strings.HasPrefix(p, words[0])
			})
			require.Less(t, len(files), gone, "%s: nothing to delete at %s", name, words[0])
		case words[1] == "elf":
			files[words[0]] = entry{kind: "elf", body: body}
		case words[1] == "config":
			size := 4096
			if len(words) > 2 {
				size, err = strconv.Atoi(words[2])
				require.NoError(t, err)
			}
			files[words[0]] = entry{kind: "config", size: size, body: body}
		default:
			require.Fail(t, "fixture", "%s: %q", name, title)
		}
	}
}

// sparse makes size bytes from lines "OFFSET: BYTES", both hexadecimal.
func sparse(t *testing.T, size int, text string) []byte {
	t.Helper()
	b := make([]byte, size)
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		at, data, ok := strings.Cut(line, ":")
		require.True(t, ok, line)
		n, err := strconv.ParseInt(at, 16, 32)
		require.NoError(t, err)
		raw, err := hex.DecodeString(strings.ReplaceAll(data, " ", ""))
		require.NoError(t, err)
		require.LessOrEqual(t, int(n)+len(raw), size)
		copy(b[n:], raw)
	}
	return b
}

// sharedObject is the smallest 64-bit library that defines the symbols.
func sharedObject(machine elf.Machine, symbols ...string) []byte {
	var strs, syms bytes.Buffer
	strs.WriteByte(0)
	put := func(b *bytes.Buffer, v any) {
		if err := binary.Write(b, binary.LittleEndian, v); err != nil {
			panic(fmt.Sprintf("%T: %v", v, err)) // a fixture of fixed size
		}
	}
	put(&syms, elf.Sym64{})
	for _, s := range symbols {
		put(&syms, elf.Sym64{Name: uint32(strs.Len()), Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 1, Value: 0x1000})
		strs.WriteString(s + "\x00")
	}
	names := "\x00.dynsym\x00.dynstr\x00.shstrtab\x00"
	const header = 64
	at := func(n int) uint64 { return uint64(header + n) }
	var out bytes.Buffer
	h := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: 1, Shoff: at(syms.Len() + strs.Len() + len(names)),
		Ehsize: header, Shentsize: 64, Shnum: 4, Shstrndx: 3}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	put(&out, h)
	out.Write(syms.Bytes())
	out.Write(strs.Bytes())
	out.WriteString(names)
	put(&out, elf.Section64{})
	put(&out, elf.Section64{Name: 1, Type: uint32(elf.SHT_DYNSYM), Off: at(0), Size: uint64(syms.Len()), Link: 2, Info: 1, Entsize: 24})
	put(&out, elf.Section64{Name: 9, Type: uint32(elf.SHT_STRTAB), Off: at(syms.Len()), Size: uint64(strs.Len())})
	put(&out, elf.Section64{Name: 17, Type: uint32(elf.SHT_STRTAB), Off: at(syms.Len() + strs.Len()), Size: uint64(len(names))})
	return out.Bytes()
}
