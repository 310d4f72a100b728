// A libcuda without a GPU, for the tests: it keeps devices, contexts and handles, checks that every call comes
// with the right context current, and runs a few "kernels" that are chosen by entry name:
//
//   noop   (…)                  does nothing
//   store  (u64 ptr, u32 v)     writes v at ptr
//   busy   (u32 ms)             keeps its stream busy for ms milliseconds
//   fault  (u32 code)           loses the context: later calls on the device answer code
//   stats  (u64 ptr)            writes the counters below at ptr
//
// Variants are made with the compiler's -D: FAKE_COUNT devices, FAKE_VERSION, FAKE_INIT (cuInit's answer),
// FAKE_SM, FAKE_SIGNAL (cuInit installs a handler without SA_ONSTACK), FAKE_FOREIGN (every thread starts with
// somebody else's context), FAKE_P2P. -DcuName=hidden takes a function away.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef FAKE_COUNT
#define FAKE_COUNT 2
#endif
#ifndef FAKE_VERSION
#define FAKE_VERSION 12080
#endif
#ifndef FAKE_INIT
#define FAKE_INIT 0
#endif
#ifndef FAKE_SM
#define FAKE_SM 90
#endif
#ifndef FAKE_P2P
#define FAKE_P2P 1
#endif

typedef int R;
typedef uintptr_t H;
typedef unsigned long long P;
#define FOREIGN ((H)0xF0)
#define LIMIT (1ull << 30) // bytes a device has

enum { SET, LAUNCH, LAUNCH_EX, PDL, SET_FOREIGN, RETAINED, RELEASED, WRONG_CTX, ARG_BYTES, OBJECTS, DYNAMIC, FUNC_LOAD, DEAD_CTX, NSTATS };
static uint64_t stats[NSTATS];
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

typedef struct { int magic, dev, refs, fault; size_t used; unsigned peers; } ctx_t;
static ctx_t ctxs[16];
typedef struct func { int magic; struct mod *mod; char name[64]; int nparam, off[16], size[16], dynamic; } func_t;
typedef struct { func_t *f; unsigned char args[256]; } node_t;
typedef struct { int magic, dev, n; node_t nodes[256]; } graph_t;
typedef struct stream { int magic, dev, unjoined, broken; int64_t busy; graph_t *cap; } stream_t;
typedef struct { int magic, dev, timing; int64_t at; stream_t *cap; } event_t;
typedef struct mod { int magic, dev, nf; func_t f[16]; char *text; } mod_t;
enum { CTX = 0xC0, STREAM, EVENT, MOD, FUNC, GRAPH, EXEC, DEAD };
typedef struct { P base; size_t size; int dev, host; } alloc_t;
static alloc_t allocs[4096];
static int nalloc;

#ifdef FAKE_FOREIGN
static __thread H cur = FOREIGN;
#else
static __thread H cur;
#endif

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// in checks the current context; every call below that needs one starts with it.
static ctx_t *in(R *r) {
	ctx_t *c = (ctx_t *)cur;
	if (cur == 0 || cur == FOREIGN || c->magic != CTX) {
		stats[WRONG_CTX]++;
		*r = 201;
		return NULL;
	}
	if (c->refs == 0) {
		stats[DEAD_CTX]++;
		*r = 709;
		return NULL;
	}
	*r = c->fault;
	return c->fault ? NULL : c;
}
#define LOCK pthread_mutex_lock(&mu)
#define OUT(x) do { R r_ = (x); pthread_mutex_unlock(&mu); return r_; } while (0)
#define CTX_OR_OUT R r; ctx_t *c = in(&r); if (!c) OUT(r)
// A handle of another device's context is a wrong context: the real driver would not always notice.
#define CHECK(h, kind, type) type *o = (type *)(h); if (!o || o->magic != kind) OUT(400); \
	if (o->dev != c->dev) { stats[WRONG_CTX]++; OUT(201); }
