//go:build linux && cgo

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tramp.h"

fl_nccl *fl_nccl_open(const char *path, char *err, size_t errLen) {
	setenv("NCCL_NVLS_ENABLE", "0", 1); // multicast stays off
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!h) {
		const char *why = dlerror();
		snprintf(err, errLen, "%s", why ? why : "dlopen failed");
		return NULL;
	}
	fl_nccl *l = calloc(1, sizeof *l);
	if (!l) {
		snprintf(err, errLen, "out of memory");
		dlclose(h);
		return NULL;
	}
	l->handle = h;
	// POSIX lets an object pointer from dlsym be stored as a function pointer only through a cast like this.
	*(void **)&l->ncclGetErrorString = dlsym(h, "ncclGetErrorString");
	*(void **)&l->ncclGetLastError = dlsym(h, "ncclGetLastError");
#define F(name, args) *(void **)&l->name = dlsym(h, #name);
	FL_REQUIRED(F)
#undef F
	return l;
}

void fl_nccl_drop(fl_nccl *l) {
	dlclose(l->handle);
	free(l);
}

const char *fl_nccl_missing(const fl_nccl *l, int n) {
#define F(name, args) if (!l->name && n-- == 0) return #name;
	FL_REQUIRED(F)
#undef F
	return NULL;
}

const char *fl_nccl_error(const fl_nccl *l, int code) { return l->ncclGetErrorString ? l->ncclGetErrorString(code) : NULL; }
const char *fl_nccl_last(const fl_nccl *l, ncclComm_t comm) { return l->ncclGetLastError ? l->ncclGetLastError(comm) : NULL; }
int fl_nccl_version(const fl_nccl *l, int *version) { return l->ncclGetVersion(version); }

int fl_nccl_id(const fl_nccl *l, char *id) {
	ncclUniqueId u;
	int r = l->ncclGetUniqueId(&u);
	if (!r) memcpy(id, u.internal, sizeof u.internal);
	return r;
}

int fl_nccl_init_rank(const fl_nccl *l, ncclComm_t *comm, int ranks, const char *id, int rank) {
	ncclUniqueId u;
	memcpy(u.internal, id, sizeof u.internal);
	return l->ncclCommInitRank(comm, ranks, u, rank);
}

int fl_nccl_init_all(const fl_nccl *l, ncclComm_t *comms, int devices, const int *ordinals) {
	return l->ncclCommInitAll(comms, devices, ordinals);
}

int fl_nccl_async(const fl_nccl *l, ncclComm_t comm, int *result) { return l->ncclCommGetAsyncError(comm, result); }

int fl_nccl_end(const fl_nccl *l, ncclComm_t comm, int abort) {
	return abort ? l->ncclCommAbort(comm) : l->ncclCommDestroy(comm);
}

int fl_nccl_all_reduce(const fl_nccl *l, int n, const ncclComm_t *comms, const fl_call *calls, size_t count, int type) {
	const int sum = 0; // ncclSum
	int r = l->ncclGroupStart();
	if (r) return r;
	for (int i = 0; !r && i < n; i++)
		r = l->ncclAllReduce(calls[i].send, calls[i].recv, count, type, sum, comms[i], calls[i].stream);
	int e = l->ncclGroupEnd(); // in any case, or the thread would stay in the group
	return r ? r : e;
}
