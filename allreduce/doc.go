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
// # Numbers
//
// The result is the sum in fp32, in rank order, rounded once to the element type. Every algorithm, every rank
// and the emulator give the same bits. Infinities, signed zeros and subnormals follow IEEE 754; a NaN result is
// the canonical NaN of its type.
//
// # Failure
//
// Bad arguments are refused before anything is queued and leave the group as it was. A rank that does not
// arrive, or arrives with another shape, fails the call on every rank within Config.Timeout; the group then
// refuses all work until it is closed and made anew. The devices stay usable. After a failure the output
// buffers are undefined.
package allreduce
