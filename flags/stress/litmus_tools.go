package stress

// litmusTools are the entries that fill and gather memory, for elements of so many bits: litmus_fill writes value to one
// element of every place, litmus_gather copies it to the results, by instance.
const litmusTools = `
.visible .entry litmus_fill%[1]d(.param .u64 base, .param .u32 stride, .param .u32 mask, .param .u64 value)
{
	.reg .pred %%p;
	.reg .b32 %%r<6>;
	.reg .b64 %%rd<5>;
	ld.param.u64 %%rd1, [base];
	ld.param.u32 %%r1, [stride];
	ld.param.u32 %%r2, [mask];
	ld.param.u64 %%rd2, [value];
	mov.u32 %%r3, %%ctaid.x;
	mov.u32 %%r4, %%ntid.x;
	mov.u32 %%r5, %%tid.x;
	mad.lo.u32 %%r3, %%r3, %%r4, %%r5;
	setp.gt.u32 %%p, %%r3, %%r2;
	@%%p ret;
	mul.wide.u32 %%rd3, %%r3, %%r1;
	add.u64 %%rd3, %%rd3, %%rd1;
	st.global.u%[1]d [%%rd3], %%rd2;
	ret;
}

.visible .entry litmus_gather%[1]d(.param .u64 base, .param .u32 stride, .param .u32 mask, .param .u64 res, .param .u32 salt)
{
	.reg .pred %%p;
	.reg .b32 %%r<6>;
	.reg .b64 %%rd<6>;
	ld.param.u64 %%rd1, [base];
	ld.param.u32 %%r1, [stride];
	ld.param.u32 %%r2, [mask];
	ld.param.u64 %%rd2, [res];
	mov.u32 %%r3, %%ctaid.x;
	mov.u32 %%r4, %%ntid.x;
	mov.u32 %%r5, %%tid.x;
	mad.lo.u32 %%r3, %%r3, %%r4, %%r5;
	setp.gt.u32 %%p, %%r3, %%r2;
	@%%p ret;
	ld.param.u32 %%r4, [salt];
	mad.lo.u32 %%r4, %%r3, 2654435761, %%r4;
	and.b32 %%r4, %%r4, %%r2;
	mul.wide.u32 %%rd3, %%r4, %%r1;
	add.u64 %%rd3, %%rd3, %%rd1;
	ld.global.u%[1]d %%rd4, [%%rd3];
	mul.wide.u32 %%rd5, %%r3, 8;
	add.u64 %%rd5, %%rd5, %%rd2;
	st.global.u64 [%%rd5], %%rd4;
	ret;
}
`
