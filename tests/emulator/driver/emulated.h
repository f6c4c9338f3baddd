// Runs the threads of a kernel one after the other on a processor, for tests. Loads and stores of
// 16 bytes require alignment, as on a GPU.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define KV_DEVICE static inline
#define KV_DEVICE_MEMBER inline

static thread_local u32 kv_block, kv_grid, kv_thread;
#define KV_BLOCK kv_block
#define KV_GRID kv_grid
#define KV_THREAD kv_thread

// Threads begin at number `order`, and go down if it is odd, to detect results that depend on their
// order.
#define KV_KERNEL(name, Args, num_blocks)                                                          \
    static void name##_thread(const Args &args);                                                   \
    extern "C" void name(const void *args, u32 grid, u32 order) {                                  \
        const u32 count = grid * KV_THREADS;                                                       \
        kv_grid = grid;                                                                            \
        for (u32 number = 0; number < count; number++) {                                           \
            u32 place = (number + order) % count;                                                  \
            if (order % 2) place = count - 1 - place;                                              \
            kv_block = place / KV_THREADS;                                                         \
            kv_thread = place % KV_THREADS;                                                        \
            name##_thread(*(const Args *)args);                                                    \
        }                                                                                          \
    }                                                                                              \
    static void name##_thread(const Args &args)

KV_DEVICE u32 bits_of(float x) {
    u32 bits;
    memcpy(&bits, &x, 4);
    return bits;
}

KV_DEVICE float float_of(u32 bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

KV_DEVICE u64 bits_of(double x) {
    u64 bits;
    memcpy(&bits, &x, 8);
    return bits;
}

KV_DEVICE double double_of(u64 bits) {
    double x;
    memcpy(&x, &bits, 8);
    return x;
}

KV_DEVICE float widen_half(u16 bits) {
    u32 sign = (u32)(bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1fu, mantissa = bits & 0x3ffu;
    if (exponent == 0x1f) return float_of(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * std::ldexp((float)mantissa, -24);
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

// Rounds to nearest, ties to even.
KV_DEVICE u16 narrow_half(float x) {
    u32 bits = bits_of(x), sign = bits >> 16 & 0x8000u;
    float size = std::fabs(x);
    if (std::isnan(x)) return (u16)(sign | 0x7fffu);
    if (size >= 65520.0f) return (u16)(sign | 0x7c00u);
    if (size < std::ldexp(1.0f, -14))
        return (u16)(sign | (u32)std::nearbyint(std::ldexp(size, 24)));
    u32 positive = bits & 0x7fffffffu;
    u32 rounded = (positive + 0xfffu + (positive >> 13 & 1u)) >> 13;
    return (u16)(sign | (rounded - (112u << 10)));
}

KV_DEVICE void insist_aligned(const void *pointer, u32 num_bytes) {
    if ((uintptr_t)pointer % num_bytes) {
        fprintf(stderr, "%p is not aligned\n", pointer);
        abort();
    }
}

KV_DEVICE void load_16(u32 (&words)[4], const void *from) {
    insist_aligned(from, 16);
    memcpy(words, from, 16);
}

KV_DEVICE void store_16(void *to, const u32 (&words)[4]) {
    insist_aligned(to, 16);
    memcpy(to, words, 16);
}

KV_DEVICE void load_8(u32 (&words)[2], const void *from) {
    insist_aligned(from, 8);
    memcpy(words, from, 8);
}

KV_DEVICE void store_8(void *to, const u32 (&words)[2]) {
    insist_aligned(to, 8);
    memcpy(to, words, 8);
}
