// A libnccl whose "device memory" is the host's: it sums when a group ends, and notes what it was called with. BAD_SYMBOL
// leaves a function out, FAIL makes one fail, DIES and HANGS what they say; INERT touches no memory.
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char internal[128]; } ncclUniqueId;
typedef struct comm { int rank, world, device; } *ncclComm_t;
typedef struct { const void *send; void *recv; size_t count; int type, op; ncclComm_t comm; void *stream; } call;

static __thread int depth;
static __thread call queued[16];
static __thread int calls;
static int open_comms, aborted, streams;
static int async_error;

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
#ifdef DIES
	if (rank == 1) exit(7);
#endif
#ifdef HANGS
	for (;;) pause();
#endif
	const char *nvls = getenv("NCCL_NVLS_ENABLE");
	if (!nvls || strcmp(nvls, "0") != 0) return 6;
	*comm = calloc(1, sizeof **comm);
	(*comm)->rank = rank;
	(*comm)->world = ranks;
	open_comms++;
	return 0;
}

int ncclCommInitAll(ncclComm_t *comms, int n, const int *devices) {
#ifdef FAIL
	return 5;
#endif
	for (int i = 0; i < n; i++) {
		comms[i] = calloc(1, sizeof *comms[i]);
		comms[i]->rank = i;
		comms[i]->world = n;
		comms[i]->device = devices[i];
		open_comms++;
	}
	return 0;
}

int ncclCommDestroy(ncclComm_t c) { free(c); open_comms--; return 0; }
int ncclCommAbort(ncclComm_t c) { free(c); open_comms--; aborted++; return 0; }
int ncclCommGetAsyncError(ncclComm_t c, int *r) { (void)c; *r = async_error; return 0; }
int ncclGroupStart(void) { return depth++ == 0 ? 0 : 5; }

int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm, void *stream) {
	if (!depth || op != 0) return 5;
	queued[calls++] = (call){send, recv, count, type, op, comm, stream};
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
	int n = calls;
	if (n && queued[0].count == 13) async_error = 3; // an unlucky size
	for (int i = 0; i < n; i++) {
		if (queued[i].comm->world > 1 && n > 1 && (queued[i].comm->rank != i || n != queued[i].comm->world)) return 5;
		streams += (int)(intptr_t)queued[i].stream;
	}
#ifndef INERT
	if (n && queued[0].type == 7) sum();
#endif
	calls = 0;
	return 0;
}

// For the test.
int fakeOpen(void) { return open_comms; }
