package stress

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fenceline/fenceline/flags/check/litmus"
	"github.com/fenceline/fenceline/internal/gpu"
)

// hostShape is a litmus test between a thread of a device and the host, which uses Go's atomics. Locations x and y lie in
// the host's memory and start as zero. Observed are d0 and d1 of the device and h0 and h1 of the host.
type hostShape struct {
	name      string
	device    string // lines of PTX, with %d0, %d1, %x and %y
	host      func(load func(word int) uint32, store func(word int, v uint32)) [2]uint32
	forbidden string
	allowed   []string
}

const (
	hostX, hostY = 0, 1
	hostStride   = 2 * lineBytes // of one instance
)

func readFlagThenData(load func(int) uint32, _ func(int, uint32)) (h [2]uint32) {
	h[0] = load(hostY)
	h[1] = load(hostX)
	return h
}

func writeDataThenFlag(_ func(int) uint32, store func(int, uint32)) (h [2]uint32) {
	store(hostX, 1)
	store(hostY, 1)
	return h
}

func writeThenRead(load func(int) uint32, store func(int, uint32)) (h [2]uint32) {
	store(hostY, 1)
	h[0] = load(hostX)
	return h
}

var hostShapes = []hostShape{
	{"MP device to host, release", "st.weak.global.u32 [%x], 1;\nst.release.sys.global.u32 [%y], 1;", readFlagThenData,
		"h0 = 1 & h1 = 0", []string{"h0 = 1 & h1 = 1", "h0 = 0"}},
	{"MP device to host, fence", "st.weak.global.u32 [%x], 1;\nfence.acq_rel.sys;\nst.relaxed.sys.global.u32 [%y], 1;", readFlagThenData,
		"h0 = 1 & h1 = 0", []string{"h0 = 1 & h1 = 1", "h0 = 0"}},
	{"MP device to host, relaxed", "st.relaxed.sys.global.u32 [%x], 1;\nst.relaxed.sys.global.u32 [%y], 1;", readFlagThenData,
		"", []string{"h0 = 1 & h1 = 0", "h0 = 1 & h1 = 1", "h0 = 0"}},
	{"MP host to device, acquire", "ld.acquire.sys.global.u32 %d0, [%y];\nsetp.eq.u32 %q, %d0, 1;\n@%q ld.weak.global.u32 %d1, [%x];", writeDataThenFlag,
		"d0 = 1 & d1 = 0", []string{"d0 = 1 & d1 = 1", "d0 = 0"}},
	{"MP host to device, fence", "ld.relaxed.sys.global.u32 %d0, [%y];\nfence.acq_rel.sys;\nsetp.eq.u32 %q, %d0, 1;\n@%q ld.weak.global.u32 %d1, [%x];", writeDataThenFlag,
		"d0 = 1 & d1 = 0", []string{"d0 = 1 & d1 = 1", "d0 = 0"}},
	{"MP host to device, relaxed", "ld.relaxed.sys.global.u32 %d0, [%y];\nld.relaxed.sys.global.u32 %d1, [%x];", writeDataThenFlag,
		"", []string{"d0 = 1 & d1 = 0", "d0 = 1 & d1 = 1", "d0 = 0"}},
	{"SB device and host, fence.sc", "st.relaxed.sys.global.u32 [%x], 1;\nfence.sc.sys;\nld.relaxed.sys.global.u32 %d0, [%y];", writeThenRead,
		"d0 = 0 & h0 = 0", []string{"d0 = 1 & h0 = 0", "d0 = 0 & h0 = 1", "d0 = 1 & h0 = 1"}},
	{"SB device and host, relaxed", "st.relaxed.sys.global.u32 [%x], 1;\nld.relaxed.sys.global.u32 %d0, [%y];", writeThenRead,
		"", []string{"d0 = 0 & h0 = 0", "d0 = 1 & h0 = 0", "d0 = 0 & h0 = 1"}},
}

