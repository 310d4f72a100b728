package stress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fenceline/fenceline/flags/check/litmus"
	"github.com/fenceline/fenceline/internal/gpu"
)

// memory is at least n bytes of a device, or of the host, kept for the next test.
func (r *litmusRunner) memory(device, index int, n uint64) (gpu.Ptr, error) {
	key := allocKey{device, index}
	b := r.allocs[key]
	if b != nil && b.size >= n {
		return b.p, nil
	}
	if b != nil {
		delete(r.allocs, key)
		if err := r.free(key, b); err != nil {
			return 0, err
		}
	}
	b = &block{size: n}
	var err error
	if device == litmus.Host {
		b.host, err = r.d.HostAlloc(n)
		b.p = b.host.Ptr
	} else {
		b.p, err = r.d.MemAlloc(device, n)
	}
	if err != nil {
		return 0, err
	}
	r.allocs[key] = b
	return b.p, nil
}

func (r *litmusRunner) free(key allocKey, b *block) error {
	if key.device == litmus.Host {
		return r.d.HostFree(b.host)
	}
	return r.d.MemFree(key.device, b.p)
}

// close gives everything back, except what a launch that never ended still uses.
func (r *litmusRunner) close() error {
	if r.busy {
		return nil
	}
	errs := []error{r.unload()}
	for key, b := range r.allocs {
		errs = append(errs, r.free(key, b))
	}
	for i, s := range r.streams {
		errs = append(errs, r.d.StreamDestroy(r.place[i], s))
	}
	for _, p := range r.peers {
		errs = append(errs, r.d.DisablePeerAccess(p[0], p[1]))
	}
	return errors.Join(errs...)
}

// params is a parameter buffer: values of 8 and 4 bytes, each at its natural alignment.
type params []byte

func (p params) u64(v uint64) params {
	for len(p)%8 != 0 {
		p = append(p, 0)
	}
	return binary.LittleEndian.AppendUint64(p, v)
}

func (p params) u32(v uint32) params { return binary.LittleEndian.AppendUint32(p, v) }

// run launches an entry on the stream of one of the test's devices.
func (r *litmusRunner) run(device int, entry string, blocks, threads int, p params) error {
	dev := r.place[device]
	f, err := r.d.ModuleFunction(dev, r.modules[dev], entry)
	if err != nil {
		return err
	}
	cfg := gpu.LaunchConfig{Grid: gpu.Dim3{X: uint32(blocks), Y: 1, Z: 1}, Block: gpu.Dim3{X: uint32(threads), Y: 1, Z: 1}}
	return r.d.Launch(dev, r.streams[device], f, &cfg, p)
}

func (r *litmusRunner) wait(device int) error {
	done, err := r.d.StreamWait(r.place[device], r.streams[device], litmusWait)
	if err == nil && !done {
		err = fmt.Errorf("a launch did not end within %v", litmusWait)
	}
	if err != nil {
		r.busy = true
	}
	return err
}

// launch runs all instances once. It returns the observed values, 8 bytes each: those of the first for all instances,
// then the second, …, and last whether a thread was stuck.
func (r *litmusRunner) launch(t *litmus.Test, name string, s shape) ([]byte, error) {
	n := s.instances()
	mask := uint32(n - 1)
	var base []uint64
	for i := range t.Locations {
		l := &t.Locations[i]
		device := litmus.Host
		if l.Device != litmus.Host {
			device = r.place[l.Device]
		}
		p, err := r.memory(device, i, uint64(n*stride(l)))
		if err != nil {
			return nil, err
		}
		base = append(base, uint64(p))
	}
	meetBytes, resBytes := uint64(n/32*lineBytes), uint64(8*n*(len(t.Observed)+1))
	meet, err := r.memory(r.place[0], -1, meetBytes)
	if err != nil {
		return nil, err
	}
	res, err := r.memory(r.place[0], -2, resBytes)
	if err != nil {
		return nil, err
	}
	if err := r.prepare(t, base, n, meet, meetBytes, res, resBytes); err != nil {
		return nil, err
	}
	r.seed = r.seed*6364136223846793005 + 1442695040888963407
	var p params
	for _, b := range base {
		p = p.u64(b)
	}
	p = p.u64(uint64(meet)).u64(uint64(res)).u32(uint32(s.rounds)).u32(uint32(s.groups)).u32(mask).u32(uint32(r.seed >> 32))
	all := sites(t)
	order := []int{}
	for _, b := range all {
		if !slices.Contains(order, b.device) {
			order = append(order, b.device)
		}
	}
	if r.seed>>33&1 == 0 { // neither device is always the first
		slices.Reverse(order)
	}
	for _, dev := range order {
		blocks, columns := 0, 0
		for _, b := range all {
			if b.device == dev {
				blocks, columns = blocks+1, max(columns, len(b.columns))
			}
		}
		if err := r.run(dev, entryOf(name, dev), blocks*s.groups, columns*s.warps*32, p); err != nil {
			return nil, err
		}
	}
	for _, dev := range order {
		if err := r.wait(dev); err != nil {
			return nil, err
		}
	}
	return r.gather(t, base, n, res, resBytes)
}

// prepare gives all memory its first values, and waits.
func (r *litmusRunner) prepare(t *litmus.Test, base []uint64, n int, meet gpu.Ptr, meetBytes uint64, res gpu.Ptr, resBytes uint64) error {
	stream := r.streams[0]
	if err := r.d.Memset(r.place[0], stream, meet, 0, meetBytes); err != nil {
		return err
	}
	if err := r.d.Memset(r.place[0], stream, res, 0, resBytes); err != nil {
		return err
	}
	for i := range t.Locations {
		l := &t.Locations[i]
		for k, v := range l.Init {
			p := params{}.u64(base[i] + uint64(k*l.Size)).u32(uint32(stride(l))).u32(uint32(n - 1)).u64(v)
			if err := r.run(0, fmt.Sprintf("litmus_fill%d", 8*l.Size), (n+255)/256, min(n, 256), p); err != nil {
				return err
			}
		}
	}
	return r.wait(0)
}

// gather adds the memory that is observed to the results, and fetches them.
func (r *litmusRunner) gather(t *litmus.Test, base []uint64, n int, res gpu.Ptr, resBytes uint64) ([]byte, error) {
	for k, o := range t.Observed {
		if o.Column >= 0 {
			continue
		}
		p := params{}.u64(base[o.Loc] + uint64(o.Off)).u32(uint32(stride(&t.Locations[o.Loc]))).u32(uint32(n - 1)).
			u64(uint64(res) + uint64(8*k*n)).u32(uint32(o.Loc * 977))
		if err := r.run(0, fmt.Sprintf("litmus_gather%d", 8*o.Size), (n+255)/256, min(n, 256), p); err != nil {
			return nil, err
		}
	}
	if err := r.wait(0); err != nil {
		return nil, err
	}
	raw := make([]byte, resBytes)
	start := time.Now()
	if err := r.d.CopyOut(r.place[0], r.streams[0], raw, res); err != nil {
		return nil, fmt.Errorf("fetch results after %v: %w", time.Since(start), err)
	}
	return raw, nil
}
