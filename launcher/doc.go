// Package launcher is the runtime that loads kernels and runs them: devices, peer access,
// memory, streams, events, graphs and modules. It works with any PTX, not only Fenceline's own.
//
//	rt, err := launcher.Open(launcher.Config{})
//	m, err := rt.Load(0, "addpeer.ptx", ptx)
//	k, err := m.Kernel("add_peer")
//	args, err := k.Pack(local, peer, n)
//	err = k.Launch(stream, launcher.Linear(blocks, threads), args)
//	err = stream.Sync(ctx)
//
// The same program runs on GPUs and, where there are none, on emulated devices that execute
// the same PTX. Runtime.Info says which of the two it is.
//
// # Rules
//
//   - Each handle (Runtime, Stream, Event, Graph, Exec, Module, HostBuffer, and the Buffer that
//     Alloc returned) has one owner, who closes it. Closing twice is harmless; anything else
//     done with a closed handle is an error matching ErrClosed.
//   - Bad input is refused before anything is queued, with an error matching ErrInvalidValue
//     that says what was wanted. Failures of the driver are *DriverError, a kernel's faults
//     *FaultError; both match one of the sentinels of this package.
//   - Every wait is bounded: by its context, and by Config.WaitLimit where the context has no
//     deadline. A wait that ran out is a *TimeoutError.
//   - All methods may be called from any goroutine, except that one Args must not be changed
//     while another goroutine changes or launches it.
//
// Sizes and offsets are bytes everywhere.
package launcher