// hostEntry is the device's part. For each instance it waits until the word at ctl has reached its number, which
// begins at one, does its part after a short random wait, and says so behind ctl.
const hostEntry = `
.visible .entry host%d(.param .u64 mem, .param .u64 ctl, .param .u64 res, .param .u32 n, .param .u32 seed)
{
	.reg .pred %%q;
	.reg .b32 %%d0, %%d1, %%n, %%i, %%t, %%h, %%since, %%seed;
	.reg .b64 %%x, %%y, %%ctl, %%res;
	ld.param.u64 %%x, [mem];
	ld.param.u64 %%ctl, [ctl];
	ld.param.u64 %%res, [res];
	ld.param.u32 %%n, [n];
	ld.param.u32 %%seed, [seed];
	mov.u32 %%i, 0;
NEXT:
	add.u32 %%i, %%i, 1;
	add.u64 %%y, %%x, 128;
	mov.u32 %%d0, 0;
	mov.u32 %%d1, 0;
WAIT:
	ld.relaxed.sys.global.u32 %%t, [%%ctl];
	setp.lt.u32 %%q, %%t, %%i;
	@%%q bra WAIT;
	mov.u32 %%since, %%clock;
	xor.b32 %%h, %%since, %%seed;
	mul.lo.u32 %%h, %%h, 2654435761;
	shr.u32 %%h, %%h, 20;
IDLE:
	mov.u32 %%t, %%clock;
	sub.u32 %%t, %%t, %%since;
	setp.lt.u32 %%q, %%t, %%h;
	@%%q bra IDLE;
	%s
	st.global.u32 [%%res], %%d0;
	st.global.u32 [%%res+4], %%d1;
	add.u64 %%res, %%res, 8;
	st.relaxed.sys.global.u32 [%%ctl+128], %%i;
	add.u64 %%x, %%x, 256;
	setp.lt.u32 %%q, %%i, %%n;
	@%%q bra NEXT;
	ret;
}
`

// RunHostLitmus runs litmus tests between device 0 and the host, as RunLitmus does between devices.
func RunHostLitmus(ctx context.Context, d gpu.Driver, o LitmusOptions) (results []LitmusResult, err error) {
	info, err := d.DeviceInfo(0)
	if err != nil {
		return nil, fmt.Errorf("litmus: %w", err)
	}
	h := &hostRunner{litmusRunner: litmusRunner{d: d, emulated: d.Info().Emulated, seed: o.Seed | 1, place: []int{0}, modules: map[int]gpu.Module{}, allocs: map[allocKey]*block{}}, n: 4096}
	if h.emulated {
		h.n = 16
	}
	defer func() { err = errors.Join(err, h.close()) }()
	s, err := d.StreamCreate(0)
	if err != nil {
		return nil, fmt.Errorf("litmus: %w", err)
	}
	h.streams = []gpu.Stream{s}
	var b strings.Builder
	b.WriteString(litmusHead(info.SM()))
	for i := range hostShapes {
		fmt.Fprintf(&b, hostEntry, i, strings.ReplaceAll(hostShapes[i].device, "\n", "\n\t"))
	}
	if h.modules[0], err = d.ModuleLoad(0, "litmus.ptx", []byte(b.String())); err != nil {
		delete(h.modules, 0)
		return nil, fmt.Errorf("litmus: %w", err)
	}
	end := time.Now().Add(cmp.Or(o.Time, 10*time.Second))
	for i := range hostShapes {
		if ctx.Err() != nil {
			break
		}
		res, err := h.test(ctx, i, time.Now().Add(time.Until(end)/time.Duration(len(hostShapes)-i)))
		if err != nil {
			return results, fmt.Errorf("litmus test %s: %w", hostShapes[i].name, err)
		}
		results = append(results, res)
	}
	return results, nil
}

type hostRunner struct {
	litmusRunner
	n             int // instances of a launch
	mem, ctl, res gpu.HostMem
}

func (h *hostRunner) test(ctx context.Context, i int, until time.Time) (LitmusResult, error) {
	shape := &hostShapes[i]
	r := LitmusResult{Name: shape.name, Devices: []int{0, litmus.Host}, Observed: []string{"d0", "d1", "h0", "h1"}}
	counts := map[[4]uint64]uint64{}
	for first := true; first || ctx.Err() == nil && time.Now().Before(until); first = false {
		if err := h.launch(i, shape, counts); err != nil {
			return r, err
		}
	}
	for v, n := range counts {
		r.Outcomes = append(r.Outcomes, Outcome{Values: v[:], Count: n})
		r.Runs += n
	}
	slices.SortFunc(r.Outcomes, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), slices.Compare(a.Values, b.Values))
	})
	expect := func(mode litmus.Mode, text string) {
		seen := Seen{Mode: mode.String(), Text: text}
		for _, o := range r.Outcomes {
			if holds(text, o.Values) {
				seen.Count += o.Count
			}
		}
		r.Expect = append(r.Expect, seen)
	}
	if shape.forbidden != "" {
		expect(litmus.Forbidden, shape.forbidden)
	}
	for _, text := range shape.allowed {
		expect(litmus.Allowed, text)
	}
	return r, nil
}

