package topo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNoKey says that a machine's state cannot be told from another's, so nothing measured on it may be kept.
var ErrNoKey = errors.New("no key for this machine")

// ReadKey is the key of the running machine as m describes it; sysroot is "/", or a copied tree. An emulated machine
// does not depend on the host: its kernel is "emulated", and it has no boot. The error matches ErrNoKey.
func ReadKey(sysroot string, m *Machine) (Key, error) {
	k := Key{UUIDs: make([]string, len(m.Devices))}
	for i, d := range m.Devices {
		if d.UUID == "" {
			return Key{}, fmt.Errorf("%w: device %d has no UUID: read the machine from its driver, pasted text names no device", ErrNoKey, i)
		}
		k.UUIDs[i] = d.UUID
	}
	k.Driver = m.Driver.Release
	switch {
	case m.Emulated:
		k.Driver, k.Kernel = m.Driver.Name+" "+m.Driver.Detail, "emulated"
		return k, nil
	case k.Driver == "":
		k.Driver = fmt.Sprintf("API %d", m.Driver.API)
	}
	for name, to := range map[string]*string{
		"proc/sys/kernel/osrelease":      &k.Kernel,
		"proc/sys/kernel/random/boot_id": &k.BootID,
	} {
		text, err := os.ReadFile(filepath.Join(sysroot, name))
		if err != nil {
			return Key{}, fmt.Errorf("%w: %w", ErrNoKey, err)
		}
		if *to = strings.TrimSpace(string(text)); *to == "" {
			return Key{}, fmt.Errorf("%w: %s is empty", ErrNoKey, filepath.Join(sysroot, name))
		}
	}
	return k, nil
}

// Changes names what differs between k and the key of now, in words; nil when they are the same.
func (k Key) Changes(now Key) []string {
	var all []string
	if !slices.Equal(k.UUIDs, now.UUIDs) {
		all = append(all, fmt.Sprintf("devices were %s, now %s", list(k.UUIDs), list(now.UUIDs)))
	}
	for _, f := range []struct{ what, was, is string }{
		{"driver", k.Driver, now.Driver}, {"kernel", k.Kernel, now.Kernel}, {"boot", k.BootID, now.BootID},
	} {
		if f.was != f.is {
			all = append(all, fmt.Sprintf("%s was %s, now %s", f.what, dash(f.was), dash(f.is)))
		}
	}
	return all
}

func list(uuids []string) string { return dash(strings.Join(uuids, ",")) }
