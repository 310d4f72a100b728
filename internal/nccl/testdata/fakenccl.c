// A libnccl whose "device memory" is the host's: it sums when a group ends, and notes what it was called with in the file that
// FAKE_NCCL_LOG names. It is a libcuda too, as far as contexts go: that of stream s is s + 0x100. BAD_SYMBOL leaves a function
// out, OLD those that came with 2.14, FAIL makes one fail, DIES and HANGS what they say, STUCK makes communicators that never get
// ready, BROKEN such as fail meanwhile, LAZY calls that are not done at once, UNENDING ones that never are; INERT touches no memory.
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char internal[128]; } ncclUniqueId;
typedef struct comm { int rank, world, device, busy; } *ncclComm_t;
typedef struct { const void *send; void *recv; size_t count; int type, op; ncclComm_t comm; void *stream; } call;
typedef struct { size_t size; unsigned magic, version; int blocking; } config;

static __thread int depth;
static __thread call queued[16];
static __thread int calls;
static __thread uintptr_t current;
static int async_error;

static void note(const char *format, ...) {
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
	const char *path = getenv("FAKE_NCCL_LOG");
	if (!path) return;
	pthread_mutex_lock(&one);
	FILE *f = fopen(path, "a");
	va_list args;
	va_start(args, format);
	vfprintf(f, format, args);
	va_end(args);
	fclose(f);
	pthread_mutex_unlock(&one);
}

// With NVLS_OFF it insists that multicast is off.
static int multicast(void) {
#ifdef NVLS_OFF
	const char *nvls = getenv("NCCL_NVLS_ENABLE");
	return !nvls || strcmp(nvls, "0") != 0;
#endif
	return 0;
}

int cuStreamGetCtx(uintptr_t stream, uintptr_t *ctx) { *ctx = stream + 0x100; return stream == 666 ? 709 : 0; }
int cuCtxGetCurrent(uintptr_t *ctx) { *ctx = current; return 0; }
int cuCtxSetCurrent(uintptr_t ctx) { current = ctx; return 0; }

int ncclGetVersion(int *v) { *v = 22803; return 0; }
const char *ncclGetErrorString(int r) { return r == 5 ? "invalid usage" : "some error"; }
const char *ncclGetLastError(ncclComm_t c) { (void)c; return "last words\n"; }

#ifndef BAD_SYMBOL
int ncclGetUniqueId(ncclUniqueId *id) {
	for (int i = 0; i < 128; i++) id->internal[i] = (char)(i * 3 + 1);
	return 0;
}
#endif

int ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
	for (int i = 0; i < 128; i++)
		if (id.internal[i] != (char)(i * 3 + 1)) return 4;
	note("init %d of %d, context %#lx, group %d\n", rank, ranks, (unsigned long)current, depth);
#ifdef DIES
	if (rank == 1) exit(7);
#endif
#ifdef HANGS
	sleep(HANGS);
#endif
#ifdef FAIL
	return 5;
#endif
	if (multicast()) return 6;
	*comm = calloc(1, sizeof **comm);
	(*comm)->rank = rank;
	(*comm)->world = ranks;
	return 0;
}

#ifndef OLD
int ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, config *c) {
	if (c->size != sizeof *c || c->magic != 0xcafebeef || c->version != 21400 || c->blocking) return 4;
	int r = ncclCommInitRank(comm, ranks, id, rank);
	if (r) return r;
	(*comm)->busy = 3;
	return 7;
}
int ncclCommFinalize(ncclComm_t c) {
	note("finalize %d, group %d\n", c->rank, depth);
	c->busy = 2;
	return 7;
}
#endif

int ncclCommInitAll(ncclComm_t *comms, int n, const int *devices) {
#ifdef FAIL
	return 5;
#endif
	if (multicast()) return 6;
	for (int i = 0; i < n; i++) {
		comms[i] = calloc(1, sizeof *comms[i]);
		comms[i]->rank = i;
		comms[i]->world = n;
		comms[i]->device = devices[i];
	}
	return 0;
}

int ncclCommDestroy(ncclComm_t c) { note("destroy %d\n", c->rank); free(c); return 0; }
int ncclCommAbort(ncclComm_t c) { note("abort %d\n", c->rank); free(c); return 0; }
int ncclGroupStart(void) { return depth++ == 0 ? 0 : 5; }

int ncclCommGetAsyncError(ncclComm_t c, int *r) {
	*r = c->busy ? 7 : async_error;
#ifdef STUCK
	return 0;
#endif
#ifdef BROKEN
	if (c->busy == 1 && c->rank == 1) *r = 3;
#endif
	if (c->busy > 0 && c->busy < 100) c->busy--;
	return 0;
}

int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm, void *stream) {
	if (comm->busy) return 5;
	if (op != 0 || (!depth && calls)) return 5;
	if (count == 99) return 1;
	note("all-reduce %zu of %d on %d, stream %lu, context %#lx, group %d\n", count, type, comm->rank, (unsigned long)stream, (unsigned long)current, depth);
	if (count == 13) async_error = 3; // an unlucky size
	if (depth) queued[calls++] = (call){send, recv, count, type, op, comm, stream};
#ifdef LAZY
	comm->busy = 2;
	return 7;
#endif
#ifdef UNENDING
	comm->busy = 100;
	return 7;
#endif
	return 0;
}

#ifndef INERT
static void sum(void) {
	for (size_t i = 0; i < queued[0].count; i++) {
		float s = 0;
		for (int r = 0; r < calls; r++) s += ((const float *)queued[r].send)[i];
		for (int r = 0; r < calls; r++) ((float *)queued[r].recv)[i] = s;
	}
}
#endif

int ncclGroupEnd(void) {
	depth--;
	int n = calls, busy = 0;
	calls = 0;
	for (int i = 0; i < n; i++) {
		if (queued[i].comm->world > 1 && n > 1 && (queued[i].comm->rank != i || n != queued[i].comm->world)) return 5;
		busy |= queued[i].comm->busy;
	}
#ifndef INERT
	calls = n;
	if (n && queued[0].type == 7) sum();
	calls = 0;
#endif
	return busy ? 7 : 0;
}
