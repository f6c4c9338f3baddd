// Elementwise operations on a range. Each launch processes one range.
#include "lanes.h"
#include "operations.h"

// The number of elements that a thread processes at a time: 16 bytes, or eight one-byte elements.
template <class T> struct AtOnce {
    enum : u32 { COUNT = sizeof(T) == 1 ? 8 : 16 / sizeof(T) };
};

// The structs have the fields of the structs in src/args/elementwise.rs. `len` is a number of
// elements. `is_aligned` is whether the elements of a thread can be loaded and stored in one
// instruction. Numbers are the bits of an element.
struct FillArgs {
    u64 to;
    u64 len;
    u64 number;
    u32 is_aligned;
    u32 unused;
};

struct BinaryArgs {
    u64 from, to;
    // The address of the right operand, or the bits of a scalar.
    u64 rhs;
    u64 len;
    u32 op;
    u32 is_scalar;
    u32 is_reversed;
    u32 is_aligned;
};

struct UnaryArgs {
    u64 from, to;
    u64 len;
    u32 op;
    u32 is_aligned;
};

struct ClipArgs {
    u64 from, to;
    u64 len;
    u64 low, high;
    u32 is_aligned;
    u32 unused;
};

struct AnyZeroArgs {
    u64 from;
    u64 len;
    // The address of a word that is 0. The kernel sets it to 1 if there is a zero.
    u64 found;
    u32 is_aligned;
    u32 unused;
};

// Returns the element with these bits.
template <class T> KV_DEVICE T element_of(u64 bits) {
    union {
        u64 bits;
        T element;
    } both = {bits};
    return both.element;
}

// Calls `f` with the index of the first element and the number of elements, for each group of
// elements that this thread processes.
template <class T, class F> KV_DEVICE void for_each_share(u64 len, F f) {
    const u32 COUNT = AtOnce<T>::COUNT;
    u64 stride = (u64)KV_GRID * KV_THREADS * COUNT;
    for (u64 index = ((u64)KV_BLOCK * KV_THREADS + KV_THREAD) * COUNT; index < len; index += stride)
        f(index, len - index < COUNT ? (u32)(len - index) : COUNT);
}

// Loads elements as numbers, changes them with `f`, and stores them.
template <class T, class Args, class F> KV_DEVICE void change(const Args &args, F f) {
    const u32 COUNT = AtOnce<T>::COUNT;
    for_each_share<T>(args.len, [&](u64 index, u32 count) {
        Some<T, COUNT> elements;
        typename Arithmetic<T>::Number numbers[COUNT];
        load(elements, args.from, index, count, args.is_aligned);
#pragma unroll
        for (u32 lane = 0; lane < COUNT; lane++) numbers[lane] = widen(elements.lanes[lane]);
        f(numbers, index, count);
#pragma unroll
        for (u32 lane = 0; lane < COUNT; lane++) narrow(elements.lanes[lane], numbers[lane]);
        store(elements, args.to, index, count, args.is_aligned);
    });
}

template <class T> KV_DEVICE void fill(const FillArgs &args) {
    Some<T, AtOnce<T>::COUNT> elements;
#pragma unroll
    for (u32 lane = 0; lane < AtOnce<T>::COUNT; lane++) elements.lanes[lane] = (T)args.number;
    for_each_share<T>(args.len, [&](u64 index, u32 count) {
        store(elements, args.to, index, count, args.is_aligned);
    });
}

template <class T> KV_DEVICE void binary(const BinaryArgs &args) {
    typedef typename Arithmetic<T>::Number Number;
    const u32 COUNT = AtOnce<T>::COUNT;
    change<T>(args, [&](Number(&a)[COUNT], u64 index, u32 count) {
        Some<T, COUNT> rhs;
        if (!args.is_scalar) load(rhs, args.rhs, index, count, args.is_aligned);
        Number b[COUNT];
#pragma unroll
        for (u32 lane = 0; lane < COUNT; lane++) {
            Number x = a[lane],
                   y = widen(args.is_scalar ? element_of<T>(args.rhs) : rhs.lanes[lane]);
            a[lane] = args.is_reversed ? y : x;
            b[lane] = args.is_reversed ? x : y;
        }
        apply_binary(args.op, a, b);
    });
}

