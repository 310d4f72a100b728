package main

import (
	"math/bits"
	"strconv"
	"strings"

	"github.com/fenceline/fenceline/allreduce"
)

// maxMessage bounds one message: each rank needs it twice on its device, and all ranks' copies lie in host memory.
const maxMessage = 1 << 30

// size is a message length as the user stated it.
type size struct {
	n     uint64
	bytes bool // n counts bytes, not elements
	text  string
}

// units are the suffixes of sizes in bytes. As in nccl-tests, all are powers of 1024.
var units = []struct {
	suffix string
	bytes  uint64
}{
	{"KIB", 1 << 10}, {"MIB", 1 << 20}, {"GIB", 1 << 30}, {"KB", 1 << 10}, {"MB", 1 << 20}, {"GB", 1 << 30}, {"B", 1},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30},
}

// parseSizes reads a list of sizes and ranges.
func parseSizes(items []string) ([]size, error) {
	var list []size
	for _, item := range items {
		item = strings.TrimSpace(item)
		from, to, isRange := strings.Cut(item, ":")
		a, err := parseSize(from, item)
		if err != nil {
			return nil, err
		}
		if !isRange {
			list = append(list, a)
			continue
		}
		b, err := parseSize(to, item)
		switch {
		case err != nil:
			return nil, err
		case a.bytes != b.bytes:
			return nil, usagef("--sizes", item, "one end is bytes and the other counts elements: give both ends the same kind, such as 1KB:1MB")
		case a.n > b.n:
			return nil, usagef("--sizes", item, "the range ends before it starts: put the smaller size first")
		}
		for n := a.n; n <= b.n; n *= 2 { // cannot overflow: parseSize bounds n
			list = append(list, size{n: n, bytes: a.bytes, text: item})
		}
	}
	if len(list) == 0 {
		return nil, usagef("--sizes", "", "the list is empty: use sizes such as 4097 (elements), 64KB, or 1KB:1MB")
	}
	return list, nil
}

// parseSize reads one size; item is the list entry that it is part of.
func parseSize(s, item string) (size, error) {
	const remedy = "use a number of elements such as 4097, a number of bytes such as 512B, 64KB or 1MiB, or a range such as 1KB:1MB"
	out := size{text: item}
	digits, unit := strings.ToUpper(strings.TrimSpace(s)), uint64(1)
	for _, u := range units {
		if d, ok := strings.CutSuffix(digits, u.suffix); ok {
			digits, unit, out.bytes = strings.TrimSpace(d), u.bytes, true
			break
		}
	}
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return out, usagef("--sizes", item, "not a size: %s", remedy)
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	hi, lo := bits.Mul64(n, unit)
	// More elements than maxMessage bytes fit no element type, so the same bound serves both kinds.
	if err != nil || hi != 0 || lo > maxMessage {
		return out, tooLarge(item)
	}
	if lo == 0 {
		return out, usagef("--sizes", item, "there is nothing to sum: use 1 element or more")
	}
	out.n = lo
	return out, nil
}

func tooLarge(item string) error {
	return usagef("--sizes", item, "larger than a message of this program may be: use at most %d bytes (1GiB)", maxMessage)
}

// count is the number of elements of dt.
func (s size) count(dt allreduce.DType) (uint64, error) {
	if !s.bytes {
		if s.n > maxMessage/dt.Size() {
			return 0, tooLarge(s.text)
		}
		return s.n, nil
	}
	if s.n%dt.Size() != 0 {
		return 0, usagef("--sizes", s.text, "%d bytes are no whole number of %v elements: use a multiple of %d bytes, or other types with --dtype", s.n, dt, dt.Size())
	}
	return s.n / dt.Size(), nil
}

// row is one line of the results.
type row struct {
	dtype allreduce.DType
	count uint64
}

func (r row) bytes() uint64 { return r.count * r.dtype.Size() }

// rows are all lines of a run, in order.
func (s *settings) rows() ([]row, error) {
	var list []row
	for _, dt := range s.dtypes {
		for _, sz := range s.sizes {
			n, err := sz.count(dt)
			if err != nil {
				return nil, err
			}
			list = append(list, row{dt, n})
		}
	}
	return list, nil
}

func largest(rows []row) uint64 {
	var n uint64
	for _, r := range rows {
		n = max(n, r.bytes())
	}
	return n
}