// holds says whether values meet a condition such as "d0 = 1 & h1 = 0".
func holds(text string, values []uint64) bool {
	for part := range strings.SplitSeq(text, " & ") {
		var side string
		var want uint64
		if _, err := fmt.Sscanf(part, "%s = %d", &side, &want); err != nil {
			panic(err) // the texts are above
		}
		if values[slices.Index([]string{"d0", "d1", "h0", "h1"}, side)] != want {
			return false
		}
	}
	return true
}

const hostPatience = 10 * time.Second

// launch runs all instances of a shape once, one after the other.
func (h *hostRunner) launch(i int, shape *hostShape, counts map[[4]uint64]uint64) error {
	for k, m := range []struct {
		mem  *gpu.HostMem
		size uint64
	}{{&h.mem, uint64(h.n * hostStride)}, {&h.ctl, 2 * lineBytes}, {&h.res, uint64(8 * h.n)}} {
		if _, err := h.memory(litmus.Host, k, m.size); err != nil {
			return err
		}
		*m.mem = h.allocs[allocKey{litmus.Host, k}].host
		clear(m.mem.Bytes)
	}
	h.seed = h.seed*6364136223846793005 + 1442695040888963407
	p := params{}.u64(uint64(h.mem.Ptr)).u64(uint64(h.ctl.Ptr)).u64(uint64(h.res.Ptr)).u32(uint32(h.n)).u32(uint32(h.seed >> 32))
	if err := h.run(0, fmt.Sprintf("host%d", i), 1, 1, p); err != nil {
		return err
	}
	seen, err := h.partner(shape)
	if serr := h.d.HostStore32(h.ctl, 0, math.MaxUint32); err != nil || serr != nil { // whatever the kernel still waits for
		return errors.Join(err, serr, h.wait(0))
	}
	if err := h.wait(0); err != nil {
		return err
	}
	for k, v := range seen {
		at := h.res.Bytes[8*k:]
		counts[[4]uint64{uint64(binary.LittleEndian.Uint32(at)), uint64(binary.LittleEndian.Uint32(at[4:])), uint64(v[0]), uint64(v[1])}]++
	}
	return nil
}

// partner does the host's part of all instances.
func (h *hostRunner) partner(shape *hostShape) (seen [][2]uint32, failed error) {
	late := time.Now().Add(hostPatience)
	rng := h.seed
	for k := range h.n {
		base := uint64(k * hostStride)
		load := func(word int) uint32 {
			v, err := h.d.HostLoad32(h.mem, base+uint64(word*lineBytes))
			failed = errors.Join(failed, err)
			return v
		}
		store := func(word int, v uint32) {
			failed = errors.Join(failed, h.d.HostStore32(h.mem, base+uint64(word*lineBytes), v))
		}
		failed = errors.Join(failed, h.d.HostStore32(h.ctl, 0, uint32(k+1)))
		rng = rng*6364136223846793005 + 1442695040888963407
		turns := rng >> 55 // up to 511: the device sees the word a microsecond later or so
		if h.emulated {
			turns &= 3
		}
		for range turns {
			_, err := h.d.HostLoad32(h.ctl, 0)
			failed = errors.Join(failed, err)
		}
		seen = append(seen, shape.host(load, store))
		for failed == nil {
			done, err := h.d.HostLoad32(h.ctl, lineBytes)
			if failed = errors.Join(failed, err); done >= uint32(k+1) {
				break
			}
			if time.Now().After(late) {
				failed = fmt.Errorf("the device did not answer within %v", hostPatience)
			}
		}
		if failed != nil {
			return nil, failed
		}
	}
	return seen, nil
}
