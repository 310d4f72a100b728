package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/allreduce"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
	"github.com/fenceline/fenceline/topo/doctor"
	"github.com/fenceline/fenceline/topo/nvml"
)

func (a *app) doctorFlags(c *cobra.Command) {
	c.Flags().StringVar(&a.opt.sysroot, "sysroot", "", "look at the files below this folder instead of this host's; no driver is opened then")
}

// doctor is `demo doctor`.
func (a *app) doctor(c *cobra.Command) (err error) {
	given := c.Flags().Changed
	s, err := a.opt.checkMachine(given)
	if err != nil {
		return err
	}
	o := doctor.Options{Sysroot: a.opt.sysroot, Knobs: doctorKnobs()}
	if given("sysroot") {
		for _, other := range []string{"machine", "devices", "backend"} {
			if given(other) {
				return usagef("--sysroot", a.opt.sysroot, "looks at copied files, and --%s opens a driver: leave one of them out", other)
			}
		}
		switch st, serr := os.Stat(a.opt.sysroot); {
		case serr != nil:
			return &usageError{Flag: "--sysroot", Value: a.opt.sysroot, Err: serr}
		case !st.IsDir():
			return usagef("--sysroot", a.opt.sysroot, "this is no folder: give the one that holds the copied etc, proc and sys")
		}
	} else {
		rt, oerr := openForDoctor(&o, s, given)
		if oerr != nil {
			return oerr
		}
		if rt != nil {
			defer closeRuntime(rt, &err)
		}
		if o.Machine != nil {
			a.examine(c.Context(), &o, s)
		}
	}
	rep := doctor.Run(c.Context(), o)
	if a.opt.json {
		err = rep.WriteJSON(a.stdout)
	} else {
		err = rep.Write(a.stdout)
	}
	switch {
	case err != nil:
		return err
	case rep.Interrupted:
		return errInterrupted
	case rep.Status == doctor.Fail:
		return errReported
	}
	return nil
}

// openForDoctor opens what the flags name, or else the GPUs. That those do not open is a finding; nil is no runtime.
func openForDoctor(o *doctor.Options, s settings, given func(string) bool) (*launcher.Runtime, error) {
	hardware := s.backend != launcher.Emu && !given("machine") && !given("devices")
	if hardware {
		s.backend = launcher.CUDA // auto would hide why there are none
	}
	rt, err := open(s)
	switch {
	case err != nil && hardware:
		o.OpenErr = err
		return nil, nil
	case err != nil:
		return nil, err
	}
	o.Driver = rt.Driver()
	m, err := topo.FromDriver(rt.Driver())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the machine: %w", err), rt.Close())
	}
	if !m.Emulated {
		o.NVMLErr = nvml.Augment(m)
	} else if err := stated(s, m); err != nil {
		return nil, errors.Join(err, rt.Close())
	}
	o.Machine = m
	return rt, nil
}

// examine probes the pairs whose claims are to be doubted. If that fails the rest is still worth saying.
func (a *app) examine(ctx context.Context, o *doctor.Options, s settings) {
	found, err := s.check(ctx, o.Machine, everyDevice(o.Machine), false, true)
	if err != nil && ctx.Err() != nil {
		return // the report says that it was interrupted
	}
	if err != nil {
		fmt.Fprintln(a.stderr, "demo: peer access could not be probed:", err)
		return
	}
	o.Measurement = found
}

// doctorKnobs are the knobs in the doctor's form.
func doctorKnobs() []doctor.Knob {
	var list []doctor.Knob
	for _, k := range allreduce.KnobTable() {
		list = append(list, doctor.Knob{Name: k.Name, Check: k.Check})
	}
	return list
}
