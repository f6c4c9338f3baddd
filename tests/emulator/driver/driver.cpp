#include "driver.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

Chance chance;
thread_local Context *current;

void Chance::seed(u64 number) {
    first = number;
    // Mixes the number, because small numbers have few bits and 0 would stay 0.
    state = (number + 1) * 0x9e3779b97f4a7c15u;
    state = (state ^ state >> 29) | 1;
}

u32 Chance::below(u32 end) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (u32)((state >> 32) * end >> 32);
}

void die(const char *format, ...) {
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    fprintf(stderr, "emulated driver: %s (KV_EMULATED_SEED=%llu)\n", text,
            (unsigned long long)chance.first_seed());
    fflush(stderr);
    abort();
}

static u64 number_of(const char *variable, u64 otherwise) {
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, nullptr, 10) : otherwise;
}

Driver::Driver() {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    chance.seed(number_of("KV_EMULATED_SEED", (u64)now.tv_sec * 1000000007u + (u64)now.tv_nsec));
    num_devices = (int)number_of("KV_EMULATED_DEVICES", 2);
    capability = (int)number_of("KV_EMULATED_CAPABILITY", 90);
    newest_ptx = (double)number_of("KV_EMULATED_PTX", 84) / 10;
    bytes_per_device = number_of("KV_EMULATED_MEMORY", (u64)1 << 30);
    has_peers = number_of("KV_EMULATED_PEERS", 1) != 0;
    for (int device = 0; device < num_devices; device++)
        contexts.push_back(Context{device, 0, 0, {}, {}});
    if (const char *what = getenv("KV_EMULATED_FAIL")) fail(what);
}

Driver &Driver::get() {
    // Never destroyed, because threads may outlive the end of `main`.
    static Driver *driver = new Driver;
    return *driver;
}

void Driver::fail(const char *what) {
    const char *colon = strchr(what, ':');
    if (!colon) return failures.clear();
    char *end;
    u64 num_calls = strtoull(colon + 1, &end, 10);
    bool is_lasting = *end == '+';
    if (is_lasting) end++;
    Result result = *end == '=' ? (Result)strtoul(end + 1, nullptr, 10) : CUDA_ERROR_UNKNOWN;
    failures[std::string(what, colon)] = Failure{num_calls, is_lasting, result};
}

Result Driver::failure_of(const char *function) {
    auto found = failures.find(function);
    if (found == failures.end()) return CUDA_SUCCESS;
    if (found->second.num_calls > 0) {
        found->second.num_calls--;
        return CUDA_SUCCESS;
    }
    Result result = found->second.result;
    if (!found->second.is_lasting) failures.erase(found);
    return result;
}

Result Driver::enter(const char *function, Needs needs) {
    Result failure = failure_of(function);
    if (failure != CUDA_SUCCESS) return failure;
    if (needs == Needs::NOTHING) return CUDA_SUCCESS;
    if (!is_initialized) return CUDA_ERROR_NOT_INITIALIZED;
    if (needs == Needs::CONTEXT && !current) return CUDA_ERROR_INVALID_CONTEXT;
    if (needs == Needs::CONTEXT && current->num_retained == 0)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    work_by_chance();
    return CUDA_SUCCESS;
}

// Simulates a GPU that is idle for some calls, slow or fast for others, and instant for some.
void Driver::work_by_chance() {
    if (mood_calls == 0) {
        mood = chance.below(4);
        mood_calls = 1 + chance.below(128);
    }
    mood_calls--;
    u32 most = 0;
    if (mood == 1) most = chance.below(16) == 0;
    if (mood == 2) most = chance.below(4);
    if (mood == 3) most = UINT32_MAX;
    while (most > 0 && queue.do_any()) most--;
}

void Driver::wait_for(const Mark &mark) {
    const Queue::Way ways[] = {Queue::Way::ANY, Queue::Way::ONLY_NEEDED, Queue::Way::OTHERS_FIRST};
    Queue::Way way = ways[chance.below(3)];
    while (!mark.is_reached()) {
        queue.do_one(mark, way);
        mutex.unlock();
        mutex.lock();
    }
}

void Driver::wait_for(const Context *context) {
    if (streams.any([&](const Stream &one) { return one.context == context && one.is_captured; }))
        die("a wait for all work of a device invalidates the graph that is being captured");
    for (const Mark &mark : queue.ends_of(context)) wait_for(mark);
}

Context *Driver::context_of(const void *handle) {
    for (Context &context : contexts)
        if (&context == handle) return &context;
    return nullptr;
}

std::shared_ptr<Stream> Driver::stream(Stream *handle) {
    uintptr_t number = (uintptr_t)handle;
    if (number != 1 && number != 2) return streams.find(handle);
    auto &stream = current->defaults[number - 1];
    if (!stream) stream = std::make_shared<Stream>(Stream{current, {}, 0, false});
    return stream;
}

// Sets the seed, for tests that try many seeds in one process.
extern "C" void kv_emulated_seed(u64 number) {
    std::lock_guard<std::mutex> lock(Driver::get().mutex);
    chance.seed(number);
}

// Makes calls fail, in the format of KV_EMULATED_FAIL. Without a colon, ends all failures.
extern "C" void kv_emulated_fail(const char *what) {
    Driver &driver = Driver::get();
    std::lock_guard<std::mutex> lock(driver.mutex);
    driver.fail(what);
}

// Returns the bytes that were copied from the host to devices, or from devices to the host.
extern "C" u64 kv_emulated_copied(int is_out) {
    Driver &driver = Driver::get();
    std::lock_guard<std::mutex> lock(driver.mutex);
    return is_out ? driver.bytes_out : driver.bytes_in;
}

__attribute__((destructor)) static void check_at_exit() {
    Driver &driver = Driver::get();
    std::lock_guard<std::mutex> lock(driver.mutex);
    driver.memory.check_all("exit");
}