#define NEW(type, kind) type *o = calloc(1, sizeof *o); o->magic = kind; o->dev = c->dev; stats[OBJECTS]++
#define GONE(o) ((o)->magic = DEAD, stats[OBJECTS]--) // leaked on purpose, so that a stale handle is caught

static void handler(int sig) { (void)sig; }

R cuDriverGetVersion(int *v) { *v = FAKE_VERSION; return 0; }
R cuInit(unsigned f) {
	(void)f;
	const char *mode = getenv("CUDA_MODULE_LOADING");
	if (!mode || strcmp(mode, "EAGER")) return 999;
#ifdef FAKE_SIGNAL
	struct sigaction sa;
	memset(&sa, 0, sizeof sa);
	sa.sa_handler = handler;
	sigaction(SIGRTMIN + 5, &sa, NULL);
#endif
	(void)handler;
	for (int i = 0; i < 16; i++) ctxs[i].magic = CTX, ctxs[i].dev = i;
	return FAKE_INIT;
}
R cuGetErrorName(R e, const char **s) {
	*s = e == 702 ? "CUDA_ERROR_LAUNCH_TIMEOUT" : e == 918 ? "CUDA_ERROR_FAKE" : NULL;
	return *s ? 0 : 1;
}
R cuGetErrorString(R e, const char **s) { return cuGetErrorName(e, s); }
R cuDeviceGet(int *d, int i) { *d = i; return i < 0 || i >= FAKE_COUNT ? 101 : 0; }
R cuDeviceGetCount(int *n) { *n = FAKE_COUNT; return 0; }
R cuDeviceGetName(char *s, int n, int d) { snprintf(s, n, "Fake GPU %d", d); return 0; }
R cuDeviceGetUuid_v2(unsigned char *u, int d) { for (int i = 0; i < 16; i++) u[i] = 16 * d + i; return 0; }
R cuDeviceTotalMem_v2(size_t *n, int d) { (void)d; *n = LIMIT; return 0; }
R cuDeviceGetPCIBusId(char *s, int n, int d) { snprintf(s, n, "0000:%02X:00.0", 0x17 + d); return 0; }
R cuDeviceGetAttribute(int *v, int a, int d) {
	(void)d;
	switch (a) {
	case 1: *v = 1024; return 0;
	case 16: *v = 132; return 0;
	case 19: case 41: *v = 1; return 0;
	case 39: *v = 2048; return 0;
	case 75: *v = FAKE_SM / 10; return 0;
	case 76: *v = FAKE_SM % 10; return 0;
	case 97: *v = 232448; return 0;
	}
	return 1;
}
R cuDeviceCanAccessPeer(int *v, int a, int b) { *v = a != b && FAKE_P2P; return 0; }
R cuDeviceGetP2PAttribute(int *v, int at, int a, int b) { if (a == b) return 101; *v = at == 1 ? 3 : FAKE_P2P; return 0; }

R cuDevicePrimaryCtxRetain(H *c, int d) { LOCK; ctxs[d].refs++; *c = (H)&ctxs[d]; stats[RETAINED]++; OUT(0); }
R cuDevicePrimaryCtxRelease_v2(int d) {
	LOCK;
	if (ctxs[d].refs == 0) OUT(201);
	if (--ctxs[d].refs == 0) ctxs[d].fault = 0, ctxs[d].peers = 0;
	stats[RELEASED]++;
	OUT(0);
}
R cuCtxGetCurrent(H *c) { *c = cur; return 0; }
R cuCtxSetCurrent(H c) {
	LOCK;
	stats[c == FOREIGN ? SET_FOREIGN : SET]++;
	cur = c;
	OUT(0);
}
R cuCtxEnablePeerAccess(H peer, unsigned f) {
	(void)f;
	LOCK;
	CTX_OR_OUT;
	unsigned bit = 1u << ((ctx_t *)peer)->dev;
	if (c->peers & bit) OUT(704);
	c->peers |= bit;
	OUT(0);
}
R cuCtxDisablePeerAccess(H peer) {
	LOCK;
	CTX_OR_OUT;
	unsigned bit = 1u << ((ctx_t *)peer)->dev;
	if (!(c->peers & bit)) OUT(705);
	c->peers &= ~bit;
	OUT(0);
}

