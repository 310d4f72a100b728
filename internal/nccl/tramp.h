// The part of NCCL's API that is called, declared here because building must need no NCCL. Types and values mirror nccl.h,
// which keeps them since NCCL 2.10.
#ifndef FL_NCCL_H
#define FL_NCCL_H

#include <stddef.h>
#include <stdint.h>

typedef int ncclResult_t;
typedef uintptr_t ncclComm_t; // a pointer in nccl.h
typedef struct { char internal[128]; } ncclUniqueId;

enum { ncclInProgress = 7 }; // of ncclResult_t: a communicator that does not block is still at it

// ncclConfig_t as NCCL 2.14 had it. A later library reads as many bytes as size says, and takes its defaults for what came
// after the version that is stated.
typedef struct {
	size_t size;
	unsigned int magic, version;
	int blocking;
} ncclConfig_v21400;

#define FL_REQUIRED(F) \
	F(ncclGetVersion, (int *version)) \
	F(ncclGetUniqueId, (ncclUniqueId *id)) \
	F(ncclCommInitRank, (ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)) \
	F(ncclCommInitAll, (ncclComm_t *comms, int devices, const int *ordinals)) \
	F(ncclCommDestroy, (ncclComm_t comm)) \
	F(ncclCommAbort, (ncclComm_t comm)) \
	F(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *result)) \
	F(ncclGroupStart, (void)) \
	F(ncclGroupEnd, (void)) \
	F(ncclAllReduce, (uintptr_t send, uintptr_t recv, size_t count, int type, int op, ncclComm_t comm, uintptr_t stream))

// Since 2.14: communicators that do not block. Both or none is used.
#define FL_OPTIONAL(F) \
	F(ncclCommInitRankConfig, (ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_v21400 *config)) \
	F(ncclCommFinalize, (ncclComm_t comm))

// Of libcuda, which says what context a stream belongs to: NCCL takes the device of the current one.
#define FL_DRIVER(F) \
	F(cuStreamGetCtx, (uintptr_t stream, uintptr_t *ctx)) \
	F(cuCtxGetCurrent, (uintptr_t *ctx)) \
	F(cuCtxSetCurrent, (uintptr_t ctx))

typedef struct {
	void *handle;
	const char *(*ncclGetErrorString)(ncclResult_t);
	const char *(*ncclGetLastError)(ncclComm_t); // since 2.13; may be absent
#define F(name, args) ncclResult_t (*name) args;
	FL_REQUIRED(F)
	FL_OPTIONAL(F)
	FL_DRIVER(F) // CUresult
#undef F
} fl_nccl;

typedef struct { uintptr_t send, recv, stream; } fl_call;

// fl_rank is a communicator of this process and the context that its calls are made in; 0: whatever is current.
typedef struct { ncclComm_t comm; uintptr_t ctx; } fl_rank;

// fl_nccl_open returns NULL with the reason in err.
fl_nccl *fl_nccl_open(const char *path, char *err, size_t errLen);
void fl_nccl_drop(fl_nccl *l);
const char *fl_nccl_missing(const fl_nccl *l, int n); // the n-th function that is not there, or NULL
const char *fl_nccl_error(const fl_nccl *l, int code);
const char *fl_nccl_last(const fl_nccl *l, ncclComm_t comm);
int fl_nccl_version(const fl_nccl *l, int *version);
int fl_nccl_id(const fl_nccl *l, char *id);
int fl_nccl_init_rank(const fl_nccl *l, ncclComm_t *comm, int ranks, const char *id, int rank);
int fl_nccl_init_all(const fl_nccl *l, int devices, const int *ordinals, fl_rank *ranks);
int fl_nccl_state(const fl_nccl *l, ncclComm_t comm); // what became of its work; below zero: why that is not known

// fl_nccl_driver finds libcuda, which must have been loaded from that path, and the context of each stream. It is 0, a
// CUresult, or -1 where there is no such library, or a function is missing.
int fl_nccl_driver(fl_nccl *l, const char *path);
int fl_nccl_context(const fl_nccl *l, uintptr_t stream, uintptr_t *ctx);
int fl_nccl_nonblocking(const fl_nccl *l); // whether communicators can be had that do not block

// fl_nccl_join makes the communicators of all ranks as one group. Those that came to be are in ranks even when it fails.
int fl_nccl_join(const fl_nccl *l, int n, fl_rank *ranks, const char *id);

// fl_nccl_one sums on one rank; fl_nccl_all on all ranks of this process as one group. A group belongs to a thread, and so does
// a context, so each is one C call.
int fl_nccl_one(const fl_nccl *l, fl_rank rank, fl_call call, size_t count, int type);
int fl_nccl_all(const fl_nccl *l, int n, const fl_rank *ranks, const fl_call *calls, size_t count, int type);

// fl_nccl_finalize flushes all communicators, fl_nccl_end frees them.
int fl_nccl_finalize(const fl_nccl *l, int n, const fl_rank *ranks);
int fl_nccl_end(const fl_nccl *l, int n, const fl_rank *ranks, int abort);

#endif
