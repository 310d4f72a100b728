package kernels

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed specs
var specFiles embed.FS

// Case is a kernel in a situation that package flags/check looks into: a spec with values of its params. To have another
// checked, add a line to cases.
type Case struct {
	Spec   string // file in specs, without .spec
	Source string // kernel source; of several that are loaded together: "a+b", of which the gate weakens the first
	SM     int    // which build
	Set    string // values of the spec's params: "dtype=bf16 count=37"
}

// Name says which case it is.
func (c *Case) Name() string {
	return strings.TrimSpace(fmt.Sprintf("%s sm_%d %s", c.Spec, c.SM, c.Set))
}

// Params are the values that Set gives.
func (c *Case) Params() map[string]string {
	set := map[string]string{}
	for _, f := range strings.Fields(c.Set) {
		k, v, _ := strings.Cut(f, "=")
		set[k] = v
	}
	return set
}

// SpecText is the case's spec.
func (c *Case) SpecText() ([]byte, error) { return specFiles.ReadFile("specs/" + c.Spec + ".spec") }

// Module is the build that the case runs.
func (c *Case) Module() (*Module, error) {
	m, err := Load()
	if err != nil {
		return nil, err
	}
	first, _, joined := strings.Cut(c.Source, "+")
	for i := range m.Modules {
		switch {
		case m.Modules[i].Source != first || m.Modules[i].SM != c.SM:
		case joined:
			return join(c.Source, &m.Modules[i]), nil
		default:
			return &m.Modules[i], nil
		}
	}
	return nil, fmt.Errorf("case %s: there is no build of %s for sm_%d", c.Name(), first, c.SM)
}

// Cases lists every case.
func Cases() []Case {
	list := []Case{}
	for _, group := range cases {
		for _, set := range group.sets {
			for _, sm := range group.sms {
				list = append(list, Case{group.spec, group.source, sm, set})
			}
		}
	}
	return list
}

// GateCases are those in which every instruction that orders anything is to be missed when it is weakened: each type and
// each world size has code of its own, and a block of two warps needs its barriers. The module holds the probes too, which play
// the host in some.
func GateCases() []Case {
	list := []Case{}
	inSets := map[string]bool{}
	for _, sm := range []int{70, 90} {
		for _, g := range gateSets {
			source := strings.TrimSuffix(strings.TrimSuffix(g.spec, "_replay"), "_absent")
			inSets[source] = true
			set := g.set
			if sm < 90 {
				set = strings.ReplaceAll(set, " start=dependent", "") // sm_70 has no wait for a dependent launch
			}
			worlds := []int{2, 3, 4, 8} // 3: the code for any size
			switch {
			case strings.HasSuffix(source, "push"):
				worlds[1] = 5 // which takes peers four at a time
			case source == "oneshot_wide":
				worlds = []int{2, 3}
			case source == "twoshot_wide":
				worlds = []int{4, 6, 8} // 6: the code for any size; like the others with an odd number of shares, which go in pairs and one alone
			}
			for _, dtype := range []string{"f32", "f16", "bf16"} {
				for _, world := range worlds {
					of := fmt.Sprintf("world=%d ", world)
					if own := strings.TrimPrefix(set, of); strings.HasPrefix(set, "world=") && own == set {
						continue // for another world size alone
					}
					c := Case{g.spec, source + "+probe", sm, fmt.Sprintf("%sdtype=%s %s", of, dtype, strings.TrimPrefix(set, of))}
					if !slices.Contains(list, c) {
						list = append(list, c)
					}
				}
			}
		}
	}
	return append(list, slices.DeleteFunc(Cases(), func(c Case) bool { return inSets[c.Source] || strings.Contains(c.Source, "+") })...)
}

