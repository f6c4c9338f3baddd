// A driver that does nothing. Every call succeeds at once and is counted, so programs that use it
// take only the time of the host. Memory of its one device has addresses but no bytes, and copies
// do not move any, so results are meaningless.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

typedef uint32_t u32;
typedef uint64_t u64;
typedef int Result;

static const Result SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_READY = 600;

// Everything that is counted: the driver's functions, and bytes.
#define COUNTED(each)                                                                              \
    each(cuInit) each(cuDriverGetVersion) each(cuGetErrorName) each(cuDeviceGetCount)              \
    each(cuDeviceGet) each(cuDeviceGetName) each(cuDeviceTotalMem_v2) each(cuDeviceGetAttribute)   \
    each(cuDeviceCanAccessPeer) each(cuDevicePrimaryCtxRetain) each(cuDevicePrimaryCtxRelease_v2)  \
    each(cuCtxGetCurrent) each(cuCtxSetCurrent) each(cuCtxSynchronize)                             \
    each(cuCtxEnablePeerAccess) each(cuStreamCreate) each(cuStreamDestroy_v2)                      \
    each(cuStreamSynchronize) each(cuStreamWaitEvent) each(cuStreamIsCapturing)                    \
    each(cuEventCreate) each(cuEventDestroy_v2) each(cuEventRecord) each(cuEventQuery)             \
    each(cuEventSynchronize) each(cuMemAlloc_v2) each(cuMemFree_v2) each(cuMemAllocAsync)          \
    each(cuMemFreeAsync) each(cuDeviceGetDefaultMemPool) each(cuMemPoolSetAccess)                  \
    each(cuMemHostAlloc) each(cuMemFreeHost) each(cuMemcpyHtoDAsync_v2)                            \
    each(cuMemcpyDtoHAsync_v2) each(cuMemcpyDtoDAsync_v2) each(cuMemcpyPeerAsync)                  \
    each(cuModuleLoadData) each(cuModuleLoadDataEx) each(cuModuleUnload)                           \
    each(cuModuleGetFunction) each(cuLaunchKernel) each(cuPointerGetAttribute) each(bytes_in)      \
    each(bytes_out) each(bytes_pinned) each(bytes_allocated)

enum Counted {
#define NUMBER(name) AT_##name,
    COUNTED(NUMBER)
#undef NUMBER
    NUM_COUNTED
};

static const char *const NAMES[] = {
#define NAME(name) #name,
    COUNTED(NAME)
#undef NAME
};

static std::atomic<u64> counts[NUM_COUNTED];

static u64 add(Counted what, u64 number) {
    return counts[what].fetch_add(number, std::memory_order_relaxed);
}

// Objects are numbers, because nothing is ever done with them. Addresses are aligned as a driver
// aligns them.
static std::atomic<u64> next_object{0x10000}, next_address{(u64)0x7f10 << 32};

template <class T> static Result make(T **object) {
    *object = (T *)next_object.fetch_add(16);
    return SUCCESS;
}

// By default, all work is complete when it is enqueued. In the lazy mode, work is complete only
// after a wait. Numbers the work that was enqueued, and has the number of the last complete work.
static std::atomic<bool> is_lazy{false};
static std::atomic<u64> enqueued{0}, complete{0};

static void complete_until(u64 number) {
    u64 before = complete.load();
    while (before < number && !complete.compare_exchange_weak(before, number)) {
    }
}

struct Event {
    std::atomic<u64> recorded{0};
};

// The context that a thread has made current. There is one device, so there is one other value.
static thread_local void *current;
static int the_context;