static alloc_t *find(P p) {
	for (int i = 0; i < nalloc; i++) if (p >= allocs[i].base && p - allocs[i].base < allocs[i].size) return &allocs[i];
	return NULL;
}
static R alloc(ctx_t *c, P *p, size_t n, int host) {
	if (n > LIMIT - c->used || nalloc == 4096) return 2;
	*p = (P)(uintptr_t)aligned_alloc(256, (n + 255) & ~(size_t)255);
	allocs[nalloc++] = (alloc_t){*p, n, c->dev, host};
	c->used += n;
	stats[OBJECTS]++;
	return 0;
}
static R release(ctx_t *c, P p, int host) {
	alloc_t *a = find(p);
	if (!a || a->base != p || a->host != host || a->dev != c->dev) return 1;
	c->used -= a->size;
	*a = allocs[--nalloc];
	free((void *)(uintptr_t)p);
	stats[OBJECTS]--;
	return 0;
}
R cuMemGetInfo_v2(size_t *f, size_t *t) { LOCK; CTX_OR_OUT; *f = LIMIT - c->used; *t = LIMIT; OUT(0); }
R cuMemAlloc_v2(P *p, size_t n) { LOCK; CTX_OR_OUT; OUT(alloc(c, p, n, 0)); }
R cuMemFree_v2(P p) { LOCK; CTX_OR_OUT; OUT(release(c, p, 0)); }
R cuMemHostAlloc(void **h, size_t n, unsigned f) {
	LOCK;
	CTX_OR_OUT;
	if (f != 3) OUT(1);
	P p;
	r = alloc(c, &p, n, 1);
	if (!r) *h = (void *)(uintptr_t)p;
	OUT(r);
}
R cuMemHostGetDevicePointer_v2(P *p, void *h, unsigned f) { (void)f; *p = (P)(uintptr_t)h; return 0; }
R cuMemFreeHost(void *h) { LOCK; CTX_OR_OUT; OUT(release(c, (P)(uintptr_t)h, 1)); }
R cuPointerGetAttributes(unsigned n, int *attrs, void **data, P p) {
	LOCK;
	CTX_OR_OUT;
	alloc_t *a = find(p), none = {0, 0, 0, 0};
	int known = a != NULL;
	if (!a) a = &none;
	for (unsigned i = 0; i < n; i++) switch (attrs[i]) {
		case 2: *(int *)data[i] = !known ? 0 : a->host ? 1 : 2; break;
		case 9: *(int *)data[i] = a->dev; break;
		case 11: *(P *)data[i] = a->base; break;
		case 12: *(size_t *)data[i] = 0; if (a->host) *(size_t *)data[i] = a->size; break;
		default: OUT(1);
	}
	OUT(0);
}
R cuMemGetAddressRange_v2(P *b, size_t *n, P p) {
	LOCK;
	CTX_OR_OUT;
	alloc_t *a = find(p);
	if (!a) OUT(1);
	*b = a->base;
	*n = a->size;
	OUT(0);
}

// work starts an operation on a stream: the context must be the stream's.
#define WORK LOCK; CTX_OR_OUT; CHECK(s, STREAM, stream_t)
R cuMemsetD8Async(P p, unsigned char v, size_t n, H s) { WORK; memset((void *)(uintptr_t)p, v, n); OUT(0); }
R cuMemcpyAsync(P d, P f, size_t n, H s) { WORK; memmove((void *)(uintptr_t)d, (void *)(uintptr_t)f, n); OUT(0); }
R cuMemcpyHtoDAsync_v2(P d, const void *f, size_t n, H s) { WORK; memcpy((void *)(uintptr_t)d, f, n); OUT(0); }
R cuMemcpyDtoHAsync_v2(void *d, P f, size_t n, H s) { WORK; memcpy(d, (void *)(uintptr_t)f, n); OUT(0); }
R cuMemcpyPeerAsync(P d, H dc, P f, H fc, size_t n, H s) {
	WORK;
	alloc_t *ad = find(d), *af = find(f);
	if (!ad || !af || ((ctx_t *)dc)->dev != ad->dev || ((ctx_t *)fc)->dev != af->dev) OUT(1);
	if (o->cap && dc != fc) { o->broken = 1; OUT(900); }
	memmove((void *)(uintptr_t)d, (void *)(uintptr_t)f, n);
	OUT(0);
}

