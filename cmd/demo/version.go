package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/fenceline/fenceline/kernels"
)

// versionReport is what `demo version` prints.
type versionReport struct {
	Version  string `json:"version"`  // of the module, "(devel)" from a checkout
	Revision string `json:"revision"` // of the checkout, may be empty
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Kernels  string `json:"kernels"` // the compiler of the embedded PTX
}

func readVersion() (versionReport, error) {
	m, err := kernels.Load()
	if err != nil {
		return versionReport{}, err
	}
	v := versionReport{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Kernels: m.Compiler}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v, nil
	}
	v.Version = info.Main.Version
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			v.Revision = s.Value + v.Revision
		case s.Key == "vcs.modified" && s.Value == "true":
			v.Revision += " with changes"
		}
	}
	return v, nil
}

func (a *app) version(*cobra.Command) error {
	v, err := readVersion()
	if err != nil {
		return err
	}
	if a.opt.json {
		return writeJSON(a.stdout, v)
	}
	fmt.Fprintf(a.stdout, "fenceline demo %s\n", v.Version)
	if v.Revision != "" {
		fmt.Fprintf(a.stdout, "revision  %s\n", v.Revision)
	}
	fmt.Fprintf(a.stdout, "built by  %s for %s\nkernels   PTX by %s\n", v.Go, v.Platform, v.Kernels)
	return nil
}
