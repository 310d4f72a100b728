package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// inlined is a function that was inlined: where its code lies in the PTX, and where it was called.
type inlined struct {
	name     string
	from, to int // PTX lines, from 1, the end exclusive
	file     string
	line     int
	parent   *inlined // the function that holds the call; nil: no inlined one
}

var (
	abbreviation = regexp.MustCompile(`// Abbreviation Code`)
	die          = regexp.MustCompile(`// Abbrev \[(\d+)\] 0x([0-9a-f]+):0x[0-9a-f]+ DW_TAG_(\w+)`)
	attribute    = regexp.MustCompile(`^\.b\d+\s+(\S+)\s*(?:// DW_AT_(\w+))?`)
)

// readInlined reads the inlined functions from the debug sections of PTX, as clang comments them. labels are the PTX
// lines of labels, files the sources by number.
func readInlined(rows []string, labels map[string]int, files map[string]string) ([]*inlined, error) {
	parents := map[string]bool{} // abbreviations whose entries have children
	var all, stack []*inlined
	var origin []string // of each of all
	var now *inlined    // the entry in hand; nil: one of no interest
	var name *[]byte
	section, offset, attr := "", "", ""
	spelled := map[string]*[]byte{} // names of functions, by offset
	for i, row := range rows {
		if s, ok := strings.CutPrefix(strings.TrimSpace(row), ".section"); ok {
			section = strings.Fields(s)[0]
			continue
		}
		switch {
		case section == ".debug_abbrev" && abbreviation.MatchString(row) && i+2 < len(rows):
			if strings.Contains(rows[i+2], "DW_CHILDREN_yes") {
				parents[strings.Fields(row)[1]] = true
			}
		case section != ".debug_info":
		case strings.Contains(row, "End Of Children Mark"):
			if len(stack) == 0 {
				return nil, fmt.Errorf("debug entries end more often than they begin")
			}
			stack = stack[:len(stack)-1]
		case die.MatchString(row):
			m := die.FindStringSubmatch(row)
			n, err := strconv.ParseUint(m[2], 16, 64)
			if err != nil {
				return nil, err
			}
			offset, now, attr, name = fmt.Sprint(n), nil, "", nil
			if m[3] == "inlined_subroutine" {
				now = &inlined{}
				for k := len(stack) - 1; k >= 0 && now.parent == nil; k-- {
					now.parent = stack[k]
				}
				all, origin = append(all, now), append(origin, "")
			}
			if parents[m[1]] {
				stack = append(stack, now)
			}
		default:
			m := attribute.FindStringSubmatch(strings.TrimSpace(row))
			if m == nil {
				continue
			}
			if m[2] != "" {
				if attr = m[2]; attr == "name" {
					name = &[]byte{}
					spelled[offset] = name
				}
			} else if attr != "name" && attr != "call_line" {
				continue
			}
			v, _ := strconv.Atoi(m[1]) // labels are none
			switch {
			case attr == "name" && v != 0:
				*name = append(*name, byte(v))
			case now == nil:
			case attr == "abstract_origin":
				origin[len(origin)-1] = m[1]
			case attr == "low_pc":
				now.from = labels[m[1]]
			case attr == "high_pc":
				now.to = labels[m[1]]
			case attr == "call_file":
				now.file = files[m[1]]
			case attr == "call_line" && m[2] != "":
				now.line = v
			case attr == "call_line": // the second byte of a long number
				now.line += v << 8
			}
		}
	}
	for i, f := range all {
		if n := spelled[origin[i]]; n != nil {
			f.name = string(*n)
		}
		if f.name == "" || f.from == 0 || f.to < f.from || f.file == "" || f.line == 0 {
			return nil, fmt.Errorf("an inlined function is not described in full: %+v", *f)
		}
	}
	return all, nil
}

// caller finds the calls through which code on a PTX line came into its kernel, the innermost first. function is where the
// line came from. The ranges of scattered functions hold other code too, so the smallest of that name counts.
func caller(all []*inlined, line int, function string) string {
	var best *inlined
	for _, f := range all {
		if f.name == function && f.from <= line && line < f.to && (best == nil || f.to-f.from < best.to-best.from) {
			best = f
		}
	}
	var calls []string
	for f := best; f != nil; f = f.parent {
		calls = append(calls, fmt.Sprintf("%s:%d", f.file, f.line))
	}
	return strings.Join(calls, " ")
}

var deviceFunction = regexp.MustCompile(`FL_DEVICE\s[^;(]*?(operator\[\]|\w+)\s*\(`)

// functions gives the function that each line of a source belongs to, "" for none.
func functions(source []byte) []string {
	var list []string
	now := ""
	for row := range strings.Lines(string(source)) {
		switch m := deviceFunction.FindStringSubmatch(row); {
		case strings.HasPrefix(row, "#define"): // what follows belongs to a kernel
			now = ""
		case m != nil:
			now = m[1]
		}
		list = append(list, now)
	}
	return list
}

// sorted keeps the output the same from run to run.
func sorted(all []*inlined) []*inlined {
	slices.SortStableFunc(all, func(a, b *inlined) int { return cmp.Compare(a.to-a.from, b.to-b.from) })
	return all
}