R cuStreamCreate(H *s, unsigned f) { LOCK; CTX_OR_OUT; if (f != 1) OUT(1); NEW(stream_t, STREAM); *s = (H)o; OUT(0); }
R cuStreamDestroy_v2(H s) { WORK; GONE(o); OUT(0); }
R cuStreamQuery(H s) {
	if (!s) { LOCK; CTX_OR_OUT; OUT(0); }
	WORK;
	if (o->cap) { o->broken = 1; OUT(900); }
	OUT(o->busy > now() ? 600 : 0);
}
R cuStreamSynchronize(H s) { WORK; if (o->cap) { o->broken = 1; OUT(900); } OUT(o->busy > now() ? 999 : 0); }
R cuStreamWaitEvent(H s, H e, unsigned f) {
	(void)f;
	WORK;
	event_t *ev = (event_t *)e;
	if (!ev || ev->magic != EVENT) OUT(400);
	if (ctxs[ev->dev].fault) OUT(ctxs[ev->dev].fault);
	if (ev->cap && ev->cap != o && !o->cap) { // o joins the capture of the event's stream
		o->cap = ev->cap->cap;
		ev->cap->unjoined++;
	} else if (ev->cap && ev->cap != o && o->cap == ev->cap->cap) { // and here it joins back
		ev->cap->cap = NULL;
		o->unjoined--;
	} else if (ev->at > o->busy) {
		o->busy = ev->at;
	}
	OUT(0);
}
R cuEventCreate(H *e, unsigned f) { LOCK; CTX_OR_OUT; NEW(event_t, EVENT); o->timing = !(f & 2); *e = (H)o; OUT(0); }
R cuEventDestroy_v2(H s) { LOCK; CTX_OR_OUT; CHECK(s, EVENT, event_t); GONE(o); OUT(0); }
R cuEventRecord(H e, H s) {
	WORK;
	event_t *ev = (event_t *)e;
	if (!ev || ev->magic != EVENT || ev->dev != c->dev) OUT(400);
	ev->cap = o->cap ? o : NULL;
	ev->at = o->busy > now() ? o->busy : now();
	OUT(0);
}
R cuEventQuery(H s) { LOCK; CTX_OR_OUT; CHECK(s, EVENT, event_t); if (o->cap) { o->cap->broken = 1; OUT(907); } OUT(o->at > now() ? 600 : 0); }
R cuEventElapsedTime(float *ms, H a, H b) {
	LOCK;
	CTX_OR_OUT;
	event_t *x = (event_t *)a, *y = (event_t *)b;
	if (!x->timing || !y->timing || !x->at || !y->at) OUT(400);
	if (x->at > now() || y->at > now()) OUT(600);
	*ms = (y->at - x->at) / 1e6f;
	OUT(0);
}