template <class T> KV_DEVICE void unary(const UnaryArgs &args) {
    typedef typename Arithmetic<T>::Number Number;
    change<T>(args, [&](Number(&x)[AtOnce<T>::COUNT], u64, u32) { apply_unary(args.op, x); });
}

template <class T> KV_DEVICE void clip(const ClipArgs &args) {
    typedef typename Arithmetic<T>::Number Number;
    Number low = widen(element_of<T>(args.low)), high = widen(element_of<T>(args.high));
    change<T>(args, [&](Number(&numbers)[AtOnce<T>::COUNT], u64, u32) {
        // Both comparisons are false for NaN, so it stays NaN.
        each(numbers, [&](Number x) {
            Number above = low > x ? low : x;
            return high < above ? high : above;
        });
    });
}

template <class T> KV_DEVICE void any_zero(const AnyZeroArgs &args) {
    const u32 COUNT = AtOnce<T>::COUNT;
    bool found = false;
    for_each_share<T>(args.len, [&](u64 index, u32 count) {
        Some<T, COUNT> elements;
        load(elements, args.from, index, count, args.is_aligned);
#pragma unroll
        for (u32 lane = 0; lane < COUNT; lane++) found |= lane < count && elements.lanes[lane] == 0;
    });
    // Several threads may store the flag, but they all store the same value.
    if (found) *(u32 *)args.found = 1;
}

#define KV_ELEMENTWISE(name, T, ...)                                                               \
    KV_KERNEL(kv_binary_##name, BinaryArgs, 4) { binary<T>(args); }                                \
    KV_KERNEL(kv_unary_##name, UnaryArgs, 4) { unary<T>(args); }                                   \
    KV_KERNEL(kv_clip_##name, ClipArgs, 4) { clip<T>(args); }

KV_DTYPES(KV_ELEMENTWISE)

// Selected by the size of the elements, because only their bits matter.
KV_KERNEL(kv_fill_8, FillArgs, 4) { fill<u8>(args); }
KV_KERNEL(kv_fill_16, FillArgs, 4) { fill<u16>(args); }
KV_KERNEL(kv_fill_32, FillArgs, 4) { fill<u32>(args); }
KV_KERNEL(kv_fill_64, FillArgs, 4) { fill<u64>(args); }

// For integers, which have only one representation of zero.
#define KV_ANY_ZERO(name, T, ...)                                                                  \
    KV_KERNEL(kv_any_zero_##name, AnyZeroArgs, 4) { any_zero<T>(args); }
KV_WORDS(KV_ANY_ZERO)

#ifdef KV_EMULATED
// The layout of the structs, which tests compare with the Rust structs.
extern "C" void kv_elementwise_layout(u64 *out) {
    const u64 layout[] = {sizeof(FillArgs),
                          offsetof(FillArgs, to),
                          offsetof(FillArgs, len),
                          offsetof(FillArgs, number),
                          offsetof(FillArgs, is_aligned),
                          sizeof(BinaryArgs),
                          offsetof(BinaryArgs, from),
                          offsetof(BinaryArgs, to),
                          offsetof(BinaryArgs, rhs),
                          offsetof(BinaryArgs, len),
                          offsetof(BinaryArgs, op),
                          offsetof(BinaryArgs, is_scalar),
                          offsetof(BinaryArgs, is_reversed),
                          offsetof(BinaryArgs, is_aligned),
                          sizeof(UnaryArgs),
                          offsetof(UnaryArgs, from),
                          offsetof(UnaryArgs, to),
                          offsetof(UnaryArgs, len),
                          offsetof(UnaryArgs, op),
                          offsetof(UnaryArgs, is_aligned),
                          sizeof(ClipArgs),
                          offsetof(ClipArgs, from),
                          offsetof(ClipArgs, to),
                          offsetof(ClipArgs, len),
                          offsetof(ClipArgs, low),
                          offsetof(ClipArgs, high),
                          offsetof(ClipArgs, is_aligned),
                          sizeof(AnyZeroArgs),
                          offsetof(AnyZeroArgs, from),
                          offsetof(AnyZeroArgs, len),
                          offsetof(AnyZeroArgs, found),
                          offsetof(AnyZeroArgs, is_aligned)};
    memcpy(out, layout, sizeof layout);
}
#endif
