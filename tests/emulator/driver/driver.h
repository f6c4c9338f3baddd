// The state of the emulated driver, which one lock protects, and the access of its functions to it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "basics.h"
#include "memory.h"
#include "work.h"

// The primary context of a device. There are no others.
struct Context {
    int device;
    // The number of retains minus the number of releases. At 0, no one may use the context.
    u64 num_retained;
    size_t used_bytes;
    // The devices whose memory this context may use.
    std::set<int> peers;
    // The legacy default stream and the default stream of a thread, created at their first use.
    // They wait for no other stream, and all threads share the latter. Real drivers guarantee more.
    std::shared_ptr<Stream> defaults[2];
};

struct Event {
    Context *context;
    bool has_timing;
    // The end of the work in the stream when the event was last recorded.
    Mark recorded;
    bool was_recorded;
    // The time when that work was complete, in milliseconds from an arbitrary start.
    std::shared_ptr<double> time;
};

typedef void Kernel(const void *args, u32 grid, u32 order);

struct Module {
    Context *context;
    // The kernels, with the size of their argument in bytes.
    std::map<std::string, size_t> entries;
};

struct Function {
    // The handle of its module.
    const void *module;
    Context *context;
    std::string name;
    size_t num_bytes;
    Kernel *kernel;
};

// Objects by handle. Handles are never reused, so a stale handle is detected.
template <class T> class Handles {
  public:
    T *add(std::shared_ptr<T> thing) {
        T *handle = (T *)(next += 16);
        things[handle] = std::move(thing);
        return handle;
    }
    // Returns null if there is no such object.
    std::shared_ptr<T> find(const void *handle) const {
        auto found = things.find(handle);
        return found == things.end() ? nullptr : found->second;
    }
    void remove(const void *handle) { things.erase(handle); }
    template <class Test> bool any(Test test) const {
        for (const auto &entry : things)
            if (test(*entry.second)) return true;
        return false;
    }
    template <class Test> void remove_if(Test test) {
        for (auto next = things.begin(); next != things.end();)
            next = test(*next->second) ? things.erase(next) : std::next(next);
    }

  private:
    std::map<const void *, std::shared_ptr<T>> things;
    uintptr_t next = 0x10000;
};

// The state that a function requires.
enum class Needs { NOTHING, DRIVER, CONTEXT };

class Driver {
  public:
    // Returns the driver, which lives as long as the process.
    static Driver &get();

    // Begins every function: returns requested errors, and may run some queued work at random.
    Result enter(const char *function, Needs needs);
    // Makes a function fail. `what` is its name, `:`, the number of calls that succeed before, `+`
    // if all later calls fail, too, and `=` with the number of an error.
    void fail(const char *what);
    // Runs work until the mark is reached. Releases the lock from time to time.
    void wait_for(const Mark &mark);
    void wait_for(const Context *context);
    // Returns null if the handle is invalid.
    Context *context_of(const void *handle);
    // Returns null if the handle is invalid. 1 and 2 are the default streams of this thread's
    // context. 0 is invalid, because in a real driver it may be either of them.
    std::shared_ptr<Stream> stream(Stream *handle);

    std::mutex mutex;
    bool is_initialized = false;
    int num_devices;
    // The compute capability of all devices. 90 is 9.0.
    int capability;
    // The newest version of PTX.
    double newest_ptx;
    size_t bytes_per_device;
    bool has_peers;
    std::vector<Context> contexts;
    Memory memory;
    Queue queue;
    Handles<Stream> streams;
    Handles<Event> events;
    Handles<Module> modules;
    Handles<Function> functions;
    // The bytes that were copied from the host to devices, and from devices to the host.
    u64 bytes_in = 0, bytes_out = 0;

  private:
    Driver();
    void work_by_chance();
    // Returns the error that the next call of a function must return, or success.
    Result failure_of(const char *function);

    struct Failure {
        u64 num_calls;
        bool is_lasting;
        Result result;
    };
    std::map<std::string, Failure> failures;
    u32 mood = 0, mood_calls = 0;
};

// The context of this thread, or null.
extern thread_local Context *current;

// Runs the body of a function, which receives the driver.
template <class Body> Result call(const char *function, Needs needs, Body body) {
    Driver &driver = Driver::get();
    std::lock_guard<std::mutex> lock(driver.mutex);
    Result result = driver.enter(function, needs);
    return result == CUDA_SUCCESS ? body(driver) : result;
}
