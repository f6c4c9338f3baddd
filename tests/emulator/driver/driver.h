// The state of the emulated driver, behind one lock, and how its functions get at it.
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

// The primary one of a device; there are no others.
struct Context {
    int device;
    // How often it was retained and not released; nobody may use it when that is 0.
    u64 num_retained;
    size_t used_bytes;
    // The devices whose memory it may use.
    std::set<int> peers;
    // Its legacy default stream and that of a thread, made when somebody uses them. They wait for no other stream, and
    // all threads share the latter: real ones promise more.
    std::shared_ptr<Stream> defaults[2];
};

struct Event {
    Context *context;
    bool has_timing;
    // The end of what was in the stream when it was recorded last.
    Mark recorded;
    bool was_recorded;
    // When that was reached, in milliseconds since some time.
    std::shared_ptr<double> time;
};

typedef void Kernel(const void *args, u32 grid, u32 order);

struct Module {
    Context *context;
    // The kernels, and the size of their argument in bytes.
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

// Things by names that are never used again, so that one which is gone is found out.
template <class T> class Handles {
  public:
    T *add(std::shared_ptr<T> thing) {
        T *handle = (T *)(next += 16);
        things[handle] = std::move(thing);
        return handle;
    }
    // Null if there is none.
    std::shared_ptr<T> find(const void *handle) const {
        auto found = things.find(handle);
        return found == things.end() ? nullptr : found->second;
    }
    void remove(const void *handle) { things.erase(handle); }
    template <class Test> void remove_if(Test test) {
        for (auto next = things.begin(); next != things.end();)
            next = test(*next->second) ? things.erase(next) : std::next(next);
    }

  private:
    std::map<const void *, std::shared_ptr<T>> things;
    uintptr_t next = 0x10000;
};

// What a function needs before it does anything.
enum class Needs { NOTHING, DRIVER, CONTEXT };

class Driver {
  public:
    // There is one, for as long as the process.
    static Driver &get();

    // What every function does first: errors that somebody asked for, and perhaps some work by chance.
    Result enter(const char *function, Needs needs);
    // Lets a function fail: its name, `:`, how many calls of it succeed before, and `+` if later ones fail too.
    void fail(const char *what);
    // Work is done until the mark is reached. Other threads are let in between.
    void wait_for(const Mark &mark);
    void wait_for(const Context *context);
    // Null if it is none.
    Context *context_of(const void *handle);
    // Null if it is none; 1 and 2 are the default streams of this thread's context. 0, which may be either of them, is not
    // there.
    std::shared_ptr<Stream> stream(Stream *handle);

    std::mutex mutex;
    bool is_initialized = false;
    int num_devices;
    size_t bytes_per_device;
    bool has_peers;
    std::vector<Context> contexts;
    Memory memory;
    Queue queue;
    Handles<Stream> streams;
    Handles<Event> events;
    Handles<Module> modules;
    Handles<Function> functions;
    // What copies between host and devices have moved: there, and back.
    u64 bytes_in = 0, bytes_out = 0;

  private:
    Driver();
    void work_by_chance();
    bool is_to_fail(const char *function);

    struct Failure {
        u64 num_calls;
        bool is_lasting;
    };
    std::map<std::string, Failure> failures;
    u32 mood = 0, mood_calls = 0;
};

// The context of this thread; null if it has none.
extern thread_local Context *current;

// The body of a function, given the driver.
template <class Body> Result call(const char *function, Needs needs, Body body) {
    Driver &driver = Driver::get();
    std::lock_guard<std::mutex> lock(driver.mutex);
    Result result = driver.enter(function, needs);
    return result == CUDA_SUCCESS ? body(driver) : result;
}