#define CALL(name, parameters, body)                                                               \
    extern "C" Result name parameters {                                                            \
        add(AT_##name, 1);                                                                         \
        body return SUCCESS;                                                                       \
    }

CALL(cuInit, (u32), {})
CALL(cuDriverGetVersion, (int *version), { *version = 12040; })
CALL(cuGetErrorName, (Result, const char **name), { *name = "an error of the null driver"; })
CALL(cuDeviceGetCount, (int *count), { *count = 1; })
CALL(cuDeviceGet, (int *device, int number), {
    if (number != 0) return INVALID_VALUE;
    *device = 0;
})
CALL(cuDeviceGetName, (char *name, int size, int), { snprintf(name, (size_t)size, "null"); })
CALL(cuDeviceTotalMem_v2, (size_t *bytes, int), { *bytes = (size_t)141 << 30; })
// The attributes of an H200: multiprocessors, unified addressing, compute capability.
CALL(cuDeviceGetAttribute, (int *value, int attribute, int), {
    *value = attribute == 16 ? 132 : attribute == 41 ? 1 : attribute == 75 ? 9 : 0;
})
CALL(cuDeviceCanAccessPeer, (int *can, int, int), { *can = 0; })
CALL(cuDevicePrimaryCtxRetain, (void **context, int), { *context = &the_context; })
CALL(cuDevicePrimaryCtxRelease_v2, (int), {})
CALL(cuCtxGetCurrent, (void **context), { *context = current; })
CALL(cuCtxSetCurrent, (void *context), { current = context; })
CALL(cuCtxSynchronize, (), { complete_until(enqueued.load()); })
CALL(cuCtxEnablePeerAccess, (void *, u32), {})
CALL(cuStreamCreate, (void **stream, u32), { make(stream); })
CALL(cuStreamDestroy_v2, (void *), {})
CALL(cuStreamSynchronize, (void *), { complete_until(enqueued.load()); })
CALL(cuStreamWaitEvent, (void *, Event *, u32), {})
CALL(cuStreamIsCapturing, (void *, int *status), { *status = 0; })
CALL(cuEventCreate, (Event * *event, u32), { *event = new Event; })
CALL(cuEventDestroy_v2, (Event * event), { delete event; })
CALL(cuEventRecord, (Event * event, void *), { event->recorded = ++enqueued; })
CALL(cuEventQuery, (Event * event), {
    if (is_lazy && event->recorded > complete) return NOT_READY;
})
CALL(cuEventSynchronize, (Event * event), { complete_until(event->recorded); })
CALL(cuMemAlloc_v2, (u64 * address, size_t size), {
    if (size == 0) return INVALID_VALUE;
    *address = next_address.fetch_add((size + 511) / 512 * 512);
    add(AT_bytes_allocated, size);
})
CALL(cuMemFree_v2, (u64), {})
CALL(cuMemAllocAsync, (u64 * address, size_t size, void *), {
    *address = next_address.fetch_add((size + 511) / 512 * 512);
    add(AT_bytes_allocated, size);
})
CALL(cuMemFreeAsync, (u64, void *), {})
CALL(cuDeviceGetDefaultMemPool, (void **pool, int), { make(pool); })
CALL(cuMemPoolSetAccess, (void *, const void *, size_t), {})
// The host writes to pinned memory, so it exists.
CALL(cuMemHostAlloc, (void **address, size_t size, u32), {
    *address = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    if (!*address) return OUT_OF_MEMORY;
    add(AT_bytes_pinned, size);
})
CALL(cuMemFreeHost, (void *address), { free(address); })
CALL(cuMemcpyHtoDAsync_v2, (u64, const void *, size_t size, void *), { add(AT_bytes_in, size); })
CALL(cuMemcpyDtoHAsync_v2, (void *, u64, size_t size, void *), { add(AT_bytes_out, size); })
CALL(cuMemcpyDtoDAsync_v2, (u64, u64, size_t, void *), {})
CALL(cuMemcpyPeerAsync, (u64, void *, u64, void *, size_t, void *), {})
CALL(cuModuleLoadData, (void **module, const void *), { make(module); })
CALL(cuModuleLoadDataEx, (void **module, const void *, u32, int *, void **), { make(module); })
CALL(cuModuleUnload, (void *), {})
CALL(cuModuleGetFunction, (void **function, void *, const char *), { make(function); })
CALL(cuLaunchKernel, (void *, u32, u32, u32, u32, u32, u32, u32, void *, void **, void **), {})
CALL(cuPointerGetAttribute, (void *value, int, u64), { *(int *)value = 0; })

// Returns the count of this name, or UINT64_MAX if nothing of this name is counted.
extern "C" u64 kv_null_count(const char *name) {
    for (size_t at = 0; at < std::size(NAMES); at++)
        if (strcmp(NAMES[at], name) == 0) return counts[at];
    return UINT64_MAX;
}

// Returns the name of a counted function, or null after the last one.
extern "C" const char *kv_null_name(size_t at) {
    return at < std::size(NAMES) ? NAMES[at] : nullptr;
}

// In the lazy mode, work is complete only after a wait.
extern "C" void kv_null_be_lazy(int lazy) { is_lazy = lazy != 0; }

// With KV_NULL_COUNTS, prints all counts when the process ends.
__attribute__((destructor)) static void print_counts() {
    if (!getenv("KV_NULL_COUNTS")) return;
    for (size_t at = 0; at < std::size(NAMES); at++)
        if (counts[at]) fprintf(stderr, "%-30s %llu\n", NAMES[at], (unsigned long long)counts[at]);
}
