// Reductions of all elements to one, with the additions of kvstore-core/src/cpu/reduce.rs in their
// order: one thread folds the elements of a block, then one thread folds the blocks.
#include "lanes.h"
#include "operations.h"

// The number of elements in a block: `BLOCK` in kvstore-core/src/cpu/reduce.rs.
#define KV_FOLD_BLOCK 4096
// The number of folds that the last kernel loads before it adds the first of them.
#define KV_FOLDS_AHEAD 8

// The codes in kvstore-core/src/types/ops.rs.
enum Reduction : u32 { KV_SUM = 0, KV_MEAN = 1, KV_MAX = 2, KV_MIN = 3, KV_NORM = 4 };

// One range per launch. `ReduceArgs` in src/args/reduce.rs has the same fields.
struct ReduceArgs {
    u64 from;
    // The folds of the blocks, 8 bytes each.
    u64 folds;
    // The result: one element.
    u64 to;
    // The number of elements.
    u64 len;
    u32 op;
    // Whether 16 bytes can be loaded in one instruction.
    u32 is_aligned;
};

// Each kind of fold has the type of its numbers, their conversion from an element, the fold of a
// number with the next one, and the start. The maximum and minimum start with the first element.

// Sums floats as doubles, and integers as 64-bit integers that wrap.
template <class T> struct Total {
    template <bool IS_FLOAT, class = void> struct Of {
        typedef u64 Number;
        static KV_DEVICE_MEMBER u64 number(T x) { return (u64)to_integer(x); }
    };
    template <class Any> struct Of<true, Any> {
        typedef double Number;
        static KV_DEVICE_MEMBER double number(T x) { return (double)widen(x); }
    };
    typedef typename Of<IsFloat<T>::VALUE>::Number Number;
    static KV_DEVICE_MEMBER Number number(T x) { return Of<IsFloat<T>::VALUE>::number(x); }
    static KV_DEVICE_MEMBER Number join(Number a, Number b) { return a + b; }
    static KV_DEVICE_MEMBER Number start(const T *) { return 0; }
};

template <class T> struct Squares {
    typedef double Number;
    static KV_DEVICE_MEMBER double number(T x) {
        double wide = (double)widen(x);
        return wide * wide;
    }
    static KV_DEVICE_MEMBER double join(double a, double b) { return a + b; }
    static KV_DEVICE_MEMBER double start(const T *) { return 0.0; }
};

template <class T, bool IS_MAX> struct Extreme {
    typedef typename Arithmetic<T>::Number Number;
    static KV_DEVICE_MEMBER Number number(T x) { return widen(x); }
    static KV_DEVICE_MEMBER Number join(Number a, Number b) {
        return IS_MAX ? Operations<Number>::larger(a, b) : Operations<Number>::smaller(a, b);
    }
    static KV_DEVICE_MEMBER Number start(const T *from) { return widen(*from); }
};

// Folds each block. A thread loads `AHEAD` vectors before it adds the first of their elements.
template <class T, class Fold> KV_DEVICE void fold_blocks(const ReduceArgs &args) {
    typedef typename Fold::Number Number;
    const u32 LANES = Vector<T>::LANES, AHEAD = sizeof(T) < 4 ? 2 * sizeof(T) : 8;
    u64 num_blocks = (args.len + KV_FOLD_BLOCK - 1) / KV_FOLD_BLOCK;
    u64 stride = (u64)KV_GRID * KV_THREADS;
    for (u64 block = (u64)KV_BLOCK * KV_THREADS + KV_THREAD; block < num_blocks; block += stride) {
        u64 begin = block * KV_FOLD_BLOCK, rest = args.len - begin;
        const T *from = (const T *)args.from + begin;
        u32 len = rest < KV_FOLD_BLOCK ? (u32)rest : KV_FOLD_BLOCK, index = 0;
        Number number = Fold::start((const T *)args.from);
#pragma unroll 1
        for (; args.is_aligned && index + AHEAD * LANES <= len; index += AHEAD * LANES) {
            Vector<T> loaded[AHEAD];
#pragma unroll
            for (u32 n = 0; n < AHEAD; n++) load_16(loaded[n].words, from + index + n * LANES);
#pragma unroll
            for (u32 n = 0; n < AHEAD; n++)
#pragma unroll
                for (u32 lane = 0; lane < LANES; lane++)
                    number = Fold::join(number, Fold::number(loaded[n].lanes[lane]));
        }
        fold<T, KV_AHEAD>(
            index, len, [&](T &x, u32 n) { x = from[n]; },
            [&](T x, bool) { number = Fold::join(number, Fold::number(x)); });
        ((Number *)args.folds)[block * (8 / sizeof(Number))] = number;
    }
}

