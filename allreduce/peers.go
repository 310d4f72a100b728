package allreduce

import (
	"slices"

	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
)

// describe is the machine of rt: the driver's description, or given, which must be of the same devices in the same
// order. The result is the group's own.
func describe(rt *launcher.Runtime, given *topo.Machine) (*topo.Machine, error) {
	m, err := topo.FromDriver(rt.Driver())
	if err != nil || given == nil {
		return m, err
	}
	if err := checkMachine(given); err != nil {
		return nil, err
	}
	for i, d := range m.Devices {
		if len(given.Devices) != len(m.Devices) || given.Devices[i].UUID != d.UUID {
			return nil, bad("machine", "it is not of the %d devices that the runtime has, in their order: device %d is %s", len(m.Devices), i, d.UUID)
		}
	}
	merged := *given
	merged.Driver.API = m.Driver.API
	merged.Devices = slices.Clone(given.Devices)
	for i, d := range m.Devices {
		merged.Devices[i].SM = d.SM
	}
	merged.Notes = slices.Clone(given.Notes)
	merged.Pairs = make([][]topo.Pair, len(given.Pairs))
	for i, row := range given.Pairs {
		merged.Pairs[i] = slices.Clone(row)
		for j := range row {
			p := &merged.Pairs[i][j]
			p.Access = p.Access.And(m.Pairs[i][j].Access)
		}
	}
	return &merged, nil
}

// enablePeers opens every pair that may be read. One that cannot be opened after all counts as having no access: a
// claim is not a promise. Pairs that can only be written are opened by the groups that do: see claimPaths.
func enablePeers(rt *launcher.Runtime, s *selector) {
	for _, i := range s.devices {
		for _, j := range s.devices {
			if i == j {
				continue
			}
			if use, _ := s.reads(i, j); use != topo.Yes || s.m.Pairs[i][j].Access != topo.Yes {
				continue
			}
			if err := rt.EnablePeer(i, j); err != nil {
				s.m.Pairs[i][j].Access = topo.No
				s.m.Note("device %d claims access to device %d, which could not be enabled: %v", i, j, err)
			}
		}
	}
}
