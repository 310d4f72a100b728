//go:build linux && cgo

// Trampolines that need a context. See tramp.h.
#define _GNU_SOURCE
#include <sched.h>
#include <time.h>

#include "tramp.h"

// ours is the context that this package last left current on the thread. Contexts of our own need no putting
// back, and must not be: they may have been released since. One that somebody else made current (a C caller's
// thread) is put back, because it decides which GPU that caller's next call goes to.
static __thread CUcontext ours;

static int enter(const fl_lib *l, CUcontext ctx, CUcontext *back) {
	CUcontext cur = 0;
	*back = 0;
	int r = l->cuCtxGetCurrent(&cur);
	if (r || cur == ctx) return r;
	if ((r = l->cuCtxSetCurrent(ctx))) return r;
	if (cur && cur != ours) *back = cur;
	else ours = ctx;
	return 0;
}

static int leave(const fl_lib *l, CUcontext back, int r) {
	if (back) {
		int e = l->cuCtxSetCurrent(back);
		if (!r) r = e;
	}
	return r;
}

// WITH runs one expression under ctx and returns its result.
#define WITH(call) \
	do { \
		CUcontext back; \
		int r = enter(l, ctx, &back); \
		if (!r) r = (call); \
		return leave(l, back, r); \
	} while (0)
#define NEED(name) \
	do { \
		if (!l->name) return -(int)(offsetof(fl_lib, name) / sizeof(void *)); \
	} while (0)

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// poll asks until the answer is not CUDA_ERROR_NOT_READY or maxNS have passed. Small collectives end within
// microseconds, so it yields at first and sleeps, ever longer, only after 100 µs.
static int poll(CUresult (*query)(uintptr_t), uintptr_t h, int64_t maxNS) {
	int r = query(h);
	if (r != CUDA_ERROR_NOT_READY || maxNS <= 0) return r;
	const int64_t start = now();
	long nap = 5000;
	for (;;) {
		const int64_t spent = now() - start;
		if (spent >= maxNS) return r;
		if (spent < 100000) {
			sched_yield();
		} else {
			struct timespec t = {0, nap < maxNS - spent ? nap : (long)(maxNS - spent)};
			nanosleep(&t, NULL);
			if (nap < 200000) nap *= 2;
		}
		r = query(h);
		if (r != CUDA_ERROR_NOT_READY) return r;
	}
}

int fl_mem_info(const fl_lib *l, CUcontext ctx, size_t *free, size_t *total) { WITH(l->cuMemGetInfo_v2(free, total)); }

int fl_peer_enable(const fl_lib *l, CUcontext ctx, CUcontext peer) {
	NEED(cuCtxEnablePeerAccess);
	WITH(l->cuCtxEnablePeerAccess(peer, 0));
}

int fl_peer_disable(const fl_lib *l, CUcontext ctx, CUcontext peer) {
	NEED(cuCtxDisablePeerAccess);
	WITH(l->cuCtxDisablePeerAccess(peer));
}

int fl_mem_alloc(const fl_lib *l, CUcontext ctx, size_t n, CUdeviceptr *p) { WITH(l->cuMemAlloc_v2(p, n)); }
int fl_mem_free(const fl_lib *l, CUcontext ctx, CUdeviceptr p) { WITH(l->cuMemFree_v2(p)); }

