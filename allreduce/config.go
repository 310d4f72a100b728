package allreduce

import (
	"fmt"
	"slices"
	"time"

	"github.com/fenceline/fenceline/flags"
	"github.com/fenceline/fenceline/launcher"
	"github.com/fenceline/fenceline/topo"
)

// Config says what group to make. The zero value is one rank on each device.
type Config struct {
	// Ranks is the world size, 1 to 16. 0 is one rank per device, or per entry of Devices.
	Ranks int
	// Devices is the device ordinal of each rank. Empty is rank r on device r; with Share, r modulo the number
	// of devices.
	Devices []int
	// Share allows several ranks on one device ("virtual ranks").
	Share bool
	// Streams is where each rank's calls run: one stream for each rank, of its device and rt, no two the same. Empty is a stream of the
	// group's own for each. Without Devices the ranks are on theirs. They stay the caller's, who closes them after the
	// group. To use a stream of another library: launcher.Runtime.AdoptStream.
	//
	// A capture that the caller begins on each of them, by itself, takes calls by direct kernels in; rules of Table for others are
	// passed over, but those for NCCL are refused. Begin it on every rank's stream, make the same calls on all, with no rank 256 calls ahead of another, and end
	// it. Nothing needs to be registered after it. The graphs may be launched any number of times, all of one capture together, each on its rank's
	// stream; Sync waits for them and says what failed, which the streams do not. The group must outlive them. A capture that takes in other calls on
	// one rank than on another, or is thrown away in the middle of a call of all, fails the group. Ranks that share a device begin each
	// call on such streams when what is ahead has ended.
	Streams []*launcher.Stream
	// Algorithm other than Auto is used for every call, whatever the machine; NewGroup fails if it cannot work.
	Algorithm Algorithm
	// AllowNCCL lets Auto go by rules of Table that ask for NCCL, whose sums are not in rank order: results can then differ in
	// their last bits from those of other calls. Without it, and where NCCL cannot be used, such rules are passed over. NCCL is
	// never the shipped choice.
	AllowNCCL bool
	// NCCLLibrary is the library of NCCL, "" for libnccl.so.2 where the loader finds it. It is loaded only by a group that may
	// use it. The process's environment is left as it is: NCCL_NVLS_ENABLE=0 in it keeps NCCL from making multicast objects.
	NCCLLibrary string
	// Table is what tuning found, which Auto goes by instead of the shipped choice, call by call. Rules whose algorithm
	// cannot work here are passed over, and in a Capture so are those of copy and host where direct kernels can run.
	Table Table
	// MaxBytes is the largest message handled by one launch; larger ones are done in pieces. Each rank
	// keeps about twice that much staging memory (host: and as much pinned host memory). Copy and host make pieces of 2 MiB
	// × Ranks at most, and smaller ones where that makes up to four of a message, so that copies and sums overlap. A multiple of 16, at most 32 GiB. 0 is
	// DefaultMaxBytes.
	MaxBytes uint64
	// PushBytes is the largest message that Auto gives to a kernel that pushes, and the largest that one launch of
	// it handles. For packets each rank keeps 4 × Ranks times that much memory with oneshot-push, 4 times with twoshot-push, and about
	// two thirds of that with oneshot-wide and twoshot-wide; less where the shipped choice or MaxBytes end earlier. A multiple of 16,
	// at most 4 GiB. 0 is what takes about 8 MiB or less with each: for one-shot 512 KiB with 2 ranks, 128 KiB with 4, 32 KiB with 8,
	// and three times that with wide packets; for two-shot 1 MiB, and 1.5 MiB with wide packets.
	PushBytes uint64
	// DirectBytes is the size, in bytes, from which peers read a registered input directly in one-shot pull; a smaller one is
	// staged like any other, because the second flag exchange costs more than the copy. 0 is 1 MiB; 1 is always. In two-shot
	// pull, which has that exchange in any case, they always do.
	DirectBytes uint64
	// Timeout bounds how long one rank waits for another: 1 ms to 24 h. 0 is 10 s.
	Timeout time.Duration
	// Blocks and Threads fix the grid of the summing kernel. 0 chooses by size.
	Blocks, Threads int
	// FirstEpoch is the epoch before the first call. Only of interest to tests of the wrap-around.
	FirstEpoch uint32
	// Machine describes the runtime's devices better than the driver does: the paths between them, which
	// Knobs.P2PLevel needs, and NVML's answers. nil is the driver's own description; what the driver refuses stays
	// refused. To get one:
	//
	//	m, err := topo.FromDriver(rt.Driver())
	//	err = nvml.Augment(m) // of package topo/nvml; on nvml.ErrUnavailable m is as it was
	Machine *topo.Machine
	// Measurement is what probing these devices found. nil: claims decide. A pair that failed is not used, and its
	// peer access is disabled where copies would go through it. What `demo probe` found is in the cache:
	//
	//	m, err := topo.FromDriver(rt.Driver())
	//	key, err := topo.ReadKey("/", m)
	//	cache, err := topo.DefaultCache()
	//	measured, err := cache.Load(key) // topo.ErrNotCached: nobody has probed since the last change of driver or boot
	//
	// To probe oneself: probe.RunChild of package topo/probe, which does it in child processes, since a path that does
	// not work can hang or lose a device, and then cache.Store. On emulated devices probe.Run is enough.
	Measurement *topo.Measurement
	// Patch changes a kernel's PTX before it is loaded, for stress tests: file is its name, such as
	// oneshot_pull.sm_90.ptx. It is called once for each device and fails NewGroup with its error. nil changes nothing.
	Patch func(file string, ptx []byte) ([]byte, error)
	// Knobs are the operator's, from KnobsFromEnv. They fill in what is zero above. The environment is not read here.
	Knobs Knobs
}

