// The driver's functions that allocate, copy and set memory.
#include <cstring>

#include "driver.h"

// Bytes that a copy reads or writes when it runs. Their block must then still exist.
struct Bytes {
    u8 *address = nullptr;
    size_t size = 0;
    u64 block = 0;

    void insist(const Driver &driver, const char *function) const {
        const Block *found = driver.memory.find(address, size);
        if (!found || found->number != block)
            die("%s: its memory was freed before it was done (%zu bytes)", function, size);
    }
};

// Returns whether a context may use the memory of a place.
static bool may_use(const Context *context, int place) {
    return place == context->device || context->peers.count(place) > 0;
}

// Finds bytes of the context's device or, if `or_peer` is set, of one of its peers.
static bool find_bytes(const Driver &driver, u64 address, size_t size, const Context *context,
                       bool or_peer, Bytes &bytes) {
    bytes.address = (u8 *)address;
    bytes.size = size;
    const Block *block = driver.memory.find(bytes.address, size);
    if (!block || block->place == HOST) return false;
    bytes.block = block->number;
    return or_peer ? may_use(context, block->place) : block->place == context->device;
}

// Finds bytes of the host. Memory that the driver has not allocated is pageable and has no block.
static bool find_host_bytes(const Driver &driver, const void *address, size_t size, Bytes &bytes) {
    bytes.address = (u8 *)const_cast<void *>(address);
    bytes.size = size;
    if (!address) return false;
    const Block *block = driver.memory.find(address, size);
    bytes.block = block ? block->number : 0;
    return block ? block->place == HOST : !driver.memory.touches(address, size);
}

static bool overlap(const Bytes &one, const Bytes &other) {
    return one.address < other.address + other.size && other.address < one.address + one.size;
}

static void add_copy(Driver &driver, const std::shared_ptr<Stream> &stream, const char *function,
                     Bytes to, Bytes from) {
    driver.queue.add(stream, Work{[&driver, function, to, from] {
                                      to.insist(driver, function);
                                      from.insist(driver, function);
                                      memcpy(to.address, from.address, to.size);
                                  },
                                  {}});
}

extern "C" {

Result cuMemAlloc_v2(u64 *address, size_t size) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        if (!address || size == 0) return CUDA_ERROR_INVALID_VALUE;
        if (size > driver.bytes_per_device - current->used_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
        u8 *bytes = driver.memory.allocate(current->device, size);
        if (!bytes) return CUDA_ERROR_OUT_OF_MEMORY;
        current->used_bytes += size;
        *address = (u64)bytes;
        return CUDA_SUCCESS;
    });
}

Result cuMemFree_v2(u64 address) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        if (address == 0) return CUDA_SUCCESS;
        const Block *block = driver.memory.beginning_at((void *)address);
        if (!block || block->place == HOST) return CUDA_ERROR_INVALID_VALUE;
        Context &owner = driver.contexts[(size_t)block->place];
        driver.wait_for(&owner);
        // Other threads may have run meanwhile.
        block = driver.memory.beginning_at((void *)address);
        if (!block) return CUDA_ERROR_INVALID_VALUE;
        owner.used_bytes -= block->size;
        driver.memory.free(block);
        return CUDA_SUCCESS;
    });
}

// The memory exists at once, but is freed after the earlier work of the stream.
Result cuMemAllocAsync(u64 *address, size_t size, Stream *handle) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        auto stream = driver.stream(handle);
        if (!stream || stream->context != current) return CUDA_ERROR_INVALID_HANDLE;
        if (!address || size == 0) return CUDA_ERROR_INVALID_VALUE;
        if (size > driver.bytes_per_device - current->used_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
        u8 *bytes = driver.memory.allocate(current->device, size);
        if (!bytes) return CUDA_ERROR_OUT_OF_MEMORY;
        current->used_bytes += size;
        *address = (u64)bytes;
        return CUDA_SUCCESS;
    });
}

Result cuMemFreeAsync(u64 address, Stream *handle) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        auto stream = driver.stream(handle);
        const Block *block = driver.memory.beginning_at((void *)address);
        if (!stream || stream->context != current) return CUDA_ERROR_INVALID_HANDLE;
        if (!block || block->place == HOST) return CUDA_ERROR_INVALID_VALUE;
        u64 number = block->number;
        driver.queue.add(stream, Work{[&driver, address, number] {
                                          const Block *found =
                                              driver.memory.beginning_at((void *)address);
                                          if (!found || found->number != number)
                                              die("cuMemFreeAsync: memory was freed twice");
                                          driver.contexts[(size_t)found->place].used_bytes -=
                                              found->size;
                                          driver.memory.free(found);
                                      },
                                      {}});
        return CUDA_SUCCESS;
    });
}

// There is one pool for each device. A device can use the memory of a peer's pool with the peer
// access of its context.
Result cuDeviceGetDefaultMemPool(void **pool, int device) {
    return call(__func__, Needs::DRIVER, [&](Driver &driver) {
        if (!pool || device < 0 || device >= driver.num_devices) return CUDA_ERROR_INVALID_VALUE;
        *pool = &driver.contexts[(size_t)device];
        return CUDA_SUCCESS;
    });
}

Result cuMemPoolSetAccess(void *pool, const void *accesses, size_t count) {
    return call(__func__, Needs::DRIVER, [&](Driver &driver) {
        bool is_valid = driver.context_of(pool) && accesses && count > 0 && driver.has_peers;
        return is_valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

Result cuMemGetInfo_v2(size_t *free, size_t *total) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        if (!free || !total) return CUDA_ERROR_INVALID_VALUE;
        *total = driver.bytes_per_device;
        *free = driver.bytes_per_device - current->used_bytes;
        return CUDA_SUCCESS;
    });
}

