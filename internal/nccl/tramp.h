// The part of NCCL's API that is called, declared here because building must need no NCCL. Types and values mirror nccl.h,
// which keeps them since NCCL 2.10.
#ifndef FL_NCCL_H
#define FL_NCCL_H

#include <stddef.h>
#include <stdint.h>

typedef int ncclResult_t;
typedef uintptr_t ncclComm_t; // a pointer in nccl.h
typedef struct { char internal[128]; } ncclUniqueId;

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

typedef struct {
	void *handle;
	const char *(*ncclGetErrorString)(ncclResult_t);
	const char *(*ncclGetLastError)(ncclComm_t); // since 2.13; may be absent
#define F(name, args) ncclResult_t (*name) args;
	FL_REQUIRED(F)
#undef F
} fl_nccl;

typedef struct { uintptr_t send, recv, stream; } fl_call;

// fl_nccl_open returns NULL with the reason in err.
fl_nccl *fl_nccl_open(const char *path, char *err, size_t errLen);
void fl_nccl_drop(fl_nccl *l);
const char *fl_nccl_missing(const fl_nccl *l, int n); // the n-th function that is not there, or NULL
const char *fl_nccl_error(const fl_nccl *l, int code);
const char *fl_nccl_last(const fl_nccl *l, ncclComm_t comm);
int fl_nccl_version(const fl_nccl *l, int *version);
int fl_nccl_id(const fl_nccl *l, char *id);
int fl_nccl_init_rank(const fl_nccl *l, ncclComm_t *comm, int ranks, const char *id, int rank);
int fl_nccl_init_all(const fl_nccl *l, ncclComm_t *comms, int devices, const int *ordinals);
int fl_nccl_async(const fl_nccl *l, ncclComm_t comm, int *result);
int fl_nccl_end(const fl_nccl *l, ncclComm_t comm, int abort);
// fl_nccl_all_reduce sums on n communicators of this process as one group. A group belongs to a thread, so it is one C call.
int fl_nccl_all_reduce(const fl_nccl *l, int n, const ncclComm_t *comms, const fl_call *calls, size_t count, int type);

#endif
