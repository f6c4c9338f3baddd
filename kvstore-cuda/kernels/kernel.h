// The basis of every kernel: bits of numbers, loads and stores of 16 bytes, and searches in a
// batch and in ascending numbers.
//
// The same sources are compiled for a GPU and, with KV_EMULATED, as C++ for tests on any machine.
// So kernels use no barriers, shared memory, atomics, or CUDA headers. Arithmetic is compiled
// without fused multiply-adds, so that its results have the same bits as on a CPU.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The number of threads in a block.
#define KV_THREADS 256
// The number of bytes of the destination that a block processes: 16 for each thread. Each thread
// accesses a range once. In a loop over more bytes, the next loads would come after the last
// stores, which costs 6 to 25 % of the rate of a copy.
#define KV_TILE_BYTES (16 * KV_THREADS)
// The number of addends that a thread loads before it adds the first of them.
#define KV_AHEAD 4
// Marks a field of a job that has no value.
#define KV_NEVER 0xffffffffu

#ifdef KV_EMULATED
#include "emulated.h"
#else
#define KV_DEVICE static __device__ __forceinline__
#define KV_DEVICE_MEMBER __device__ __forceinline__
#define KV_BLOCK blockIdx.x
#define KV_GRID gridDim.x
#define KV_THREAD threadIdx.x
// Declares a kernel with one argument, which it reads where the driver has put it. At least
// `num_blocks` blocks run side by side: with four blocks, a thread has 64 registers, with two, 128.
#define KV_KERNEL(name, Args, num_blocks)                                                          \
    extern "C" __global__ void __launch_bounds__(KV_THREADS, num_blocks)                           \
        name(const __grid_constant__ Args args)

KV_DEVICE u32 bits_of(float x) { return __float_as_uint(x); }
KV_DEVICE float float_of(u32 bits) { return __uint_as_float(bits); }
KV_DEVICE u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
KV_DEVICE double double_of(u64 bits) { return __longlong_as_double((long long)bits); }

KV_DEVICE float widen_half(u16 bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

KV_DEVICE u16 narrow_half(float x) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}

// Without a cache hint: the hint for data that is read once (`.cs`) costs 3 to 6 %.
KV_DEVICE void load_16(u32 (&words)[4], const void *from) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(from)
                 : "memory");
}

KV_DEVICE void store_16(void *to, const u32 (&words)[4]) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}

KV_DEVICE void load_8(u32 (&words)[2], const void *from) {
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "l"(from)
                 : "memory");
}

KV_DEVICE void store_8(void *to, const u32 (&words)[2]) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};"
                 :
                 : "l"(to), "r"(words[0]), "r"(words[1])
                 : "memory");
}
#endif

// Loads and stores of one word, two words, or a multiple of four words.
KV_DEVICE void load_words(u32 (&words)[1], const void *from) { words[0] = *(const u32 *)from; }
KV_DEVICE void store_words(void *to, const u32 (&words)[1]) { *(u32 *)to = words[0]; }
KV_DEVICE void load_words(u32 (&words)[2], const void *from) { load_8(words, from); }
KV_DEVICE void store_words(void *to, const u32 (&words)[2]) { store_8(to, words); }

template <u32 N> KV_DEVICE void load_words(u32 (&words)[N], const void *from) {
#pragma unroll
    for (u32 word = 0; word < N; word += 4)
        load_16(*(u32(*)[4]) & words[word], (const u32 *)from + word);
}

template <u32 N> KV_DEVICE void store_words(void *to, const u32 (&words)[N]) {
#pragma unroll
    for (u32 word = 0; word < N; word += 4)
        store_16((u32 *)to + word, *(const u32(*)[4]) & words[word]);
}

// Overloads, so that templates can call them with each type.
KV_DEVICE float root(float x) { return sqrtf(x); }
KV_DEVICE double root(double x) { return sqrt(x); }
KV_DEVICE float absolute(float x) { return fabsf(x); }
KV_DEVICE double absolute(double x) { return fabs(x); }

// 16 aligned bytes, and the elements in them.
template <class T> union Vector {
    enum : u32 { LANES = 16 / sizeof(T) };
    u32 words[4];
    T lanes[LANES];
};

// The argument of a kernel that runs a batch of jobs. `Args` in src/args/batch.rs has the same
// fields.
template <class Job> struct BatchArgs {
    const Job *jobs;
    // The addresses of addends.
    const u64 *addends;
    u64 num_tiles;
    u32 num_jobs;
    u32 unused;
};

// Returns the job of a tile: the last job that starts at or before it. Every block waits for its
// search, so each round loads the starts of four parts at once: 4096 jobs take six rounds. A binary
// search would take twelve.
template <class Job> KV_DEVICE const Job &job_of(const Job *jobs, u32 num_jobs, u64 tile) {
    const u32 PARTS = 4;
    u32 first = 0, count = num_jobs;
#pragma unroll 1
    while (count > 1) {
        u32 part = (count + PARTS - 1) / PARTS, begun = 0;
        u64 begins[PARTS];
#pragma unroll
        for (u32 n = 1; n < PARTS; n++)
            begins[n] = jobs[first + (n * part < count ? n * part : 0)].first_tile;
#pragma unroll
        for (u32 n = 1; n < PARTS; n++) begun += n * part < count && begins[n] <= tile ? 1 : 0;
        first += begun * part;
        count = count - begun * part < part ? count - begun * part : part;
    }
    return jobs[first];
}

// Returns the first position in `low..high` whose number is at least `limit`, or `high`. The
// numbers are in ascending order.
KV_DEVICE u32 first_from(const u64 *numbers, u32 low, u32 high, u64 limit) {
    while (low < high) {
        u32 middle = low + (high - low) / 2;
        if (numbers[middle] < limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Folds addends in their order, starting with number `first`. `load(x, n)` loads an addend, and
// `add(x, is_first)` adds it. `is_first` is true for addend 0. `AHEAD` loads are in flight before
// the first addition waits for one.
template <class X, u32 AHEAD, class Load, class Add>
KV_DEVICE void fold(u32 first, u32 num_addends, Load load, Add add) {
    X loaded[AHEAD];
    u32 n = first;
#pragma unroll 1
    for (; n + AHEAD <= num_addends; n += AHEAD) {
#pragma unroll
        for (u32 ahead = 0; ahead < AHEAD; ahead++) load(loaded[ahead], n + ahead);
#pragma unroll
        for (u32 ahead = 0; ahead < AHEAD; ahead++) add(loaded[ahead], ahead == 0 && n == 0);
    }
    if (n == num_addends) return;
#pragma unroll
    for (u32 ahead = 0; ahead < AHEAD - 1; ahead++)
        if (n + ahead < num_addends) load(loaded[ahead], n + ahead);
#pragma unroll
    for (u32 ahead = 0; ahead < AHEAD - 1; ahead++)
        if (n + ahead < num_addends) add(loaded[ahead], ahead == 0 && n == 0);
}