// DefaultMaxBytes is what Config.MaxBytes is where nobody says otherwise: 4.5 MiB. A message of 4 MiB and a little goes as one, and the
// pieces of larger ones, which are of one size, are of about 4 MiB. So no power of two is a step.
const DefaultMaxBytes = 9 << 19

const (
	defaultDirect   = 1 << 20
	defaultTimeout  = 10 * time.Second
	shortestTimeout = time.Millisecond
	longestTimeout  = 24 * time.Hour
	mostMaxBytes    = 32 << 30 // packs have 32-bit indices
	mostPushBytes   = 4 << 30  // the kernels count pairs of words in 32 bits
)

func bad(arg, format string, args ...any) error {
	return &ArgumentError{Rank: -1, Arg: arg, Detail: fmt.Sprintf(format, args...)}
}

// validate fills the defaults and refuses what cannot work on rt.
func (c *Config) validate(rt *launcher.Runtime) error {
	if rt == nil {
		return bad("runtime", "it is nil: pass one from launcher.Open")
	}
	n := len(rt.Devices())
	if n == 0 {
		return bad("devices", "the runtime has none: check CUDA_VISIBLE_DEVICES, or use the emulator")
	}
	if err := c.given(rt); err != nil {
		return err
	}
	if c.Ranks == 0 {
		c.Ranks = len(c.Devices)
	}
	if c.Ranks == 0 {
		c.Ranks = min(n, flags.MaxRanks)
	}
	if c.Ranks < 1 || c.Ranks > flags.MaxRanks {
		return bad("ranks", "%d ranks: use 1 to %d", c.Ranks, flags.MaxRanks)
	}
	if err := c.place(n); err != nil {
		return err
	}
	if err := c.turn(); err != nil {
		return err
	}
	switch {
	case c.Algorithm >= numAlgorithms:
		return &NameError{Kind: "algorithm", Name: fmt.Sprint(uint8(c.Algorithm)), Known: algorithmNames[:]}
	case c.MaxBytes%16 != 0:
		return bad("MaxBytes", "%d is not a multiple of 16", c.MaxBytes)
	case c.MaxBytes > mostMaxBytes:
		return bad("MaxBytes", "%d is above 32 GiB", c.MaxBytes)
	case c.PushBytes%16 != 0 || c.PushBytes > mostPushBytes:
		return bad("PushBytes", "%d: use a multiple of 16 up to 4 GiB", c.PushBytes)
	case c.Timeout != 0 && (c.Timeout < shortestTimeout || c.Timeout > longestTimeout):
		return bad("Timeout", "%v: use %v to %v, or 0 for %v", c.Timeout, shortestTimeout, longestTimeout, defaultTimeout)
	case c.Blocks < 0 || c.Blocks > flags.MaxBlocks:
		return bad("Blocks", "%d: use 1 to %d, or 0 to choose by size", c.Blocks, flags.MaxBlocks)
	case c.Threads < 0 || c.Threads > maxThreads || c.Threads%32 != 0:
		return bad("Threads", "%d: use a multiple of 32 up to %d, or 0 to choose by size", c.Threads, maxThreads)
	}
	if err := c.Table.check(); err != nil {
		return err
	}
	c.Table = slices.Clone(c.Table)
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if c.DirectBytes == 0 {
		c.DirectBytes = defaultDirect
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	return nil
}

// turn fills in what the knobs say.
func (c *Config) turn() error {
	if err := c.Knobs.validate(); err != nil {
		return err
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = c.Knobs.MaxBytes
	}
	if c.Timeout == 0 {
		c.Timeout = c.Knobs.Timeout
	}
	c.AllowNCCL = c.AllowNCCL || c.Knobs.NCCL
	return nil
}

// place fills and checks Devices. n is the number of devices there are.
func (c *Config) place(n int) error {
	c.Devices = append([]int(nil), c.Devices...)
	if len(c.Devices) == 0 {
		for r := range c.Ranks {
			if r >= n && !c.Share {
				return bad("ranks", "%d ranks on %d device(s): ask for sharing (Share, --share), or use fewer ranks", c.Ranks, n)
			}
			c.Devices = append(c.Devices, r%n)
		}
	}
	if len(c.Devices) != c.Ranks {
		return bad("devices", "%d devices listed for %d ranks", len(c.Devices), c.Ranks)
	}
	user := map[int]int{}
	for r, d := range c.Devices {
		if d < 0 || d >= n {
			return &ArgumentError{Rank: r, Arg: "devices", Detail: fmt.Sprintf("device %d: there are 0 to %d", d, n-1)}
		}
		if o, taken := user[d]; taken && !c.Share {
			return &ArgumentError{Rank: r, Arg: "devices", Detail: fmt.Sprintf("device %d already serves rank %d: ask for sharing (Share, --share)", d, o)}
		}
		user[d] = r
	}
	return nil
}

// given checks Streams, and takes Devices from them where none are given.
func (c *Config) given(rt *launcher.Runtime) error {
	if len(c.Streams) == 0 {
		return nil
	}
	ranks := max(c.Ranks, len(c.Devices))
	if ranks == 0 {
		ranks = len(c.Streams)
	}
	if len(c.Streams) != ranks {
		return bad("streams", "%d streams for %d ranks: give one for each", len(c.Streams), ranks)
	}
	c.Streams = slices.Clone(c.Streams)
	var devices []int
	for r, s := range c.Streams {
		refuse := func(err error, format string, args ...any) error {
			return &ArgumentError{Rank: r, Arg: "streams", Detail: fmt.Sprintf(format, args...), Err: err}
		}
		if !s.Of(rt) {
			return refuse(nil, "no stream of the runtime that the group is made on: use its NewStream or AdoptStream")
		}
		if len(c.Devices) == ranks && s.Device() != c.Devices[r] {
			return refuse(nil, "a stream of device %d, the rank is on device %d: give one of that device", s.Device(), c.Devices[r])
		}
		if other := slices.Index(c.Streams, s); other < r {
			return refuse(nil, "rank %d has the same, and one of them would wait for the other for ever: give each its own", other)
		}
		switch taken, err := s.Capturing(); {
		case err != nil:
			return refuse(err, "it cannot be used")
		case taken:
			return refuse(nil, "a capture is under way on it: make the group ahead of that")
		}
		devices = append(devices, s.Device())
	}
	if len(c.Devices) == 0 {
		c.Devices = devices
	}
	return nil
}
