package doctor

import (
	"fmt"
	"strings"
)

// handler is one installed signal handler.
type handler struct {
	signal  int
	onStack bool // runs on the alternate stack (SA_ONSTACK)
}

// checkSignals looks for handlers that would run on a goroutine's stack: such a signal ends a Go program.
func checkSignals(h *host, f *Finding) {
	if h.signals == nil {
		f.conclude(Skipped, "only a running process can be asked")
		return
	}
	all, err := h.signals()
	if err != nil {
		f.see("sigaction", "%v", err)
		f.conclude(Unknown, "handlers cannot be listed", "grep SigCgt /proc/self/status shows which signals are caught")
		return
	}
	var bad []string
	for _, s := range all {
		if !s.onStack {
			bad = append(bad, fmt.Sprint(s.signal))
		}
	}
	f.see("sigaction", "%s, without SA_ONSTACK: %s", plural(len(all), "handler"), orNone(bad))
	if h.o.Driver != nil && strings.Contains(h.o.Driver.Info().Detail, "SA_ONSTACK given back") {
		f.see("Info", "%s", h.o.Driver.Info().Detail)
	}
	if len(bad) > 0 {
		f.conclude(Fail, "a C library installed handlers without SA_ONSTACK for signals "+names(bad)+": they can end this Go program",
			"load that library before the driver is opened (opening gives the flag back), or set SA_ONSTACK in its sigaction calls")
		return
	}
	f.conclude(OK, "all run on their own stack")
}