// Folds the folds of the blocks.
template <class T, class Fold>
KV_DEVICE typename Fold::Number fold_all(const ReduceArgs &args) {
    typedef typename Fold::Number Number;
    u64 num_blocks = (args.len + KV_FOLD_BLOCK - 1) / KV_FOLD_BLOCK;
    Number number = Fold::start((const T *)args.from);
#pragma unroll 1
    for (u64 first = 0; first < num_blocks; first += KV_FOLDS_AHEAD) {
        Number loaded[KV_FOLDS_AHEAD];
#pragma unroll
        for (u32 n = 0; n < KV_FOLDS_AHEAD; n++)
            if (first + n < num_blocks)
                loaded[n] = ((const Number *)args.folds)[(first + n) * (8 / sizeof(Number))];
#pragma unroll
        for (u32 n = 0; n < KV_FOLDS_AHEAD; n++)
            if (first + n < num_blocks) number = Fold::join(number, loaded[n]);
    }
    return number;
}

// Returns a sum: a double, or a signed integer.
KV_DEVICE double signed_total(double total) { return total; }
KV_DEVICE i64 signed_total(u64 total) { return (i64)total; }

template <class T> KV_DEVICE void reduce_blocks(const ReduceArgs &args) {
    switch (args.op) {
    case KV_SUM:
    case KV_MEAN: return fold_blocks<T, Total<T>>(args);
    case KV_MAX: return fold_blocks<T, Extreme<T, true>>(args);
    case KV_MIN: return fold_blocks<T, Extreme<T, false>>(args);
    case KV_NORM: return fold_blocks<T, Squares<T>>(args);
    }
}

template <class T> KV_DEVICE void reduce(const ReduceArgs &args) {
    if (KV_BLOCK != 0 || KV_THREAD != 0) return;
    T &to = *(T *)args.to;
    switch (args.op) {
    case KV_SUM: return convert(to, signed_total(fold_all<T, Total<T>>(args)));
    case KV_MEAN:
        return convert(to, (double)signed_total(fold_all<T, Total<T>>(args)) / (double)args.len);
    case KV_MAX: return narrow(to, fold_all<T, Extreme<T, true>>(args));
    case KV_MIN: return narrow(to, fold_all<T, Extreme<T, false>>(args));
    case KV_NORM: return convert(to, root(fold_all<T, Squares<T>>(args)));
    }
}

#define KV_REDUCE(name, T, ...)                                                                    \
    KV_KERNEL(kv_reduce_blocks_##name, ReduceArgs, 2) { reduce_blocks<T>(args); }                  \
    KV_KERNEL(kv_reduce_##name, ReduceArgs, 2) { reduce<T>(args); }

KV_DTYPES(KV_REDUCE)

#ifdef KV_EMULATED
// The layout of the struct, which tests compare with the Rust struct.
extern "C" void kv_reduce_layout(u64 *out) {
    const u64 layout[] = {sizeof(ReduceArgs),       offsetof(ReduceArgs, from),
                          offsetof(ReduceArgs, folds), offsetof(ReduceArgs, to),
                          offsetof(ReduceArgs, len), offsetof(ReduceArgs, op),
                          offsetof(ReduceArgs, is_aligned)};
    memcpy(out, layout, sizeof layout);
}
#endif