// scan reads the entries of a PTX text, as far as the tests need: scalar parameters at natural alignment.
static void scan(mod_t *m) {
	for (char *p = m->text; (p = strstr(p, ".entry ")) && m->nf < 16;) {
		func_t *f = &m->f[m->nf++];
		f->magic = FUNC;
		f->mod = m;
		f->dynamic = 49152;
		p += 7;
		int n = strcspn(p, " (\n");
		snprintf(f->name, sizeof f->name, "%.*s", n, p);
		char *end = strchr(p, ')'), *q = p;
		for (int off = 0; end && (q = strstr(q, ".param .")) && q < end && f->nparam < 16; q++) {
			int size = atoi(q + 9) / 8;
			off = (off + size - 1) / size * size;
			f->off[f->nparam] = off;
			f->size[f->nparam++] = size;
			off += size;
		}
	}
}
R cuModuleLoadDataEx(H *h, const void *ptx, unsigned n, int *opts, void **vals) {
	LOCK;
	CTX_OR_OUT;
	char *log = NULL;
	size_t len = 0;
	for (unsigned i = 0; i < n; i++) {
		if (opts[i] == 5) log = vals[i];
		if (opts[i] == 6) len = (size_t)vals[i];
	}
	const char *text = ptx, *bad = strstr(text, "BAD"), *code = strstr(text, "// ANSWER ");
	if (bad) {
		int line = 1;
		for (const char *p = text; p < bad; p++) line += *p == '\n';
		if (log) snprintf(log, len, "ptxas application ptx input, line %d; error   : Parsing error near 'BAD': syntax error\n", line);
		OUT(218);
	}
	if (strstr(text, ".version 98") && log) snprintf(log, len, "ptxas fatal   : Unsupported .version 98.0; current version is '8.7'\n");
	if (code) OUT(atoi(code + 10));
	NEW(mod_t, MOD);
	o->text = strdup(text);
	scan(o);
	*h = (H)o;
	OUT(0);
}
R cuModuleUnload(H s) { LOCK; CTX_OR_OUT; CHECK(s, MOD, mod_t); GONE(o); OUT(0); }
R cuModuleGetFunction(H *f, H s, const char *name) {
	LOCK;
	CTX_OR_OUT;
	CHECK(s, MOD, mod_t);
	for (int i = 0; i < o->nf; i++) if (!strcmp(o->f[i].name, name)) { *f = (H)&o->f[i]; OUT(0); }
	OUT(500);
}
R cuFuncLoad(H f) { (void)f; LOCK; stats[FUNC_LOAD]++; OUT(0); }
R cuFuncGetParamInfo(H h, size_t i, size_t *off, size_t *size) {
	func_t *f = (func_t *)h;
	if (i >= (size_t)f->nparam) return 1;
	*off = f->off[i];
	*size = f->size[i];
	return 0;
}
R cuFuncGetAttribute(int *v, int a, H h) {
	func_t *f = (func_t *)h;
	LOCK;
	CTX_OR_OUT;
	switch (a) {
	case 0: *v = 512; OUT(0);
	case 1: *v = 1024; OUT(0);
	case 3: *v = 8; OUT(0);
	case 4: *v = 40; OUT(0);
	case 8: *v = f->dynamic; OUT(0);
	}
	OUT(1);
}
R cuFuncSetAttribute(H h, int a, int v) {
	LOCK;
	CTX_OR_OUT;
	if (a != 8 || v > 232448 - 1024) OUT(1);
	((func_t *)h)->dynamic = v;
	stats[DYNAMIC]++;
	OUT(0);
}
R cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, H f, int threads, size_t shared) {
	LOCK;
	CTX_OR_OUT;
	if ((int)shared > ((func_t *)f)->dynamic) OUT(1);
	*n = 2048 / threads;
	if (shared && *n > (int)(233472 / (shared + 2048))) *n = 233472 / (shared + 2048);
	OUT(0);
}

