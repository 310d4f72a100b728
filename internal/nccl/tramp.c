//go:build linux && cgo

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tramp.h"

fl_nccl *fl_nccl_open(const char *path, char *err, size_t errLen) {
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
	FL_OPTIONAL(F)
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

int fl_nccl_init_all(const fl_nccl *l, int devices, const int *ordinals, fl_rank *ranks) {
	ncclComm_t *comms = calloc(devices, sizeof *comms);
	if (!comms) return 2; // ncclSystemError
	int r = l->ncclCommInitAll(comms, devices, ordinals);
	for (int i = 0; i < devices; i++) ranks[i].comm = comms[i];
	free(comms);
	return r;
}

int fl_nccl_state(const fl_nccl *l, ncclComm_t comm) {
	int state = 0, r = l->ncclCommGetAsyncError(comm, &state);
	return r ? -r : state;
}

int fl_nccl_driver(fl_nccl *l, const char *path) {
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD); // stays open: what is in use is not unloaded
	if (!h) return -1;
#define F(name, args) *(void **)&l->name = dlsym(h, #name); if (!l->name) return -1;
	FL_DRIVER(F)
#undef F
	return 0;
}

int fl_nccl_context(const fl_nccl *l, uintptr_t stream, uintptr_t *ctx) { return l->cuStreamGetCtx(stream, ctx); }
int fl_nccl_nonblocking(const fl_nccl *l) { return l->ncclCommInitRankConfig && l->ncclCommFinalize; }

// enter makes ctx current, and gives what was. Whatever it was, leave puts it back: to the driver of this program, and to a
// thread of somebody else's, nothing has happened.
static int enter(const fl_nccl *l, uintptr_t ctx, uintptr_t *was) {
	*was = ctx;
	if (!ctx) return 0;
	if (l->cuCtxGetCurrent(was) || (*was != ctx && l->cuCtxSetCurrent(ctx))) {
		*was = ctx; // nothing to put back
		return 1;   // ncclUnhandledCudaError
	}
	return 0;
}

static void leave(const fl_nccl *l, uintptr_t ctx, uintptr_t was) {
	if (was != ctx && l->cuCtxSetCurrent(was)) l->cuCtxSetCurrent(0); // it has gone meanwhile
}

int fl_nccl_join(const fl_nccl *l, int n, fl_rank *ranks, const char *id) {
	ncclConfig_v21400 config = {sizeof config, 0xcafebeef, 21400, 0}; // blocking = 0
	ncclUniqueId u;
	memcpy(u.internal, id, sizeof u.internal);
	int r = l->ncclGroupStart();
	if (r) return r;
	for (int i = 0; i < n && (!r || r == ncclInProgress); i++) {
		uintptr_t was;
		if ((r = enter(l, ranks[i].ctx, &was))) break;
		r = fl_nccl_nonblocking(l) ? l->ncclCommInitRankConfig(&ranks[i].comm, n, u, i, &config) : l->ncclCommInitRank(&ranks[i].comm, n, u, i);
		leave(l, ranks[i].ctx, was);
	}
	uintptr_t was; // the group's end asks for the current device, and must not make a context on another
	int c = enter(l, ranks[0].ctx, &was);
	int e = l->ncclGroupEnd(); // in any case, or the thread would stay in the group
	leave(l, ranks[0].ctx, was);
	if (r && r != ncclInProgress) return r;
	return e ? e : c;
}

int fl_nccl_one(const fl_nccl *l, fl_rank rank, fl_call call, size_t count, int type) {
	uintptr_t was;
	int r = enter(l, rank.ctx, &was);
	if (r) return r;
	r = l->ncclAllReduce(call.send, call.recv, count, type, 0 /* ncclSum */, rank.comm, call.stream);
	leave(l, rank.ctx, was);
	return r;
}

int fl_nccl_all(const fl_nccl *l, int n, const fl_rank *ranks, const fl_call *calls, size_t count, int type) {
	uintptr_t was;
	int r = enter(l, ranks[0].ctx, &was); // NCCL goes on to each communicator's own
	if (r) return r;
	if (!(r = l->ncclGroupStart())) {
		for (int i = 0; i < n && (!r || r == ncclInProgress); i++)
			r = l->ncclAllReduce(calls[i].send, calls[i].recv, count, type, 0 /* ncclSum */, ranks[i].comm, calls[i].stream);
		int e = l->ncclGroupEnd(); // in any case
		if (!r || r == ncclInProgress) r = e;
	}
	leave(l, ranks[0].ctx, was);
	return r;
}

// each makes one call for every communicator that there is: as one group where those of one thread may wait for each other.
static int each(const fl_nccl *l, int n, const fl_rank *ranks, ncclResult_t (*call)(ncclComm_t), int group) {
	uintptr_t was;
	int worst = 0, r = 0, c = enter(l, ranks[0].ctx, &was);
	if (group) r = l->ncclGroupStart();
	for (int i = 0; i < n; i++) {
		int e = ranks[i].comm ? call(ranks[i].comm) : 0;
		if (e && (!worst || worst == ncclInProgress)) worst = e;
	}
	if (group && !r) r = l->ncclGroupEnd();
	leave(l, ranks[0].ctx, was);
	if (worst && worst != ncclInProgress) return worst;
	return r ? r : worst ? worst : c;
}

int fl_nccl_finalize(const fl_nccl *l, int n, const fl_rank *ranks) { return each(l, n, ranks, l->ncclCommFinalize, 1); }

int fl_nccl_end(const fl_nccl *l, int n, const fl_rank *ranks, int abort) {
	return each(l, n, ranks, abort ? l->ncclCommAbort : l->ncclCommDestroy, 0);
}
