// Package check runs kernels' PTX in a machine that does what the scoped memory model of PTX allows, and reports what
// the model does not promise: races, stale values, deadlocks. Threads are stepped one by one, over the same decoded
// operations that the emulator runs.
package check
