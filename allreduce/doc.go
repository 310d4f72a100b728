// Package allreduce sums small buffers across GPUs.
//
// A Group holds all ranks of one process: usually one per device, or several on one device when sharing is
// asked for. Rank.AllReduce queues one rank's part on that rank's stream, from any goroutine;
// Group.AllReduce queues all of them. Either returns at once; Sync waits and reports.
//
//	g, err := allreduce.NewGroup(rt, allreduce.Config{})
//	err = g.AllReduce(in, out, count, allreduce.BF16) // in[r], out[r]: rank r's buffers
//	err = g.Sync(ctx)
//
// # Streams
//
// A group makes a stream for each rank, or uses the caller's (Config.Streams), which another library may have made
// (launcher.Runtime.AdoptStream). Group.Capture records calls, with whatever else is put on the ranks' streams, into a graph.
// A capture that the caller begins on streams of its own takes calls by direct kernels in as well.
//
// # Numbers
//
// The result is the sum in fp32, in rank order, rounded once to the element type. Every algorithm, every rank
// and the emulator give the same bits. Infinities, signed zeros and subnormals follow IEEE 754; a NaN result is
// the canonical NaN of its type.
//
// The one exception is NCCL, which sums in an order and with roundings of its own, and other ones for other sizes. It is taken
// only when asked for: as the algorithm, or by a rule of Config.Table together with Config.AllowNCCL.
//
// # Choice
//
// Select says what would be done on a machine, and why; NewGroup does that for the machine it is on, for all ranks alike.
// What decides is the machine's description, what probing measured (Config.Measurement; without it claims are
// believed), and knobs. A pair of devices that failed a probe counts as having no peer access; one that only fails to
// read is written to, by the algorithms that push. Where direct kernels can run, size, dtype, number of ranks and links decide
// call by call, by Config.Table, which ReadTunedTable reads from what `demo tune` wrote, or else by the shipped choice;
// Group.Plan says for each. All ranks choose alike, and a graph
// keeps what its calls had when they were captured.
//
// Knobs are environment variables, for operators. The package reads no environment by itself: a program passes
// KnobsFromEnv(os.Environ()) as Config.Knobs. What a Config states wins over them. Unknown names with the prefix and
// values that are not listed are errors.
//
//	FENCELINE_ALGO         auto, oneshot-pull, oneshot-push, twoshot-pull, twoshot-push, oneshot-wide, twoshot-wide, copy, host, nccl: the algorithm
//	FENCELINE_P2P_LEVEL    LOC, NVL, PIX, PXB, PHB, NODE, SYS: the farthest path over which devices access each other
//	                       directly, in nvidia-smi's words; LOC is never. A path that is not known is too far for all but SYS.
//	FENCELINE_P2P_DISABLE  0, 1: 1 turns direct access between devices off
//	FENCELINE_MAX_BYTES    bytes, or 512K, 4M, 1G; a multiple of 16: the largest message of one launch
//	FENCELINE_TIMEOUT      500ms, 10s, 1m: how long one rank waits for another
//	FENCELINE_NCCL         0, 1: 1 allows auto to take nccl where a tuning table asks for it, as Config.AllowNCCL
//
// # Failure
//
// Bad arguments are refused before anything is queued and leave the group as it was. A rank that does not
// arrive, or arrives with another shape, fails the call on every rank within Config.Timeout; the group then
// refuses all work until it is closed and made anew. The devices stay usable. After a failure the output
// buffers are undefined.
package allreduce