// Supports only attribute 9, the number of the device.
Result cuPointerGetAttribute(void *value, int attribute, u64 address) {
    return call(__func__, Needs::DRIVER, [&](Driver &driver) {
        const Block *block = driver.memory.find((void *)address, 1);
        if (!value || attribute != 9 || !block || block->place == HOST)
            return CUDA_ERROR_INVALID_VALUE;
        *(int *)value = block->place;
        return CUDA_SUCCESS;
    });
}

Result cuMemHostAlloc(void **address, size_t size, u32 flags) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        if (!address || size == 0 || flags > 7) return CUDA_ERROR_INVALID_VALUE;
        *address = driver.memory.allocate(HOST, size);
        return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    });
}

// Does not wait, although some drivers do.
Result cuMemFreeHost(void *address) {
    return call(__func__, Needs::CONTEXT, [&](Driver &driver) {
        const Block *block = driver.memory.beginning_at(address);
        if (!block || block->place != HOST) return CUDA_ERROR_INVALID_VALUE;
        driver.memory.free(block);
        return CUDA_SUCCESS;
    });
}

Result cuMemcpyHtoDAsync_v2(u64 to_address, const void *from_address, size_t size, Stream *handle) {
    const char *function = __func__;
    return call(function, Needs::CONTEXT, [&](Driver &driver) {
        auto stream = driver.stream(handle);
        if (!stream) return CUDA_ERROR_INVALID_HANDLE;
        if (size == 0) return CUDA_SUCCESS;
        Bytes to, from;
        if (!find_bytes(driver, to_address, size, stream->context, false, to))
            return CUDA_ERROR_INVALID_VALUE;
        if (!find_host_bytes(driver, from_address, size, from)) return CUDA_ERROR_INVALID_VALUE;
        driver.bytes_in += size;
        if (from.block) {
            add_copy(driver, stream, function, to, from);
            return CUDA_SUCCESS;
        }
        std::vector<u8> content(from.address, from.address + size);
        driver.queue.add(stream, Work{[&driver, function, to, content = std::move(content)] {
                                          to.insist(driver, function);
                                          memcpy(to.address, content.data(), to.size);
                                      },
                                      {}});
        return CUDA_SUCCESS;
    });
}

Result cuMemcpyDtoHAsync_v2(void *to_address, u64 from_address, size_t size, Stream *handle) {
    const char *function = __func__;
    return call(function, Needs::CONTEXT, [&](Driver &driver) {
        auto stream = driver.stream(handle);
        if (!stream) return CUDA_ERROR_INVALID_HANDLE;
        if (size == 0) return CUDA_SUCCESS;
        Bytes to, from;
        if (!find_bytes(driver, from_address, size, stream->context, false, from))
            return CUDA_ERROR_INVALID_VALUE;
        if (!find_host_bytes(driver, to_address, size, to)) return CUDA_ERROR_INVALID_VALUE;
        driver.bytes_out += size;
        if (to.block) {
            add_copy(driver, stream, function, to, from);
            return CUDA_SUCCESS;
        }
        driver.wait_for(driver.queue.end_of(stream));
        from.insist(driver, function);
        memcpy(to.address, from.address, size);
        return CUDA_SUCCESS;
    });
}

Result cuMemcpyDtoDAsync_v2(u64 to_address, u64 from_address, size_t size, Stream *handle) {
    const char *function = __func__;
    return call(function, Needs::CONTEXT, [&](Driver &driver) {
        auto stream = driver.stream(handle);
        if (!stream) return CUDA_ERROR_INVALID_HANDLE;
        if (size == 0) return CUDA_SUCCESS;
        Bytes to, from;
        if (!find_bytes(driver, to_address, size, stream->context, true, to) ||
            !find_bytes(driver, from_address, size, stream->context, true, from) ||
            overlap(to, from))
            return CUDA_ERROR_INVALID_VALUE;
        add_copy(driver, stream, function, to, from);
        return CUDA_SUCCESS;
    });
}

Result cuMemcpyPeerAsync(u64 to_address, Context *to_context, u64 from_address,
                         Context *from_context, size_t size, Stream *handle) {
    const char *function = __func__;
    return call(function, Needs::CONTEXT, [&](Driver &driver) {
        auto stream = driver.stream(handle);
        if (!stream) return CUDA_ERROR_INVALID_HANDLE;
        for (Context *context : {to_context, from_context})
            if (!driver.context_of(context) || context->num_retained == 0)
                return CUDA_ERROR_INVALID_CONTEXT;
        if (size == 0) return CUDA_SUCCESS;
        Bytes to, from;
        if (!find_bytes(driver, to_address, size, to_context, false, to) ||
            !find_bytes(driver, from_address, size, from_context, false, from) || overlap(to, from))
            return CUDA_ERROR_INVALID_VALUE;
        add_copy(driver, stream, function, to, from);
        return CUDA_SUCCESS;
    });
}

Result cuMemsetD8Async(u64 to_address, u8 byte, size_t size, Stream *handle) {
    const char *function = __func__;
    return call(function, Needs::CONTEXT, [&](Driver &driver) {
        auto stream = driver.stream(handle);
        if (!stream) return CUDA_ERROR_INVALID_HANDLE;
        if (size == 0) return CUDA_SUCCESS;
        Bytes to;
        if (!find_bytes(driver, to_address, size, stream->context, false, to))
            return CUDA_ERROR_INVALID_VALUE;
        driver.queue.add(stream, Work{[&driver, function, to, byte] {
                                          to.insist(driver, function);
                                          memset(to.address, byte, to.size);
                                      },
                                      {}});
        return CUDA_SUCCESS;
    });
}
}
