package launcher_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"

	"github.com/fenceline/fenceline/launcher"
)

// double is a kernel of one's own, as a compiler would write it: x[i] *= 2 for i < n.
const double = `
.version 7.0
.target sm_70
.address_size 64

.visible .entry double(.param .u64 x, .param .u32 n)
{
	.reg .pred %p;
	.reg .b32 %r<5>;
	.reg .b64 %d<3>;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %ntid.x;
	mov.u32 %r3, %tid.x;
	mad.lo.u32 %r1, %r1, %r2, %r3;
	ld.param.u32 %r4, [n];
	setp.ge.u32 %p, %r1, %r4;
	@%p ret;
	ld.param.u64 %d1, [x];
	mul.wide.u32 %d2, %r1, 4;
	add.u64 %d1, %d1, %d2;
	ld.global.u32 %r2, [%d1];
	shl.b32 %r2, %r2, 1;
	st.global.u32 [%d1], %r2;
	ret;
}
`

// Loading PTX and launching one of its kernels. launcher.Config{} would take GPUs where there are any.
func ExampleRuntime_Load() {
	rt, err := launcher.Open(launcher.Config{Backend: launcher.Emu})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close() // frees all the rest, too
	module, err := rt.Load(0, "double.ptx", []byte(double))
	if err != nil {
		log.Fatal(err)
	}
	kernel, err := module.Kernel("double")
	if err != nil {
		log.Fatal(err)
	}

	values := []uint32{1, 2, 3, 4, 5}
	host, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		log.Fatal(err)
	}
	x, err := rt.Alloc(0, uint64(len(host))) // bytes
	if err != nil {
		log.Fatal(err)
	}
	stream, err := rt.NewStream(0)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if err := stream.CopyIn(ctx, x, host); err != nil {
		log.Fatal(err)
	}
	args, err := kernel.Pack(x, len(values)) // one for each parameter
	if err != nil {
		log.Fatal(err)
	}
	if err := kernel.Launch(stream, launcher.Linear(1, 32), args); err != nil { // 1 block of 32 threads
		log.Fatal(err)
	}
	if err := stream.CopyOut(ctx, host, x); err != nil { // waits for the kernel
		log.Fatal(err)
	}
	if _, err := binary.Decode(host, binary.LittleEndian, values); err != nil {
		log.Fatal(err)
	}
	fmt.Println(values)
	// Output:
	// [2 4 6 8 10]
}

// Arguments that do not suit the kernel are refused, with what it wants.
func ExampleKernel_Pack() {
	rt, err := launcher.Open(launcher.Config{Backend: launcher.Emu})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close()
	module, err := rt.Load(0, "double.ptx", []byte(double))
	if err != nil {
		log.Fatal(err)
	}
	kernel, err := module.Kernel("double")
	if err != nil {
		log.Fatal(err)
	}
	_, err = kernel.Pack(uint64(0x1000), 2.5)
	fmt.Println(err)
	// Output:
	// kernel double: argument 1 (n): want u32 (4 bytes), got float64 2.5
}
