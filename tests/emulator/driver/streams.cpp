// The driver's functions for streams and events.
#include <chrono>
#include <thread>

#include "driver.h"

// Runs some work. Returns whether the mark is then reached.
static Result query(Driver &driver, const Mark &mark) {
    if (!mark.is_reached()) driver.queue.do_any();
    return mark.is_reached() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static double milliseconds() {
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(now).count();
}

static Result create_stream(const char *function, Stream **handle, u32 flags) {
    return call(function, Needs::CONTEXT, [&](Driver &driver) {
        if (!handle || flags > 1) return CUDA_ERROR_INVALID_VALUE;
        *handle = driver.streams.add(std::make_shared<Stream>(Stream{current, {}, 0, false}));
        return CUDA_SUCCESS;
    });
}

extern "C" {

Result cuStreamCreate(Stream **handle, u32 flags) { return create_stream(__func__, handle, flags); }

Result cuStreamCreateWithPriority(Stream **handle, u32 flags, int) {
    return create_stream(__func__, handle, flags);
}

// The remaining work of the stream still runs.
Result cuStreamDestroy_v2(Stream *handle) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        if (!driver.streams.find(handle)) return CUDA_ERROR_INVALID_HANDLE;
        driver.streams.remove(handle);
        return CUDA_SUCCESS;
    });
}

Result cuStreamQuery(Stream *handle) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        auto stream = driver.stream(handle);
        return stream ? query(driver, driver.queue.end_of(stream)) : CUDA_ERROR_INVALID_HANDLE;
    });
}

Result cuStreamSynchronize(Stream *handle) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        auto stream = driver.stream(handle);
        if (!stream) return CUDA_ERROR_INVALID_HANDLE;
        driver.wait_for(driver.queue.end_of(stream));
        return CUDA_SUCCESS;
    });
}

// Calls a function after the earlier work of the stream, in a thread of its own, as a driver does.
Result cuLaunchHostFunc(Stream *handle, void (*function)(void *), void *data) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        auto stream = driver.stream(handle);
        if (!stream) return CUDA_ERROR_INVALID_HANDLE;
        if (!function) return CUDA_ERROR_INVALID_VALUE;
        driver.queue.add(stream, Work{[=] { std::thread(function, data).join(); }, {}});
        return CUDA_SUCCESS;
    });
}

Result cuStreamIsCapturing(Stream *handle, int *status) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        auto stream = driver.stream(handle);
        if (!stream) return CUDA_ERROR_INVALID_HANDLE;
        if (!status) return CUDA_ERROR_INVALID_VALUE;
        *status = stream->is_captured ? 1 : 0;
        return CUDA_SUCCESS;
    });
}

Result cuStreamWaitEvent(Stream *handle, Event *event_handle, u32 flags) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        auto stream = driver.stream(handle);
        auto event = driver.events.find(event_handle);
        if (!stream || !event) return CUDA_ERROR_INVALID_HANDLE;
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        driver.queue.add(stream, Work{[] {}, event->recorded});
        return CUDA_SUCCESS;
    });
}

Result cuEventCreate(Event **handle, u32 flags) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        if (!handle || flags > 3) return CUDA_ERROR_INVALID_VALUE;
        *handle = driver.events.add(
            std::make_shared<Event>(Event{current, !(flags & 2), {}, false, nullptr}));
        return CUDA_SUCCESS;
    });
}

Result cuEventDestroy_v2(Event *handle) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        if (!driver.events.find(handle)) return CUDA_ERROR_INVALID_HANDLE;
        driver.events.remove(handle);
        return CUDA_SUCCESS;
    });
}

// Begins or ends the capture of a stream into a graph, as far as its status is concerned.
Result kv_emulated_capture(Stream *handle, int is_captured) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        auto stream = driver.stream(handle);
        if (!stream) return CUDA_ERROR_INVALID_HANDLE;
        stream->is_captured = is_captured != 0;
        return CUDA_SUCCESS;
    });
}

Result cuEventRecord(Event *handle, Stream *stream_handle) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        auto event = driver.events.find(handle);
        auto stream = driver.stream(stream_handle);
        if (stream && stream->is_captured) die("cuEventRecord: a graph would have the event");
        if (!event || !stream || event->context != stream->context)
            return CUDA_ERROR_INVALID_HANDLE;
        auto time = std::make_shared<double>(0);
        driver.queue.add(stream, Work{[time] { *time = milliseconds(); }, {}});
        event->recorded = driver.queue.end_of(stream);
        event->was_recorded = true;
        event->time = time;
        return CUDA_SUCCESS;
    });
}

Result cuEventQuery(Event *handle) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        auto event = driver.events.find(handle);
        return event ? query(driver, Mark(event->recorded)) : CUDA_ERROR_INVALID_HANDLE;
    });
}

Result cuEventSynchronize(Event *handle) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        auto event = driver.events.find(handle);
        if (!event) return CUDA_ERROR_INVALID_HANDLE;
        // Copies the mark, because other threads may record the event again.
        driver.wait_for(Mark(event->recorded));
        return CUDA_SUCCESS;
    });
}

Result cuEventElapsedTime(float *elapsed, Event *start_handle, Event *end_handle) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        auto start = driver.events.find(start_handle), end = driver.events.find(end_handle);
        if (!elapsed) return CUDA_ERROR_INVALID_VALUE;
        for (const auto &event : {start, end})
            if (!event || !event->has_timing || !event->was_recorded)
                return CUDA_ERROR_INVALID_HANDLE;
        if (start->context != end->context) return CUDA_ERROR_INVALID_HANDLE;
        if (!start->recorded.is_reached() || !end->recorded.is_reached())
            return CUDA_ERROR_NOT_READY;
        *elapsed = (float)(*end->time - *start->time);
        return CUDA_SUCCESS;
    });
}
}
