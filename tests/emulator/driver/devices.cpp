// The driver's functions for devices and contexts.
#include <cstdio>

#include "driver.h"

static const int VERSION = 12040;

// Returns whether a device has this number.
static bool is_device(const Driver &driver, int device) {
    return device >= 0 && device < driver.num_devices;
}

extern "C" {

Result cuDriverGetVersion(int *version) {
    return call(__func__, Needs::NOTHING, [&](Driver &) {
        if (!version) return CUDA_ERROR_INVALID_VALUE;
        *version = VERSION;
        return CUDA_SUCCESS;
    });
}

Result cuInit(u32 flags) {
    return call(__func__, Needs::NOTHING, [&](Driver &driver) {
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (driver.num_devices == 0) return CUDA_ERROR_NO_DEVICE;
        driver.is_initialized = true;
        return CUDA_SUCCESS;
    });
}

static Result text_of(Result result, const char **text, bool is_name) {
    if (!text) return CUDA_ERROR_INVALID_VALUE;
    switch (result) {
#define KV_RESULT(name, value, words)                                                              \
    case name: *text = is_name ? #name : words; return CUDA_SUCCESS;
        KV_RESULTS(KV_RESULT)
#undef KV_RESULT
    }
    *text = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
}

Result cuGetErrorName(Result result, const char **text) { return text_of(result, text, true); }
Result cuGetErrorString(Result result, const char **text) { return text_of(result, text, false); }

Result cuDeviceGetCount(int *count) {
    return call(__func__, Needs::DRIVER, [&](Driver &driver) {
        if (!count) return CUDA_ERROR_INVALID_VALUE;
        *count = driver.num_devices;
        return CUDA_SUCCESS;
    });
}

Result cuDeviceGet(int *device, int ordinal) {
    return call(__func__, Needs::DRIVER, [&](Driver &driver) {
        if (!device) return CUDA_ERROR_INVALID_VALUE;
        if (!is_device(driver, ordinal)) return CUDA_ERROR_INVALID_DEVICE;
        *device = ordinal;
        return CUDA_SUCCESS;
    });
}

Result cuDeviceGetName(char *name, int len, int device) {
    return call(__func__, Needs::DRIVER, [&](Driver &driver) {
        if (!name || len <= 0) return CUDA_ERROR_INVALID_VALUE;
        if (!is_device(driver, device)) return CUDA_ERROR_INVALID_DEVICE;
        snprintf(name, (size_t)len, "Emulated GPU %d", device);
        return CUDA_SUCCESS;
    });
}

Result cuDeviceTotalMem_v2(size_t *bytes, int device) {
    return call(__func__, Needs::DRIVER, [&](Driver &driver) {
        if (!bytes) return CUDA_ERROR_INVALID_VALUE;
        if (!is_device(driver, device)) return CUDA_ERROR_INVALID_DEVICE;
        *bytes = driver.bytes_per_device;
        return CUDA_SUCCESS;
    });
}

Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    return call(__func__, Needs::DRIVER, [&](Driver &driver) {
        if (!value || attribute <= 0) return CUDA_ERROR_INVALID_VALUE;
        if (!is_device(driver, device)) return CUDA_ERROR_INVALID_DEVICE;
        *value = 0;
        if (attribute == 16) *value = 4;  // multiprocessors
        if (attribute == 41) *value = 1;  // unified addressing
        if (attribute == 75) *value = driver.capability / 10;
        if (attribute == 76) *value = driver.capability % 10;
        return CUDA_SUCCESS;
    });
}

Result cuDeviceCanAccessPeer(int *can, int device, int peer) {
    return call(__func__, Needs::DRIVER, [&](Driver &driver) {
        if (!can) return CUDA_ERROR_INVALID_VALUE;
        if (!is_device(driver, device) || !is_device(driver, peer))
            return CUDA_ERROR_INVALID_DEVICE;
        *can = driver.has_peers && device != peer;
        return CUDA_SUCCESS;
    });
}

Result cuCtxEnablePeerAccess(Context *peer, u32 flags) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
        if (!driver.context_of(peer) || peer == current || peer->num_retained == 0)
            return CUDA_ERROR_INVALID_CONTEXT;
        if (!driver.has_peers) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
        if (!current->peers.insert(peer->device).second)
            return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
        return CUDA_SUCCESS;
    });
}

Result cuDevicePrimaryCtxRetain(Context **context, int device) {
    return call(__func__, Needs::DRIVER, [&](Driver &driver) {
        if (!context) return CUDA_ERROR_INVALID_VALUE;
        if (!is_device(driver, device)) return CUDA_ERROR_INVALID_DEVICE;
        *context = &driver.contexts[(size_t)device];
        (*context)->num_retained++;
        return CUDA_SUCCESS;
    });
}

// The last release destroys the contents of the context.
Result cuDevicePrimaryCtxRelease_v2(int device) {
    return call(__func__, Needs::DRIVER, [&](Driver &driver) {
        if (!is_device(driver, device)) return CUDA_ERROR_INVALID_DEVICE;
        Context *context = &driver.contexts[(size_t)device];
        if (context->num_retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
        if (--context->num_retained > 0) return CUDA_SUCCESS;
        driver.wait_for(context);
        auto is_in_it = [&](const auto &thing) { return thing.context == context; };
        driver.streams.remove_if(is_in_it);
        driver.events.remove_if(is_in_it);
        driver.modules.remove_if(is_in_it);
        driver.functions.remove_if(is_in_it);
        driver.memory.free_all(device);
        context->used_bytes = 0;
        context->peers.clear();
        for (auto &stream : context->defaults) stream = nullptr;
        return CUDA_SUCCESS;
    });
}

Result cuCtxSetCurrent(Context *context) {
    return call(__func__, Needs::DRIVER, [&](Driver &driver) {
        if (context && !driver.context_of(context)) return CUDA_ERROR_INVALID_CONTEXT;
        if (context && context->num_retained == 0) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        current = context;
        return CUDA_SUCCESS;
    });
}

Result cuCtxGetCurrent(Context **context) {
    return call(__func__, Needs::DRIVER, [&](Driver &) {
        if (!context) return CUDA_ERROR_INVALID_VALUE;
        *context = current;
        return CUDA_SUCCESS;
    });
}

Result cuCtxGetDevice(int *device) {
    return call(__func__, Needs::CONTEXT, [&](Driver &) {
        if (!device) return CUDA_ERROR_INVALID_VALUE;
        *device = current->device;
        return CUDA_SUCCESS;
    });
}

Result cuCtxSynchronize() {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        driver.wait_for(current);
        return CUDA_SUCCESS;
    });
}
}
