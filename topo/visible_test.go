package topo

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVisible(t *testing.T) {
	gpus := []Device{
		{UUID: "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"},
		{UUID: "GPU-8931aaaa-0000-0000-0000-000000000001"},
		{UUID: "GPU-12340000-0000-0000-0000-000000000002"},
		{UUID: "GPU-12"}, // a UUID that starts another one
	}
	whole := "GPU-aaaa0000-0000-0000-0000-000000000000"
	slices := []Device{
		{UUID: "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f", MIG: Yes, Slice: &Slice{whole, 1, 0}}, // as CUDA writes it
		{UUID: "MIG-5c8a0000-0000-0000-0000-000000000000", MIG: Yes, Slice: &Slice{whole, 2, 0}}, // as NVML writes it
		{UUID: "GPU-77770000-0000-0000-0000-000000000000", MIG: No},
		{UUID: "GPU-88880000-0000-0000-0000-000000000000", MIG: Yes},
	}
	for _, c := range []struct {
		list    string
		devices []Device
		want    []int
		why     string // part of it; empty: nothing cut the list
	}{
		{"0", gpus, []int{0}, ""},
		{"2,1", gpus, []int{2, 1}, ""},
		{" 3 , 0 ", gpus, []int{3, 0}, ""},
		{"", gpus, nil, "the list is empty"},
		{"  ", gpus, nil, "the list is empty"},
		{"-1", gpus, nil, `entry 1, "-1", is not one of the 4 devices`},
		{"0,2,-1,1", gpus, []int{0, 2}, `entry 3, "-1"`},
		{"0,4,1", gpus, []int{0}, `entry 2, "4", is not one of the 4 devices: the list ends before it`},
		{"99999999999999999999", gpus, nil, "is not one of the 4 devices"},
		{"0,,1", gpus, []int{0}, `entry 2, "", is no index`},
		{"1,", gpus, []int{1}, `entry 2, ""`},
		{"NoDevFiles", gpus, nil, "is no index"},
		{"1gpu,2", gpus, []int{1, 2}, ""},
		{"+1", gpus, []int{1}, ""},
		{"0,0", gpus, nil, "named before: no device is visible"},
		{"1,0,1", gpus, nil, "named before"},
		{"0,9,0", gpus, []int{0}, `entry 2, "9"`},
		{gpus[2].UUID, gpus, []int{2}, ""},
		{gpus[2].UUID + "," + gpus[0].UUID, gpus, []int{2, 0}, ""},
		{"GPU-8932,GPU-1234", gpus, []int{0, 2}, ""},
		{"GPU-893,GPU-1234", gpus, nil, `entry 1, "GPU-893", starts the UUIDs of 2 devices`},
		{"GPU-12", gpus, []int{3}, ""},
		{"GPU-1", gpus, nil, "starts the UUIDs of 2 devices"},
		{"GPU-", gpus, nil, "names no device"},
		{"GPU-1234,GPU-ffff,GPU-8932", gpus, []int{2}, `entry 2, "GPU-ffff", is not here`},
		{"GPU-1234,GPU-12340", gpus, nil, "named before"},
		{"GPU-1234,0", gpus, []int{2}, "is no GPU UUID as the first entry is"},
		{"0,GPU-1234", gpus, []int{0}, "is no index"},
		{"gpu-1234", gpus, nil, "is no index"},
		{"MIG-1", gpus, nil, "is not here"},
		{"MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f", slices, []int{0}, ""},
		{"MIG-5c8a", slices, []int{1}, ""},
		{"MIG-5c8", slices, nil, "starts the names of 2 devices"},
		{"MIG-", slices, nil, "names no device"},
		{"MIG-7777", slices, nil, "is not here"},
		{"MIG-" + whole + "/2/0", slices, []int{1}, ""},
		{"MIG-GPU-aaaa/1/0", slices, []int{0}, ""},
		{"MIG-GPU-aaaa/3/0", slices, nil, "is not here"},
		{"MIG-GPU-aaaa", slices, nil, "is not here"},
		{"MIG-GPU-", slices, nil, "names no device"},
		{"MIG-5c89,MIG-5c8a", slices, []int{0}, "of which CUDA shows one only"},
		{"2,0,1", slices, []int{2, 0}, "of which CUDA shows one only"},
		{"GPU-5c89852c", slices, nil, "is not here"},
		{"0", nil, nil, "is not one of the 0 devices"},
	} {
		t.Run(c.list, func(t *testing.T) {
			got, why := Visible(c.list, c.devices)
			require.Equal(t, c.want, got, why)
			require.Equal(t, c.why == "", why == "", why)
			require.Contains(t, why, c.why)
		})
	}
}

func FuzzVisible(f *testing.F) {
	for _, s := range []string{"0,1", "-1", "GPU-8,GPU-1", "MIG-5", "MIG-GPU-aaaa/1/0"} {
		f.Add(s)
	}
	devices := []Device{{UUID: "GPU-1"}, {UUID: "GPU-82"}, {UUID: "MIG-5", MIG: Yes, Slice: &Slice{"GPU-aaaa", 1, 0}}}
	f.Fuzz(func(t *testing.T, list string) {
		got, why := Visible(list, devices)
		seen := map[int]bool{}
		for _, i := range got {
			require.Less(t, i, len(devices))
			require.False(t, seen[i])
			seen[i] = true
		}
		if why == "" {
			require.Len(t, got, strings.Count(list, ",")+1)
		}
	})
}
