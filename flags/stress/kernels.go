package stress

import "fmt"

// Names of the kernels in Kernels.
const (
	BusyKernel     = "stress_busy"     // (u64 words, u32 mask, u32 rounds): arithmetic, and traffic on mask+1 words, of each thread
	PauseKernel    = "stress_pause"    // (u64 nanoseconds): one thread waits
	ScribbleKernel = "stress_scribble" // (u64 at, u64 bytes, u32 value): overwrites bytes; may be launched dependent
)

// Kernels is PTX for a device of compute capability sm (×10), 70 or more: what makes load and trouble beside the kernels
// under test.
func Kernels(sm int) []byte {
	version, target, wait := "6.3", 70, ""
	if sm >= 90 {
		version, target, wait = "7.8", 90, "\tgriddepcontrol.wait;\n"
	}
	return fmt.Appendf(nil, kernelText, version, target, wait)
}

const kernelText = `.version %s
.target sm_%d
.address_size 64

.visible .entry stress_busy(.param .u64 words, .param .u32 mask, .param .u32 rounds)
{
	.reg .pred %%p;
	.reg .b32 %%r<8>;
	.reg .f32 %%f<3>;
	.reg .b64 %%rd<4>;
	ld.param.u64 %%rd1, [words];
	ld.param.u32 %%r1, [mask];
	ld.param.u32 %%r2, [rounds];
	mov.u32 %%r3, %%ctaid.x;
	mov.u32 %%r4, %%ntid.x;
	mov.u32 %%r5, %%tid.x;
	mad.lo.u32 %%r3, %%r3, %%r4, %%r5;
	cvt.rn.f32.u32 %%f1, %%r3;
$AGAIN:
	mad.lo.u32 %%r3, %%r3, 1664525, 1013904223;
	and.b32 %%r6, %%r3, %%r1;
	mul.wide.u32 %%rd2, %%r6, 4;
	add.u64 %%rd3, %%rd1, %%rd2;
	ld.global.f32 %%f2, [%%rd3];
	fma.rn.f32 %%f1, %%f1, 0f3F000000, %%f2;
	st.global.f32 [%%rd3], %%f1;
	sub.u32 %%r2, %%r2, 1;
	setp.ne.u32 %%p, %%r2, 0;
	@%%p bra $AGAIN;
	ret;
}

.visible .entry stress_pause(.param .u64 ns)
{
	.reg .pred %%p;
	.reg .b64 %%rd<4>;
	ld.param.u64 %%rd1, [ns];
	mov.u64 %%rd2, %%globaltimer;
	add.u64 %%rd2, %%rd2, %%rd1;
$WAIT:
	nanosleep.u32 500;
	mov.u64 %%rd3, %%globaltimer;
	setp.lt.u64 %%p, %%rd3, %%rd2;
	@%%p bra $WAIT;
	ret;
}

.visible .entry stress_scribble(.param .u64 at, .param .u64 bytes, .param .u32 value)
{
	.reg .pred %%p;
	.reg .b16 %%h;
	.reg .b32 %%r<8>;
	.reg .b64 %%rd<6>;
	ld.param.u64 %%rd1, [at];
	ld.param.u64 %%rd2, [bytes];
	ld.param.u32 %%r1, [value];
	mov.u32 %%r2, %%ctaid.x;
	mov.u32 %%r3, %%ntid.x;
	mov.u32 %%r4, %%tid.x;
	mov.u32 %%r5, %%nctaid.x;
	mad.lo.u32 %%r6, %%r2, %%r3, %%r4;
	mul.lo.u32 %%r7, %%r3, %%r5;
	cvt.u64.u32 %%rd3, %%r6;
	cvt.u64.u32 %%rd4, %%r7;
%s	cvt.u16.u32 %%h, %%r1;
$NEXT:
	setp.ge.u64 %%p, %%rd3, %%rd2;
	@%%p bra $END;
	add.u64 %%rd5, %%rd1, %%rd3;
	st.global.b8 [%%rd5], %%h;
	add.u64 %%rd3, %%rd3, %%rd4;
	bra $NEXT;
$END:
	ret;
}
`