var gateSets = []struct{ spec, set string }{
	{"oneshot_pull", "count=9 calls=3"},
	{"oneshot_pull", "count=321 calls=2 block=64"},
	{"oneshot_pull", "count=321 calls=2 block=64 shift=4"},
	{"oneshot_pull", "count=9 calls=3 inplace=1"},
	{"oneshot_pull", "count=9 calls=2 first=0xfffff grids=1"},
	{"oneshot_pull", "count=9 calls=3 first=0xfffff grids=1 inplace=1"},
	{"oneshot_pull", "count=9 calls=3 first=0xfffff grids=1 inplace=2"},
	{"oneshot_pull_absent", "count=9 calls=2"},
	{"oneshot_pull_absent", "count=9 calls=1 grid=2 resident=1"},
	{"oneshot_pull_absent", "count=9 calls=1 inplace=1 grid=2 late=1"},
	{"oneshot_pull_replay", "count=9 calls=3 inplace=1"},
	{"oneshot_pull_replay", "count=321 calls=2 block=64 inplace=1"},
	{"oneshot_pull_replay", "count=321 calls=3 first=0xfffff grids=1 stale=1 inplace=1"},
	{"oneshot_pull_replay", "count=321 calls=3 first=0xfffff grids=1 stale=1 inplace=2"},
	{"oneshot_pull", "count=9 calls=3 start=dependent"},
	{"oneshot_pull", "count=9 calls=3 start=dependent inplace=1"},
	{"oneshot_push", "count=77 calls=2 block=64 shift=4 replace=1 start=dependent"},
	{"oneshot_push", "count=1 calls=2 block=64 start=dependent"},
	{"oneshot_push", "world=2 count=134 calls=2 start=dependent"}, // at two ranks a thread has two pairs
	{"oneshot_push", "count=9 calls=3 first=0xfffff sizes=2 stale=1 start=dependent"},
	{"oneshot_push", "count=9 calls=3 first=0xffffd sizes=3 start=dependent"},
	{"oneshot_push_absent", "count=1 calls=1 grid=2 resident=1"},
	{"oneshot_push_absent", "count=1 calls=1 alone=1"},
	{"oneshot_push_absent", "count=1 calls=1 alone=2"},
	{"twoshot_push", "count=125 calls=2 block=64 shift=4 replace=1 start=dependent"},
	{"twoshot_push", "count=1 calls=2 first=2 block=64 start=dependent"}, // first=2: the epochs 0 and 1 refresh, and who does is looked at below
	{"twoshot_push", "count=67 calls=3 first=0xfffff sizes=2 stale=1 start=dependent"},
	{"twoshot_push", "count=67 calls=3 first=0xffffd sizes=3 start=dependent"},
	{"twoshot_push", "count=13 calls=2 first=0xffffe sizes=3 block=64 start=dependent"}, // slots are refreshed which peers may still poll
	{"twoshot_push_absent", "count=4*world calls=1 grid=2 resident=1"},
	{"twoshot_push_absent", "count=4*world calls=1 alone=1"},
	{"twoshot_push_absent", "count=4*world calls=1 alone=2"},
	{"twoshot_push_absent", "count=4*world calls=1 grid=2 late=1"},
	{"twoshot_push_absent", "count=4*world calls=1 late=1 alone=1"},
	{"twoshot_push_absent", "count=4*world calls=1 late=1 alone=2"},
	{"oneshot_wide", "count=61 calls=2 block=64 replace=1 start=dependent"},
	{"oneshot_wide", "count=13 calls=3 held=1 start=dependent"},
	{"oneshot_wide", "count=13 calls=3 first=0xfffff sizes=2 stale=1 start=dependent"},
	{"oneshot_wide", "count=13 calls=3 first=0xffffd sizes=3 start=dependent"},
	{"oneshot_wide_absent", "count=1 calls=1 grid=2 resident=1"},
	{"oneshot_wide_absent", "count=1 calls=1 alone=1"},
	{"oneshot_wide_absent", "count=1 calls=1 alone=2"},
	{"twoshot_wide", "count=1 calls=2 first=2 block=64 start=dependent"},
	{"twoshot_wide", "count=24*world calls=2 first=2 block=64 held=1 start=dependent"},
	{"twoshot_wide", "count=12*world calls=3 first=0xfffff sizes=2 stale=1 start=dependent"},
	{"twoshot_wide", "count=12*world calls=3 first=0xffffd sizes=3 start=dependent"},
	{"twoshot_wide", "count=12*world calls=2 first=0xffffe sizes=3 block=64 start=dependent"}, // slots are refreshed which peers may still poll
	{"twoshot_wide_absent", "count=24*world calls=1 first=2 grid=2 resident=1"},
	{"twoshot_wide_absent", "count=24*world calls=2 first=2 alone=1"},
	{"twoshot_wide_absent", "count=24*world calls=1 first=2 alone=2"},
	{"twoshot_wide_absent", "count=24*world calls=1 first=2 grid=2 late=1"},
	{"twoshot_wide_absent", "count=24*world calls=1 first=2 late=1"},
	{"twoshot_wide_absent", "count=24*world calls=2 first=2 late=1 alone=1"},
	{"twoshot_wide_absent", "count=24*world calls=1 first=2 late=1 alone=2"},
	{"twoshot_pull", "count=280*world calls=2 block=64 start=dependent"},
	{"twoshot_pull", "count=280*world+3 calls=1 block=64 shift=4 start=dependent"},
	{"twoshot_pull", "count=37 calls=3 inplace=1 start=dependent"},
	{"twoshot_pull", "count=9 calls=2 first=0xfffff grids=1 start=dependent"},
	{"twoshot_pull_absent", "count=9 calls=2"},
	{"twoshot_pull_absent", "count=9 calls=1 grid=2 resident=1"},
	{"twoshot_pull_absent", "count=9 calls=1 grid=2 late=1"},
	{"twoshot_pull_replay", "count=37 calls=3 inplace=1"},
	{"twoshot_pull_replay", "count=280*world calls=2 first=0xfffff grids=1 stale=1"},
}