static void execute(ctx_t *c, stream_t *s, func_t *f, const unsigned char *args) {
	uint64_t a = 0;
	uint32_t v = 0;
	if (!strcmp(f->name, "store")) {
		memcpy(&a, args, 8);
		memcpy(&v, args + 8, 4);
		*(uint32_t *)(uintptr_t)a = v;
	} else if (!strcmp(f->name, "busy")) {
		memcpy(&v, args, 4);
		s->busy = now() + (int64_t)v * 1000000;
	} else if (!strcmp(f->name, "fault")) {
		memcpy(&v, args, 4);
		c->fault = v;
	} else if (!strcmp(f->name, "stats")) {
		memcpy(&a, args, 8);
		memcpy((void *)(uintptr_t)a, stats, sizeof stats);
	}
}
static R launch(H h, unsigned blocks, unsigned threads, unsigned shared, H s, void **params, void **extra) {
	LOCK;
	CTX_OR_OUT;
	CHECK(s, STREAM, stream_t);
	func_t *f = (func_t *)h;
	if (!f || f->magic != FUNC || f->mod->magic != MOD) OUT(400);
	if (f->mod->dev != c->dev) { stats[WRONG_CTX]++; OUT(400); }
	if (params || !blocks || !threads || (int)shared > f->dynamic) OUT(1);
	unsigned char args[256] = {0};
	size_t n = 0;
	if (extra) {
		if (extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4]) OUT(1);
		n = *(size_t *)extra[3];
		memcpy(args, extra[1], n < 256 ? n : 256);
	}
	stats[ARG_BYTES] = n;
	stats[LAUNCH]++;
	if (o->cap) {
		if (o->cap->n == 256) OUT(2);
		node_t *nd = &o->cap->nodes[o->cap->n++];
		nd->f = f;
		memcpy(nd->args, args, 256);
	} else {
		execute(c, o, f, args);
	}
	OUT(0);
}
R cuLaunchKernel(H f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned sh, H s, void **p, void **e) {
	return launch(f, gx * gy * gz, bx * by * bz, sh, s, p, e);
}
struct attr { int id; char pad[4]; int value[16]; };
struct config { unsigned gx, gy, gz, bx, by, bz, sh; H s; struct attr *attrs; unsigned n; };
R cuLaunchKernelEx(const struct config *k, H f, void **p, void **e) {
	LOCK;
	stats[LAUNCH_EX]++;
	for (unsigned i = 0; i < k->n; i++) stats[PDL] += k->attrs[i].id == 6 && k->attrs[i].value[0] == 1;
	pthread_mutex_unlock(&mu);
	return launch(f, k->gx * k->gy * k->gz, k->bx * k->by * k->bz, k->sh, k->s, p, e);
}

R cuStreamBeginCapture_v2(H s, int mode) {
	WORK;
	if (mode != 2) OUT(1);
	if (o->cap) OUT(401);
	o->cap = calloc(1, sizeof *o->cap);
	o->cap->dev = c->dev;
	o->unjoined = o->broken = 0;
	OUT(0);
}
R cuStreamIsCapturing(H s, int *status) {
	WORK;
	*status = o->cap ? 1 + o->broken : 0;
	OUT(0);
}
R cuStreamGetCtx(H s, H *x) {
	LOCK;
	stream_t *o = (stream_t *)s;
	if (!o || o->magic != STREAM) OUT(400);
	*x = (H)&ctxs[o->dev];
	OUT(0);
}
R cuStreamEndCapture(H s, H *g) {
	WORK;
	graph_t *cap = o->cap;
	*g = 0;
	if (!cap) OUT(401);
	o->cap = NULL;
	if (o->broken) OUT(901);
	if (o->unjoined) OUT(904);
	cap->magic = GRAPH;
	stats[OBJECTS]++;
	*g = (H)cap;
	OUT(0);
}
R cuGraphInstantiateWithFlags(H *x, H s, unsigned long long f) {
	(void)f;
	LOCK;
	CTX_OR_OUT;
	CHECK(s, GRAPH, graph_t);
	graph_t *e = malloc(sizeof *e);
	*e = *o;
	e->magic = EXEC;
	stats[OBJECTS]++;
	*x = (H)e;
	OUT(0);
}
R cuGraphLaunch(H x, H s) {
	WORK;
	graph_t *g = (graph_t *)x;
	if (!g || g->magic != EXEC) OUT(400);
	for (int i = 0; i < g->n; i++) execute(c, o, g->nodes[i].f, g->nodes[i].args);
	OUT(0);
}
R cuGraphDestroy(H s) { LOCK; CTX_OR_OUT; CHECK(s, GRAPH, graph_t); GONE(o); OUT(0); }
R cuGraphExecDestroy(H s) { LOCK; CTX_OR_OUT; CHECK(s, EXEC, graph_t); GONE(o); OUT(0); }