static int hostAlloc(const fl_lib *l, size_t n, void **host, CUdeviceptr *p) {
	int r = l->cuMemHostAlloc(host, n, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	if (r) return r;
	r = l->cuMemHostGetDevicePointer_v2(p, *host, 0);
	if (r) l->cuMemFreeHost(*host);
	return r;
}

int fl_host_alloc(const fl_lib *l, CUcontext ctx, size_t n, void **host, CUdeviceptr *p) { WITH(hostAlloc(l, n, host, p)); }
int fl_host_free(const fl_lib *l, CUcontext ctx, void *host) { WITH(l->cuMemFreeHost(host)); }

static int pointer(const fl_lib *l, CUdeviceptr p, int *type, int *dev, CUdeviceptr *base, size_t *size) {
	// All four answer zero, not an error, for an address the driver does not know.
	int attrs[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	void *data[] = {type, dev, base, size};
	int r = l->cuPointerGetAttributes(4, attrs, data, p);
	if (!r && *type == CU_MEMORYTYPE_DEVICE && !*size) r = l->cuMemGetAddressRange_v2(base, size, p);
	return r;
}

int fl_pointer(const fl_lib *l, CUcontext ctx, CUdeviceptr p, int *type, int *dev, CUdeviceptr *base, size_t *size) {
	*type = *dev = 0;
	*base = 0;
	*size = 0;
	WITH(pointer(l, p, type, dev, base, size));
}

int fl_memset(const fl_lib *l, CUcontext ctx, CUstream s, CUdeviceptr p, unsigned char v, size_t n) {
	WITH(l->cuMemsetD8Async(p, v, n, s));
}

int fl_copy(const fl_lib *l, CUcontext ctx, CUstream s, CUdeviceptr dst, CUdeviceptr src, size_t n) {
	WITH(l->cuMemcpyAsync(dst, src, n, s));
}

// A capture refuses cuMemcpyPeerAsync between two devices, and takes cuMemcpyAsync, which finds the devices by the
// addresses. An answer of 0 is "not capturing" (CU_STREAM_CAPTURE_STATUS_NONE).
static int copyPeer(const fl_lib *l, CUstream s, CUdeviceptr dst, CUcontext dstCtx, CUdeviceptr src, CUcontext srcCtx, size_t n) {
	int capturing = 0;
	if (l->cuStreamIsCapturing) {
		int r = l->cuStreamIsCapturing(s, &capturing);
		if (r) return r;
	}
	return capturing ? l->cuMemcpyAsync(dst, src, n, s) : l->cuMemcpyPeerAsync(dst, dstCtx, src, srcCtx, n, s);
}

int fl_copy_peer(const fl_lib *l, CUcontext ctx, CUstream s, CUdeviceptr dst, CUcontext dstCtx, CUdeviceptr src,
	CUcontext srcCtx, size_t n) {
	NEED(cuMemcpyPeerAsync);
	WITH(copyPeer(l, s, dst, dstCtx, src, srcCtx, n));
}

// The driver stages pageable memory itself, and waits for the stream while it does. Polling first keeps that
// wait bounded by the copy alone, so that a kernel which does not end cannot hold the thread.
static int copyIn(const fl_lib *l, CUstream s, CUdeviceptr dst, const void *src, size_t n, int64_t maxNS) {
	int r = poll(l->cuStreamQuery, s, maxNS);
	if (!r) r = l->cuMemcpyHtoDAsync_v2(dst, src, n, s);
	if (!r) r = l->cuStreamSynchronize(s);
	return r;
}

static int copyOut(const fl_lib *l, CUstream s, void *dst, CUdeviceptr src, size_t n, int64_t maxNS) {
	int r = poll(l->cuStreamQuery, s, maxNS);
	if (!r) r = l->cuMemcpyDtoHAsync_v2(dst, src, n, s);
	if (!r) r = l->cuStreamSynchronize(s);
	return r;
}

int fl_copy_in(const fl_lib *l, CUcontext ctx, CUstream s, CUdeviceptr dst, const unsigned char *src, size_t n, int64_t maxNS) {
	WITH(copyIn(l, s, dst, src, n, maxNS));
}

int fl_copy_out(const fl_lib *l, CUcontext ctx, CUstream s, unsigned char *dst, CUdeviceptr src, size_t n, int64_t maxNS) {
	WITH(copyOut(l, s, dst, src, n, maxNS));
}

int fl_stream_create(const fl_lib *l, CUcontext ctx, CUstream *s) { WITH(l->cuStreamCreate(s, CU_STREAM_NON_BLOCKING)); }
int fl_stream_destroy(const fl_lib *l, CUcontext ctx, CUstream s) { WITH(l->cuStreamDestroy_v2(s)); }

int fl_stream_context(const fl_lib *l, CUcontext ctx, CUstream s, CUcontext *owner) {
	*owner = ctx;
	if (!l->cuStreamGetCtx) return 0;
	WITH(l->cuStreamGetCtx(s, owner));
}

int fl_stream_capturing(const fl_lib *l, CUcontext ctx, CUstream s, int *status) {
	NEED(cuStreamIsCapturing);
	WITH(l->cuStreamIsCapturing(s, status));
}

int fl_stream_wait(const fl_lib *l, CUcontext ctx, CUstream s, int64_t maxNS) { WITH(poll(l->cuStreamQuery, s, maxNS)); }

int fl_stream_wait_event(const fl_lib *l, CUcontext ctx, CUstream s, CUevent e) { WITH(l->cuStreamWaitEvent(s, e, 0)); }

int fl_event_create(const fl_lib *l, CUcontext ctx, int timing, CUevent *e) {
	WITH(l->cuEventCreate(e, timing ? 0 : CU_EVENT_DISABLE_TIMING));
}

int fl_event_destroy(const fl_lib *l, CUcontext ctx, CUevent e) { WITH(l->cuEventDestroy_v2(e)); }
int fl_event_record(const fl_lib *l, CUcontext ctx, CUevent e, CUstream s) { WITH(l->cuEventRecord(e, s)); }
int fl_event_wait(const fl_lib *l, CUcontext ctx, CUevent e, int64_t maxNS) { WITH(poll(l->cuEventQuery, e, maxNS)); }

int fl_event_elapsed(const fl_lib *l, CUcontext ctx, CUevent from, CUevent to, float *ms) {
	WITH(l->cuEventElapsedTime(ms, from, to));
}

static int moduleLoad(const fl_lib *l, const void *ptx, void *log, size_t logLen, CUmodule *m) {
	int opts[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *vals[] = {log, (void *)logLen}; // the header passes numbers by value in the pointer
	return l->cuModuleLoadDataEx(m, ptx, 2, opts, vals);
}

int fl_module_load(const fl_lib *l, CUcontext ctx, const unsigned char *ptx, unsigned char *log, size_t logLen, CUmodule *m) {
	WITH(moduleLoad(l, ptx, log, logLen, m));
}

int fl_module_unload(const fl_lib *l, CUcontext ctx, CUmodule m) { WITH(l->cuModuleUnload(m)); }

static int moduleFunction(const fl_lib *l, CUmodule m, const char *name, CUfunction *f, fl_func *info) {
	int r = l->cuModuleGetFunction(f, m, name);
	// Where the process initialised CUDA before us, loading may be lazy: finish it here, not at first launch.
	if (!r && l->cuFuncLoad) r = l->cuFuncLoad(*f);
	const struct {
		int attr;
		int *to;
	} want[] = {
		{CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &info->maxThreads},
		{CU_FUNC_ATTRIBUTE_NUM_REGS, &info->registers},
		{CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &info->staticShared},
		{CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &info->localBytes},
		{CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &info->maxDynamic},
	};
	for (size_t i = 0; !r && i < sizeof want / sizeof *want; i++) r = l->cuFuncGetAttribute(want[i].to, want[i].attr, *f);
	info->paramBytes = -1;
	if (r || !l->cuFuncGetParamInfo) return r;
	// The first index past the last parameter is refused; that is how their number is learnt.
	info->paramBytes = 0;
	size_t off, size;
	for (size_t i = 0; i < 4096 && l->cuFuncGetParamInfo(*f, i, &off, &size) == 0; i++) info->paramBytes = (int)(off + size);
	return 0;
}

int fl_module_function(const fl_lib *l, CUcontext ctx, CUmodule m, const unsigned char *name, CUfunction *f, fl_func *info) {
	WITH(moduleFunction(l, m, (const char *)name, f, info));
}

int fl_func_shared(const fl_lib *l, CUcontext ctx, CUfunction f, int bytes) {
	NEED(cuFuncSetAttribute);
	WITH(l->cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes));
}

int fl_occupancy(const fl_lib *l, CUcontext ctx, CUfunction f, int threads, size_t shared, int *blocks) {
	NEED(cuOccupancyMaxActiveBlocksPerMultiprocessor);
	WITH(l->cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, threads, shared));
}

int fl_launch(const fl_lib *l, CUcontext ctx, CUstream s, CUfunction f, uint32_t gx, uint32_t gy, uint32_t gz,
	uint32_t bx, uint32_t by, uint32_t bz, uint32_t shared, int dependent, const unsigned char *args, size_t argBytes) {
	void *buffer[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)args, CU_LAUNCH_PARAM_BUFFER_SIZE, &argBytes, CU_LAUNCH_PARAM_END};
	void **extra = argBytes ? buffer : NULL;
	if (dependent && l->cuLaunchKernelEx) {
		CUlaunchAttribute attr = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
		attr.value.programmaticStreamSerializationAllowed = 1;
		CUlaunchConfig cfg = {gx, gy, gz, bx, by, bz, shared, s, &attr, 1};
		WITH(l->cuLaunchKernelEx(&cfg, f, NULL, extra));
	}
	WITH(l->cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, NULL, extra));
}