// Redundant is the reviewed list of instructions that may be weakened without harm, and why.
func Redundant() ([]byte, error) { return specFiles.ReadFile("specs/redundant.txt") }

var cases = []struct {
	spec, source string
	sms          []int
	sets         []string
}{
	{"oneshot_pull", "oneshot_pull", []int{70, 90}, []string{
		"count=1 calls=1",
		"count=7 calls=2",
		"count=37 calls=3",
		"count=7 calls=3 replace=1",
		"dtype=f16 count=7 calls=2",
		"dtype=bf16 count=37 calls=2",
		"dtype=bf16 count=7 calls=2 shift=6",
		"dtype=f16 count=37 calls=2 shift=2 replace=1",
		"count=7 calls=3 shift=4 sizes=1",
		"count=37 calls=4 grids=1",
		"count=37 calls=2 grid=2 block=64",
		"count=7 calls=4 first=0xfffffffe",
		"count=1 calls=3 first=0xffffe",
		"count=7 calls=2 inplace=1",
		"count=37 calls=3 inplace=1 shift=4",
		"dtype=f16 count=37 calls=2 inplace=1",
		"dtype=bf16 count=7 calls=2 inplace=1 grid=2",
		"count=1 calls=2 inplace=1 first=0xffffe",
		"world=3 count=7 calls=3",
		"world=3 dtype=bf16 count=37 calls=2 grids=1",
		"world=3 dtype=f16 count=7 calls=2 inplace=1",
		"world=4 count=7 calls=3",
		"world=4 dtype=bf16 count=7 calls=2 inplace=1",
		"world=8 count=7 calls=2",
		"world=8 dtype=f16 count=7 calls=2 inplace=1",
	}},
	{"oneshot_pull", "oneshot_pull", []int{90}, []string{
		"start=dependent count=7 calls=4",
		"start=dependent dtype=bf16 count=37 calls=3 grids=1",
		"start=dependent count=7 calls=3 inplace=1",
		"start=dependent world=3 count=7 calls=3 sizes=1",
	}},
	{"oneshot_pull_replay", "oneshot_pull", []int{70, 90}, []string{
		"count=7 calls=3",
		"count=7 calls=3 first=0xfffffffe",
		"count=321 calls=3 first=0xfffff grids=1 stale=1 inplace=2",
		"count=7 calls=3 replace=1",
		"dtype=bf16 count=37 calls=2 grid=2",
		"count=1 calls=2 inplace=1",
		"count=7 calls=3 inplace=1",
		"dtype=f16 count=37 calls=2 inplace=1 grid=2",
		"world=3 count=7 calls=2",
		"world=3 dtype=bf16 count=7 calls=2 inplace=1",
		"world=4 count=7 calls=2 inplace=1",
		"world=8 dtype=f16 count=7 calls=2 inplace=1",
	}},
	{"oneshot_push", "oneshot_push", []int{70, 90}, []string{
		"count=1 calls=1",
		"count=2 calls=3",
		"count=7 calls=3",
		"count=7 calls=3 replace=1",
		"count=37 calls=3 shift=4",
		"dtype=f16 count=7 calls=2 shift=2",
		"dtype=bf16 count=37 calls=2",
		"dtype=bf16 count=7 calls=2 shift=6 replace=1",
		"count=7 calls=3 sizes=1",
		"count=77 calls=4 grids=1",
		"count=77 calls=2 grid=2 block=64",
		"count=77 calls=3",
		"dtype=bf16 count=277 calls=2 shift=6",
		"count=2 calls=4 first=0xfffffffe",
		"count=2 calls=3 spare=3 first=0xffffe",
		"count=9 calls=3 first=0xfffff sizes=2 stale=1",
		"count=9 calls=4 first=0xfffff sizes=2 stale=1",
		"world=3 count=4 calls=3",
		"world=3 dtype=bf16 count=37 calls=2 grids=1",
		"world=4 count=7 calls=3",
		"world=5 count=7 calls=2",
		"world=8 dtype=f16 count=7 calls=2",
	}},
	{"oneshot_push", "oneshot_push", []int{90}, []string{
		"start=dependent count=7 calls=4",
		"start=dependent dtype=bf16 count=77 calls=3 grids=1",
		"start=dependent world=3 count=7 calls=3 sizes=1",
	}},
	{"oneshot_push_replay", "oneshot_push", []int{70, 90}, []string{
		"count=7 calls=3", "count=77 calls=3 grids=1", "dtype=bf16 count=37 calls=3 replace=1", "world=3 count=7 calls=3",
	}},
	{"twoshot_push", "twoshot_push", []int{70, 90}, []string{
		"count=1 calls=2",
		"count=7 calls=3",
		"count=7 calls=3 replace=1",
		"count=37 calls=3 shift=4",
		"dtype=f16 count=7 calls=2 shift=2",
		"dtype=bf16 count=37 calls=2",
		"dtype=bf16 count=37 calls=2 shift=6 replace=1",
		"count=37 calls=4 sizes=1",
		"count=149 calls=4 grids=1",
		"count=149 calls=2 grid=2 block=64",
		"count=7 calls=4 first=0xfffffffe",
		"count=9 calls=3 first=0xfffff sizes=2 stale=1 spare=1",
		"count=9 calls=4 first=0xfffff sizes=2 stale=1",
		"count=37 calls=3 first=0xffffe sizes=3", // slots are refreshed which peers may still poll
		"world=3 count=7 calls=3",
		"world=3 count=1 calls=4",
		"world=3 count=19 calls=4 sizes=1",
		"world=3 count=19 calls=3 first=0xfffff sizes=2 stale=1",
		"world=3 count=19 calls=2 first=0xffffe sizes=3",
		"world=3 dtype=bf16 count=37 calls=2 grids=1",
		"world=4 count=15 calls=3",
		"world=5 count=23 calls=2",
		"world=8 dtype=f16 count=67 calls=2",
	}},
	{"twoshot_push", "twoshot_push", []int{90}, []string{
		"start=dependent count=7 calls=4",
		"start=dependent dtype=bf16 count=149 calls=3 grids=1",
		"start=dependent world=3 count=19 calls=3 sizes=1",
	}},
	{"twoshot_push_replay", "twoshot_push", []int{70, 90}, []string{
		"count=7 calls=3", "count=149 calls=3 grids=1", "dtype=bf16 count=37 calls=3 replace=1", "world=3 count=19 calls=3",
	}},
	{"oneshot_wide", "oneshot_wide", []int{70, 90}, []string{
		"count=1 calls=1",
		"count=3 calls=3", // one pack, whose last packet has no data
		"count=12 calls=3",
		"count=29 calls=3",
		"count=29 calls=3 replace=1",
		"count=37 calls=3 shift=4",
		"dtype=f16 count=7 calls=2 shift=2",
		"dtype=bf16 count=37 calls=2",
		"dtype=bf16 count=61 calls=2 shift=6 replace=1",
		"count=29 calls=3 sizes=1",
		"count=101 calls=4 grids=1",
		"count=389 calls=2 grid=2 block=64",
		"count=389 calls=2 replace=1", // a thread has two columns, and rows are of whole lines
		"dtype=bf16 count=277 calls=2 shift=6",
		"count=13 calls=4 first=0xfffffffe",
		"count=2 calls=3 spare=3 first=0xffffe",
		"count=29 calls=3 first=0xfffff sizes=2 stale=1",
		"count=29 calls=4 first=0xfffff sizes=2 stale=1",
		"count=29 calls=3 first=0xffffd sizes=3",
		"world=3 count=19 calls=3",
		"world=3 dtype=bf16 count=61 calls=2 grids=1",
		"world=4 count=19 calls=3",
		"world=5 count=19 calls=2",
		"world=8 dtype=f16 count=35 calls=2",
	}},
	{"oneshot_wide", "oneshot_wide", []int{90}, []string{
		"start=dependent count=19 calls=4",
		"start=dependent dtype=bf16 count=277 calls=3 grids=1",
		"start=dependent world=3 count=19 calls=3 sizes=1",
		"start=dependent count=19 calls=4 held=1",
		"start=dependent count=389 calls=3 grid=2 block=64 held=1",
		"start=dependent world=3 count=19 calls=3 sizes=1 held=1",
	}},
	{"oneshot_wide_replay", "oneshot_wide", []int{70, 90}, []string{
		"count=19 calls=3", "count=101 calls=3 grids=1", "dtype=bf16 count=37 calls=3 replace=1", "world=3 count=19 calls=3",
	}},
	{"twoshot_wide", "twoshot_wide", []int{70, 90}, []string{
		"count=1 calls=2",
		"count=13 calls=3",
		"count=29 calls=3 replace=1",
		"count=61 calls=3 shift=4",
		"dtype=f16 count=31 calls=2 shift=2",
		"dtype=bf16 count=69 calls=2",
		"dtype=bf16 count=69 calls=2 shift=6 replace=1",
		"count=61 calls=4 sizes=1",
		"count=205 calls=4 grids=1",
		"count=389 calls=2 grid=2 block=64",
		"count=773 calls=2 replace=1", // chunks of two tiles, whose rows are of whole lines
		"count=15 calls=4 first=0xfffffffe",
		"count=29 calls=3 first=0xfffff sizes=2 stale=1 spare=1",
		"count=29 calls=4 first=0xfffff sizes=2 stale=1",
		"count=29 calls=3 first=0xffffd sizes=3",
		"count=29 calls=3 first=0xffffe sizes=3", // slots are refreshed which peers may still poll
		"world=3 count=29 calls=3",
		"world=3 count=1 calls=4",
		"world=3 count=61 calls=4 sizes=1",
		"world=3 count=61 calls=3 first=0xfffff sizes=2 stale=1",
		"world=3 count=61 calls=2 first=0xffffe sizes=3",
		"world=3 dtype=bf16 count=149 calls=2 grids=1",
		"world=4 count=47 calls=3",
		"world=5 count=59 calls=2",
		"world=8 dtype=f16 count=187 calls=2",
	}},
	{"twoshot_wide", "twoshot_wide", []int{90}, []string{
		"start=dependent count=29 calls=4",
		"start=dependent dtype=bf16 count=405 calls=3 grids=1",
		"start=dependent world=3 count=61 calls=3 sizes=1",
		"start=dependent count=29 calls=4 held=1",
		"start=dependent count=389 calls=3 grid=2 block=64 held=1",
		"start=dependent world=3 count=61 calls=3 sizes=1 held=1",
	}},
	{"twoshot_wide_replay", "twoshot_wide", []int{70, 90}, []string{
		"count=29 calls=3", "count=205 calls=3 grids=1", "dtype=bf16 count=69 calls=3 replace=1", "world=3 count=61 calls=3",
	}},
	{"twoshot_pull", "twoshot_pull", []int{70, 90}, []string{
		"count=1 calls=1",
		"count=7 calls=2",
		"count=37 calls=3",
		"count=37 calls=3 replace=1",
		"dtype=f16 count=37 calls=2 shift=2 replace=1",
		"dtype=bf16 count=37 calls=2 shift=6",
		"count=37 calls=3 shift=4 sizes=1",
		"count=321 calls=4 grids=1",
		"count=321 calls=2 grid=2 block=64",
		"count=37 calls=4 first=0xfffffffe",
		"count=9 calls=3 first=0xffffe",
		"count=37 calls=2 inplace=1",
		"count=37 calls=3 inplace=1 shift=4",
		"count=37 calls=3 inplace=2",
		"count=37 calls=3 inplace=1 replace=1",
		"dtype=f16 count=37 calls=2 inplace=2 replace=1 shift=2",
		"world=3 count=37 calls=3",
		"world=3 dtype=bf16 count=77 calls=2 grids=1",
		"world=3 dtype=f16 count=77 calls=2 inplace=1",
		"world=3 count=37 calls=2 inplace=1 replace=1",
		"world=4 count=37 calls=2",
		"world=8 dtype=f16 count=77 calls=2",
	}},
	{"twoshot_pull", "twoshot_pull", []int{90}, []string{
		"start=dependent count=37 calls=4",
		"start=dependent dtype=bf16 count=321 calls=3 grids=1",
		"start=dependent count=37 calls=3 inplace=1",
		"start=dependent world=3 count=37 calls=3 sizes=1",
	}},
	{"twoshot_pull_replay", "twoshot_pull", []int{70, 90}, []string{
		"count=37 calls=3",
		"count=37 calls=3 inplace=1",
		"count=37 calls=3 inplace=2",
		"count=321 calls=3 first=0xfffff grids=1 stale=1 inplace=2",
		"dtype=bf16 count=77 calls=2 grid=2 replace=1",
		"world=3 count=37 calls=2 inplace=1",
	}},
	{"oneshot_push_absent", "oneshot_push+probe", []int{70, 90}, []string{
		"count=7", "dtype=bf16 count=37 block=64 grid=2", "world=3 count=7 first=0xfffffffe", "world=3 count=7 alone=2",
	}},
	{"twoshot_push_absent", "twoshot_push+probe", []int{70, 90}, []string{
		"count=7", "dtype=bf16 count=37 block=64 grid=2", "world=3 count=7 first=0xfffffffe", "world=3 count=19 late=1", "world=3 count=19 alone=2",
	}},
	{"oneshot_wide_absent", "oneshot_wide+probe", []int{70, 90}, []string{
		"count=19", "dtype=bf16 count=61 block=64 grid=2", "world=3 count=19 first=0xfffffffe", "world=3 count=19 alone=2",
		"count=61 calls=2 block=64 held=1",
	}},
	{"twoshot_wide_absent", "twoshot_wide+probe", []int{70, 90}, []string{
		"count=19", "dtype=bf16 count=69 block=64 grid=2", "world=3 count=33 first=0xfffffffe", "world=3 count=33 late=1",
		"world=3 count=33 alone=2", "world=3 count=33 late=1 alone=1",
		"count=69 calls=2 block=64 held=1", // some threads give up while others are at the barrier
	}},
	{"twoshot_pull_absent", "twoshot_pull+probe", []int{70, 90}, []string{
		"count=7", "dtype=bf16 count=37 block=64 grid=2", "world=3 count=7 first=0xfffffffe", "world=3 count=37 late=1",
	}},
	{"oneshot_pull_absent", "oneshot_pull+probe", []int{70, 90}, []string{
		"count=7", "dtype=bf16 count=37 block=64 grid=2", "world=3 count=7 first=0xfffffffe", "world=3 count=7 inplace=1 late=1",
	}},
	{"turns", "oneshot_wide+twoshot_wide+oneshot_pull+oneshot_push+twoshot_pull+twoshot_push", []int{70, 90}, []string{"rounds=2"}},
	{"turns", "oneshot_wide+twoshot_wide+oneshot_pull+oneshot_push+twoshot_pull+twoshot_push", []int{90}, []string{
		"rounds=2 dtype=bf16 count=37 replace=1",
		"rounds=1 count=149 grids=1",
		"rounds=2 first=0xfffffffd",
		"world=3 rounds=2 count=19",
		"start=dependent rounds=2 count=19",
	}},
	{"reduce_local", "reduce_local", []int{70, 90}, []string{
		"count=37", "dtype=f16 count=7", "dtype=bf16 count=37 shift=2 world=5",
	}},
	{"probe_post", "probe", []int{70, 90}, []string{"rounds=2", "rounds=2 count=7 block=32 grid=2"}},
	{"probe_ping", "probe", []int{70, 90}, []string{"rounds=3"}},
	{"probe_absent", "probe", []int{70, 90}, []string{""}},
	{"probe_add", "probe", []int{70, 90}, []string{"rounds=2"}},
}
