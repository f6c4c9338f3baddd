// The basics of the emulated driver: results, random numbers, and the end of the process.
#pragma once

#include <cstddef>
#include <cstdint>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

#define KV_RESULTS(RESULT)                                                                         \
    RESULT(CUDA_SUCCESS, 0, "no error")                                                            \
    RESULT(CUDA_ERROR_INVALID_VALUE, 1, "invalid argument")                                        \
    RESULT(CUDA_ERROR_OUT_OF_MEMORY, 2, "out of memory")                                           \
    RESULT(CUDA_ERROR_NOT_INITIALIZED, 3, "initialization error")                                  \
    RESULT(CUDA_ERROR_NO_DEVICE, 100, "no CUDA-capable device is detected")                        \
    RESULT(CUDA_ERROR_INVALID_DEVICE, 101, "invalid device ordinal")                               \
    RESULT(CUDA_ERROR_INVALID_CONTEXT, 201, "invalid device context")                              \
    RESULT(CUDA_ERROR_INVALID_IMAGE, 200, "device kernel image is invalid")                        \
    RESULT(CUDA_ERROR_NO_BINARY_FOR_GPU, 209,                                                      \
           "no kernel image is available for execution on the device")                             \
    RESULT(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217,                                                \
           "peer access is not supported between these two devices")                               \
    RESULT(CUDA_ERROR_INVALID_PTX, 218, "a PTX JIT compilation failed")                            \
    RESULT(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, 221, "PTX JIT compiler library not found")           \
    RESULT(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222,                                                \
           "the provided PTX was compiled with an unsupported toolchain.")                         \
    RESULT(CUDA_ERROR_INVALID_HANDLE, 400, "invalid resource handle")                              \
    RESULT(CUDA_ERROR_NOT_FOUND, 500, "named symbol not found")                                    \
    RESULT(CUDA_ERROR_NOT_READY, 600, "device not ready")                                          \
    RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, 700, "an illegal memory access was encountered")           \
    RESULT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704, "peer access is already enabled")          \
    RESULT(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709, "context is destroyed")                           \
    RESULT(CUDA_ERROR_UNKNOWN, 999, "unknown error")

enum Result : int {
#define KV_RESULT(name, value, text) name = value,
    KV_RESULTS(KV_RESULT)
#undef KV_RESULT
};

// Pseudo-random numbers, the same for the same seed.
class Chance {
  public:
    void seed(u64 number);
    u64 first_seed() const { return first; }
    // Returns a number below `end`, which is not 0.
    u32 below(u32 end);

  private:
    u64 first = 0, state = 0;
};

extern Chance chance;

// Prints the message and the seed, and ends the process.
[[noreturn]] void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
