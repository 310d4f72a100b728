// A libnvidia-ml with two GPUs and few functions, for library_test.go. -DFULL adds the peer
// capabilities; -DEMPTY leaves out even what is required.
#include <string.h>

typedef int ret;
typedef struct dev { const char *uuid; int link; } *handle;

static struct dev devs[2] = {
	{"GPU-aaaaaaaa-0000-0000-0000-000000000000", 0},
	{"GPU-bbbbbbbb-0000-0000-0000-000000000000", 0},
};

#ifndef EMPTY
ret nvmlInit_v2(void) { return 0; }
ret nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(ret r) { (void)r; return "fake error"; }

ret nvmlDeviceGetHandleByUUID(const char *uuid, handle *d)
{
	for (int i = 0; i < 2; i++) {
		if (strcmp(uuid, devs[i].uuid) == 0) {
			*d = &devs[i];
			return 0;
		}
	}
	return 6; // NVML_ERROR_NOT_FOUND
}
#endif

#ifdef FULL
ret nvmlDeviceGetP2PStatus(handle a, handle b, int index, int *status)
{
	(void)b;
	*status = a == &devs[0] && index == 0 ? 2 : 0; // the first GPU cannot read: GNS
	return 0;
}
#endif
