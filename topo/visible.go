package topo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Visible resolves a value of CUDA_VISIBLE_DEVICES: which of the devices a CUDA process would have, in its order, so
// that visible[k] indexes the device it would call k. devices are all of the host's, in the order that CUDA has without
// the variable (which CUDA_DEVICE_ORDER decides). An unset variable makes all visible: do not ask then.
//
// As CUDA has it, an entry is an index, "GPU-" with enough of a UUID to be unique, or a MIG instance ("MIG-" with
// its UUID, or the older "MIG-GPU-<UUID>/<GPU instance>/<compute instance>"). The first entry that is none of these,
// or names no device, ends the list; -1 is the usual way to do so. All entries are of the first one's kind. A device named
// twice leaves none visible. Of MIG instances CUDA shows one only. why says what cut the list, and is empty when
// nothing did.
func Visible(list string, devices []Device) (visible []int, why string) {
	if strings.TrimSpace(list) == "" {
		return nil, "the list is empty: no device is visible"
	}
	resolve := byIndex
	switch first := strings.TrimSpace(list); {
	case strings.HasPrefix(first, "GPU-"):
		resolve = byUUID
	case strings.HasPrefix(first, "MIG-"):
		resolve = byInstance
	}
	entries := strings.Split(list, ",")
	for k, entry := range entries {
		i, problem := resolve(strings.TrimSpace(entry), devices)
		if problem != "" {
			return visible, fmt.Sprintf("entry %d, %q, %s: the list ends before it", k+1, entry, problem)
		}
		if slices.Contains(visible, i) {
			return nil, fmt.Sprintf("entry %d, %q, is a device named before: no device is visible", k+1, entry)
		}
		visible = append(visible, i)
		if devices[i].MIG == Yes && k+1 < len(entries) {
			return visible, fmt.Sprintf("entry %d, %q, is a MIG instance, of which CUDA shows one only: the list ends with it", k+1, entry)
		}
	}
	return visible, ""
}

// byIndex takes the number that an entry starts with, as CUDA does; what follows it is not looked at.
func byIndex(entry string, devices []Device) (int, string) {
	digits := entry
	if digits != "" && (digits[0] == '-' || digits[0] == '+') {
		digits = digits[1:]
	}
	n := 0
	for n < len(digits) && digits[n] >= '0' && digits[n] <= '9' {
		n++
	}
	switch i, err := strconv.Atoi(digits[:n]); {
	case n == 0:
		return 0, "is no index"
	case err != nil || i >= len(devices) || entry[0] == '-' && i > 0:
		return 0, fmt.Sprintf("is not one of the %d devices", len(devices))
	default:
		return i, ""
	}
}

func byUUID(entry string, devices []Device) (int, string) {
	if !strings.HasPrefix(entry, "GPU-") {
		return 0, "is no GPU UUID as the first entry is"
	}
	return find(devices, "starts the UUIDs of", entry == "GPU-", func(d Device) (exact, prefix bool) {
		return d.MIG != Yes && d.UUID == entry, d.MIG != Yes && strings.HasPrefix(d.UUID, entry)
	})
}

// byInstance finds a MIG instance. CUDA writes the UUID of one with the prefix "GPU-", NVML and nvidia-smi with "MIG-".
func byInstance(entry string, devices []Device) (int, string) {
	bare, ok := strings.CutPrefix(entry, "MIG-")
	if !ok {
		return 0, "is no MIG instance as the first entry is"
	}
	return find(devices, "starts the names of", bare == "" || bare == "GPU-", func(d Device) (exact, prefix bool) {
		if d.MIG != Yes {
			return false, false
		}
		if strings.HasPrefix(bare, "GPU-") {
			gpu, rest, _ := strings.Cut(bare, "/")
			s := d.Slice
			exact = s != nil && rest == fmt.Sprintf("%d/%d", s.GPUInstance, s.ComputeInstance) && strings.HasPrefix(s.GPU, gpu)
			return exact && s.GPU == gpu, exact
		}
		uuid := strings.TrimPrefix(strings.TrimPrefix(d.UUID, "GPU-"), "MIG-")
		return uuid == bare, strings.HasPrefix(uuid, bare)
	})
}

// find is the device that matches exactly, or the only one that matches by prefix.
func find(devices []Device, starts string, nothing bool, match func(Device) (exact, prefix bool)) (int, string) {
	var found []int
	for i, d := range devices {
		exact, prefix := match(d)
		if exact {
			return i, ""
		}
		if prefix {
			found = append(found, i)
		}
	}
	switch {
	case nothing:
		return 0, "names no device"
	case len(found) == 0:
		return 0, "is not here"
	case len(found) > 1:
		return 0, fmt.Sprintf("%s %d devices", starts, len(found))
	}
	return found[0], ""
}
