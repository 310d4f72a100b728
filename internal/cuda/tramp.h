// The trampolines: one C call for each operation of the driver seam. Every one that takes a context makes it
// current, does the work, and returns the CUresult of the first step that failed. A negative result is not
// CUDA's: an optional function is not in the library, and fl_symbol names it.
#ifndef FL_TRAMP_H
#define FL_TRAMP_H

#include "abi.h"

// Loading. fl_open fills the table and returns NULL with the loader's message in err when path cannot be
// opened. fl_missing names the n-th required function that is not there, or NULL.
fl_lib *fl_open(const char *path, char *err, size_t errLen);
void fl_drop(fl_lib *l); // only before fl_init
const char *fl_missing(const fl_lib *l, int n);
int fl_path(const fl_lib *l, char *buf, size_t len); // the file that was loaded
int fl_version(const fl_lib *l, int *version);
int fl_init(const fl_lib *l);
const char *fl_symbol(int code);
const char *fl_error_name(const fl_lib *l, int code);
int fl_signals(int fix); // counts handlers without SA_ONSTACK, and gives it back to them if fix

// Devices.
typedef struct {
	CUdevice cu;
	char name[256];
	char pci[32];
	CUuuid uuid;
	size_t total;
	int major, minor, sms, threadsPerSM, threadsPerBlock, sharedPerBlock, canMapHost, unified;
} fl_device;

int fl_device_count(const fl_lib *l, int *n);
int fl_device_get(const fl_lib *l, int ordinal, fl_device *out);
int fl_p2p(const fl_lib *l, CUdevice dev, CUdevice peer, int *access, int *atomics, int *rank);
int fl_retain(const fl_lib *l, CUdevice dev, CUcontext *ctx);
int fl_release(const fl_lib *l, CUdevice dev);
int fl_mem_info(const fl_lib *l, CUcontext ctx, size_t *free, size_t *total);
int fl_peer_enable(const fl_lib *l, CUcontext ctx, CUcontext peer);
int fl_peer_disable(const fl_lib *l, CUcontext ctx, CUcontext peer);

// Memory.
int fl_mem_alloc(const fl_lib *l, CUcontext ctx, size_t n, CUdeviceptr *p);
int fl_mem_free(const fl_lib *l, CUcontext ctx, CUdeviceptr p);
int fl_host_alloc(const fl_lib *l, CUcontext ctx, size_t n, void **host, CUdeviceptr *p);
int fl_host_free(const fl_lib *l, CUcontext ctx, void *host);
int fl_pointer(const fl_lib *l, CUcontext ctx, CUdeviceptr p, int *type, int *dev, CUdeviceptr *base, size_t *size);
int fl_memset(const fl_lib *l, CUcontext ctx, CUstream s, CUdeviceptr p, unsigned char v, size_t n);
int fl_copy(const fl_lib *l, CUcontext ctx, CUstream s, CUdeviceptr dst, CUdeviceptr src, size_t n);
int fl_copy_peer(const fl_lib *l, CUcontext ctx, CUstream s, CUdeviceptr dst, CUcontext dstCtx, CUdeviceptr src,
	CUcontext srcCtx, size_t n);
// fl_copy_in and fl_copy_out wait up to maxNS for the stream, and answer CUDA_ERROR_NOT_READY, having copied
// nothing, if it is still busy. Otherwise the copy is complete when they return.
int fl_copy_in(const fl_lib *l, CUcontext ctx, CUstream s, CUdeviceptr dst, const unsigned char *src, size_t n, int64_t maxNS);
int fl_copy_out(const fl_lib *l, CUcontext ctx, CUstream s, unsigned char *dst, CUdeviceptr src, size_t n, int64_t maxNS);

// Streams and events. The waits poll for up to maxNS nanoseconds (0: ask once) and answer
// CUDA_ERROR_NOT_READY when that was not enough.
int fl_stream_create(const fl_lib *l, CUcontext ctx, CUstream *s);
int fl_stream_destroy(const fl_lib *l, CUcontext ctx, CUstream s);
// *owner is the stream's context; ctx where the driver cannot tell.
int fl_stream_context(const fl_lib *l, CUcontext ctx, CUstream s, CUcontext *owner);
int fl_stream_capturing(const fl_lib *l, CUcontext ctx, CUstream s, int *status);
int fl_stream_wait(const fl_lib *l, CUcontext ctx, CUstream s, int64_t maxNS);
int fl_stream_wait_event(const fl_lib *l, CUcontext ctx, CUstream s, CUevent e);
int fl_event_create(const fl_lib *l, CUcontext ctx, int timing, CUevent *e);
int fl_event_destroy(const fl_lib *l, CUcontext ctx, CUevent e);
int fl_event_record(const fl_lib *l, CUcontext ctx, CUevent e, CUstream s);
int fl_event_wait(const fl_lib *l, CUcontext ctx, CUevent e, int64_t maxNS);
int fl_event_elapsed(const fl_lib *l, CUcontext ctx, CUevent from, CUevent to, float *ms);

// Modules and launches.
typedef struct {
	int maxThreads, registers, staticShared, localBytes, maxDynamic;
	int paramBytes; // -1 when this libcuda cannot tell
} fl_func;

int fl_module_load(const fl_lib *l, CUcontext ctx, const unsigned char *ptx, unsigned char *log, size_t logLen, CUmodule *m);
int fl_module_unload(const fl_lib *l, CUcontext ctx, CUmodule m);
int fl_module_function(const fl_lib *l, CUcontext ctx, CUmodule m, const unsigned char *name, CUfunction *f, fl_func *info);
int fl_func_shared(const fl_lib *l, CUcontext ctx, CUfunction f, int bytes);
int fl_occupancy(const fl_lib *l, CUcontext ctx, CUfunction f, int threads, size_t shared, int *blocks);
int fl_launch(const fl_lib *l, CUcontext ctx, CUstream s, CUfunction f, uint32_t gx, uint32_t gy, uint32_t gz,
	uint32_t bx, uint32_t by, uint32_t bz, uint32_t shared, int dependent, const unsigned char *args, size_t argBytes);

// Graphs.
int fl_capture_begin(const fl_lib *l, CUcontext ctx, CUstream s);
int fl_capture_end(const fl_lib *l, CUcontext ctx, CUstream s, CUgraph *g);
int fl_graph_instantiate(const fl_lib *l, CUcontext ctx, CUgraph g, CUgraphExec *x);
int fl_graph_launch(const fl_lib *l, CUcontext ctx, CUgraphExec x, CUstream s);
int fl_graph_destroy(const fl_lib *l, CUcontext ctx, CUgraph g);
int fl_exec_destroy(const fl_lib *l, CUcontext ctx, CUgraphExec x);

#endif
