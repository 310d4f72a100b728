package allreduce

import (
	"errors"
	"fmt"

	"github.com/fenceline/fenceline/internal/nccl"
	"github.com/fenceline/fenceline/topo"
)

// CheckNCCL loads NCCL, which stays loaded, and says why that cannot be done, nil if it can. library is as Config.NCCLLibrary.
// It is for SelectInput.NCCL; a group finds out by itself.
func CheckNCCL(library string) error {
	_, err := nccl.Load(library)
	return err
}

// refuseNCCL says why NCCL cannot be used, and the remedy; "" for no reason.
func (s *selector) refuseNCCL() (why, remedy string) {
	on := map[int]int{}
	for r, d := range s.devices {
		if o, taken := on[d]; taken {
			return fmt.Sprintf("ranks %d and %d share device %d, and NCCL refuses two ranks on one device", o, r, d), "use as many ranks as devices"
		}
		on[d] = r
	}
	if s.m.Emulated && !nccl.StoodIn() {
		return "the devices are emulated, and NCCL needs GPUs", "run on GPUs"
	}
	for _, i := range s.devices {
		for _, j := range s.devices {
			if i == j {
				continue
			}
			if why := s.barred(i, j); why != "" {
				return why + ", and NCCL does not go by that", "lift it and use NCCL's own NCCL_P2P_LEVEL or NCCL_P2P_DISABLE"
			}
			if why := s.lied(i, j); why != "" {
				return why + ", and NCCL takes the driver's word for it", "mend that, see demo doctor"
			}
		}
	}
	if s.library == nil {
		return "", ""
	}
	err := s.library()
	var detailed *nccl.Error
	switch {
	case err == nil:
		return "", ""
	case errors.As(err, &detailed) && detailed.Detail != "":
		return detailed.What(), detailed.Detail
	}
	return err.Error(), "install NCCL 2"
}

// lied is what a probe says against access that the driver claims, "" for nothing.
func (s *selector) lied(i, j int) string {
	f := s.found(i, j)
	if s.claimsRead(i, j) == topo.Yes {
		if why := disproved(i, j, "read", f.Read); why != "" {
			return why
		}
	}
	if s.claimsWrite(i, j) == topo.Yes {
		return disproved(i, j, "write", f.Write)
	}
	return ""
}