int fl_capture_begin(const fl_lib *l, CUcontext ctx, CUstream s) {
	NEED(cuStreamBeginCapture_v2);
	NEED(cuStreamEndCapture);
	NEED(cuGraphDestroy);
	// Relaxed: the other modes tie a capture to the thread that began it, and goroutines change threads.
	WITH(l->cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
}

int fl_capture_end(const fl_lib *l, CUcontext ctx, CUstream s, CUgraph *g) {
	NEED(cuStreamEndCapture);
	WITH(l->cuStreamEndCapture(s, g));
}

int fl_graph_instantiate(const fl_lib *l, CUcontext ctx, CUgraph g, CUgraphExec *x) {
	NEED(cuGraphInstantiateWithFlags);
	NEED(cuGraphExecDestroy);
	WITH(l->cuGraphInstantiateWithFlags(x, g, 0));
}

int fl_graph_launch(const fl_lib *l, CUcontext ctx, CUgraphExec x, CUstream s) {
	NEED(cuGraphLaunch);
	WITH(l->cuGraphLaunch(x, s));
}

int fl_graph_destroy(const fl_lib *l, CUcontext ctx, CUgraph g) {
	NEED(cuGraphDestroy);
	WITH(l->cuGraphDestroy(g));
}

int fl_exec_destroy(const fl_lib *l, CUcontext ctx, CUgraphExec x) {
	NEED(cuGraphExecDestroy);
	WITH(l->cuGraphExecDestroy(x));
}
