// The part of the CUDA driver API that Fenceline calls, declared here because building must need no CUDA SDK.
// Types, values and struct layouts mirror cuda.h (checked against the headers of CUDA 13); the names behind
// cuda.h's macros are spelled out, because dlsym sees those.
#ifndef FL_ABI_H
#define FL_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;

// Handles are pointers in cuda.h. As integers they have the same size and calling convention on every 64-bit
// Linux ABI, and Go's garbage collector and pointer checks rightly take no interest in them.
typedef uintptr_t CUcontext;
typedef uintptr_t CUstream;
typedef uintptr_t CUevent;
typedef uintptr_t CUmodule;
typedef uintptr_t CUfunction;
typedef uintptr_t CUgraph;
typedef uintptr_t CUgraphExec;

_Static_assert(sizeof(void *) == 8, "libcuda is 64-bit");

typedef struct { unsigned char bytes[16]; } CUuuid;

// cuda.h: CUlaunchAttribute_st, CUlaunchConfig_st. value is a 64-byte union whose int member sits first.
typedef struct {
	int id;
	char pad[4];
	union {
		char pad[64];
		int programmaticStreamSerializationAllowed;
		uint64_t align;
	} value;
} CUlaunchAttribute;

typedef struct {
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	CUstream hStream;
	CUlaunchAttribute *attrs;
	unsigned int numAttrs;
} CUlaunchConfig;

_Static_assert(sizeof(CUlaunchAttribute) == 72, "CUlaunchAttribute of cuda.h");
_Static_assert(sizeof(CUlaunchConfig) == 56, "CUlaunchConfig of cuda.h");
_Static_assert(offsetof(CUlaunchConfig, hStream) == 32, "CUlaunchConfig of cuda.h");

enum {
	CU_EVENT_DISABLE_TIMING = 0x2,
	CU_STREAM_NON_BLOCKING = 0x1,
	CU_STREAM_CAPTURE_MODE_RELAXED = 2,
	CU_MEMHOSTALLOC_PORTABLE = 0x1,
	CU_MEMHOSTALLOC_DEVICEMAP = 0x2,
	CU_MEMORYTYPE_HOST = 1,
	CU_MEMORYTYPE_DEVICE = 2,

	CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
	CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
	CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
	CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,

	CU_JIT_ERROR_LOG_BUFFER = 5,
	CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,

	CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
	CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
	CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
	CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
	CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,

	CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK = 1,
	CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED = 2,
	CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED = 3,

	CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
	CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
	CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
	CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
	CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
	CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,

	CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,

	CUDA_ERROR_NOT_READY = 600,
};

#define CU_LAUNCH_PARAM_END ((void *)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)

// FL_REQUIRED lists what the driver cannot do without, FL_OPTIONAL what disables one feature when missing.
// All of FL_REQUIRED is in every libcuda since CUDA 11.4.
#define FL_REQUIRED(F) \
	F(cuInit, (unsigned int)) \
	F(cuGetErrorName, (CUresult, const char **)) \
	F(cuGetErrorString, (CUresult, const char **)) \
	F(cuDeviceGet, (CUdevice *, int)) \
	F(cuDeviceGetCount, (int *)) \
	F(cuDeviceGetName, (char *, int, CUdevice)) \
	F(cuDeviceGetUuid_v2, (CUuuid *, CUdevice)) \
	F(cuDeviceTotalMem_v2, (size_t *, CUdevice)) \
	F(cuDeviceGetAttribute, (int *, int, CUdevice)) \
	F(cuDeviceGetPCIBusId, (char *, int, CUdevice)) \
	F(cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice)) \
	F(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
	F(cuDevicePrimaryCtxRelease_v2, (CUdevice)) \
	F(cuCtxGetCurrent, (CUcontext *)) \
	F(cuCtxSetCurrent, (CUcontext)) \
	F(cuMemGetInfo_v2, (size_t *, size_t *)) \
	F(cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
	F(cuMemFree_v2, (CUdeviceptr)) \
	F(cuMemHostAlloc, (void **, size_t, unsigned int)) \
	F(cuMemHostGetDevicePointer_v2, (CUdeviceptr *, void *, unsigned int)) \
	F(cuMemFreeHost, (void *)) \
	F(cuPointerGetAttributes, (unsigned int, int *, void **, CUdeviceptr)) \
	F(cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr)) \
	F(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream)) \
	F(cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
	F(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream)) \
	F(cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream)) \
	F(cuStreamCreate, (CUstream *, unsigned int)) \
	F(cuStreamDestroy_v2, (CUstream)) \
	F(cuStreamQuery, (CUstream)) \
	F(cuStreamSynchronize, (CUstream)) \
	F(cuStreamWaitEvent, (CUstream, CUevent, unsigned int)) \
	F(cuEventCreate, (CUevent *, unsigned int)) \
	F(cuEventDestroy_v2, (CUevent)) \
	F(cuEventRecord, (CUevent, CUstream)) \
	F(cuEventQuery, (CUevent)) \
	F(cuEventElapsedTime, (float *, CUevent, CUevent)) \
	F(cuModuleLoadDataEx, (CUmodule *, const void *, unsigned int, int *, void **)) \
	F(cuModuleUnload, (CUmodule)) \
	F(cuModuleGetFunction, (CUfunction *, CUmodule, const char *)) \
	F(cuFuncGetAttribute, (int *, int, CUfunction)) \
	F(cuLaunchKernel, (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, \
		unsigned int, unsigned int, CUstream, void **, void **))

#define FL_OPTIONAL(F) \
	F(cuDeviceGetP2PAttribute, (int *, int, CUdevice, CUdevice)) \
	F(cuCtxEnablePeerAccess, (CUcontext, unsigned int)) \
	F(cuCtxDisablePeerAccess, (CUcontext)) \
	F(cuMemcpyPeerAsync, (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream)) \
	F(cuFuncSetAttribute, (CUfunction, int, int)) \
	F(cuFuncLoad, (CUfunction)) \
	F(cuFuncGetParamInfo, (CUfunction, size_t, size_t *, size_t *)) \
	F(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *, CUfunction, int, size_t)) \
	F(cuLaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **)) \
	F(cuStreamBeginCapture_v2, (CUstream, int)) \
	F(cuStreamEndCapture, (CUstream, CUgraph *)) \
	F(cuStreamIsCapturing, (CUstream, int *)) \
	F(cuStreamGetCtx, (CUstream, CUcontext *)) \
	F(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long)) \
	F(cuGraphLaunch, (CUgraphExec, CUstream)) \
	F(cuGraphDestroy, (CUgraph)) \
	F(cuGraphExecDestroy, (CUgraphExec))

// fl_lib is one opened libcuda: its functions, by name.
typedef struct {
	void *handle;
	CUresult (*cuDriverGetVersion)(int *);
#define F(name, args) CUresult (*name) args;
	FL_REQUIRED(F)
	FL_OPTIONAL(F)
#undef F
} fl_lib;

#endif
