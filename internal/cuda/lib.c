//go:build linux && cgo

// Opening libcuda: the dlsym table, initialisation, signal handlers.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tramp.h"

fl_lib *fl_open(const char *path, char *err, size_t errLen) {
	// Local: nobody else should bind to this copy by accident. Now: a broken library should fail here.
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!h) {
		const char *why = dlerror();
		snprintf(err, errLen, "%s", why ? why : "dlopen failed");
		return NULL;
	}
	fl_lib *l = calloc(1, sizeof *l);
	if (!l) {
		snprintf(err, errLen, "out of memory");
		dlclose(h);
		return NULL;
	}
	l->handle = h;
	// POSIX lets an object pointer from dlsym be stored as a function pointer only through a cast like this.
	*(void **)&l->cuDriverGetVersion = dlsym(h, "cuDriverGetVersion");
#define F(name, args) *(void **)&l->name = dlsym(h, #name);
	FL_REQUIRED(F)
	FL_OPTIONAL(F)
#undef F
	return l;
}

// fl_drop unloads a library that was refused before cuInit. After it, libcuda has threads and must stay.
void fl_drop(fl_lib *l) {
	dlclose(l->handle);
	free(l);
}

const char *fl_missing(const fl_lib *l, int n) {
	if (!l->cuDriverGetVersion && n-- == 0) return "cuDriverGetVersion";
#define F(name, args) if (!l->name && n-- == 0) return #name;
	FL_REQUIRED(F)
#undef F
	return NULL;
}

// fl_symbol names the function that a negative result stands for: its place in the table.
const char *fl_symbol(int code) {
	const size_t at = (size_t)-code * sizeof(void *);
#define F(name, args) if (at == offsetof(fl_lib, name)) return #name;
	FL_OPTIONAL(F)
#undef F
	return NULL;
}

int fl_path(const fl_lib *l, char *buf, size_t len) {
	struct link_map *m = NULL;
	if (dlinfo(l->handle, RTLD_DI_LINKMAP, &m) != 0 || !m || !m->l_name) return 0;
	char real[PATH_MAX];
	snprintf(buf, len, "%s", realpath(m->l_name, real) ? real : m->l_name);
	return 1;
}

int fl_version(const fl_lib *l, int *version) { return l->cuDriverGetVersion(version); }

int fl_init(const fl_lib *l) {
	// No lazy loading: a kernel loaded at its first launch would wait for running kernels, which may be
	// waiting for it. The user's own choice stands.
	setenv("CUDA_MODULE_LOADING", "EAGER", 0);
	return l->cuInit(0);
}

const char *fl_error_name(const fl_lib *l, int code) {
	const char *s = NULL;
	if (!l->cuGetErrorName || l->cuGetErrorName(code, &s) != 0) return NULL;
	return s;
}

int fl_signals(int fix) {
	int lost = 0;
	for (int sig = 1; sig <= SIGRTMAX; sig++) {
		struct sigaction sa;
		if (sigaction(sig, NULL, &sa) != 0) continue; // the two signals that libc keeps for itself
		if (sa.sa_handler == SIG_DFL || sa.sa_handler == SIG_IGN || (sa.sa_flags & SA_ONSTACK)) continue;
		lost++;
		if (fix) {
			sa.sa_flags |= SA_ONSTACK;
			sigaction(sig, &sa, NULL);
		}
	}
	return lost;
}

int fl_device_count(const fl_lib *l, int *n) { return l->cuDeviceGetCount(n); }

int fl_device_get(const fl_lib *l, int ordinal, fl_device *out) {
	memset(out, 0, sizeof *out);
	int r = l->cuDeviceGet(&out->cu, ordinal);
	if (!r) r = l->cuDeviceGetName(out->name, sizeof out->name - 1, out->cu);
	if (!r) r = l->cuDeviceGetPCIBusId(out->pci, sizeof out->pci - 1, out->cu);
	if (!r) r = l->cuDeviceGetUuid_v2(&out->uuid, out->cu);
	if (!r) r = l->cuDeviceTotalMem_v2(&out->total, out->cu);
	const struct {
		int attr;
		int *to;
	} want[] = {
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &out->major},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &out->minor},
		{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &out->sms},
		{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &out->threadsPerSM},
		{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &out->threadsPerBlock},
		{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &out->sharedPerBlock},
		{CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, &out->canMapHost},
		{CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, &out->unified},
	};
	for (size_t i = 0; !r && i < sizeof want / sizeof *want; i++) r = l->cuDeviceGetAttribute(want[i].to, want[i].attr, out->cu);
	return r;
}

int fl_p2p(const fl_lib *l, CUdevice dev, CUdevice peer, int *access, int *atomics, int *rank) {
	*access = *atomics = *rank = 0;
	int r = l->cuDeviceCanAccessPeer(access, dev, peer);
	if (r || !*access || !l->cuDeviceGetP2PAttribute) return r;
	r = l->cuDeviceGetP2PAttribute(access, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, dev, peer);
	if (!r) r = l->cuDeviceGetP2PAttribute(atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, dev, peer);
	if (!r) r = l->cuDeviceGetP2PAttribute(rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, dev, peer);
	return r;
}

int fl_retain(const fl_lib *l, CUdevice dev, CUcontext *ctx) { return l->cuDevicePrimaryCtxRetain(ctx, dev); }
int fl_release(const fl_lib *l, CUdevice dev) { return l->cuDevicePrimaryCtxRelease_v2(dev); }
