// The column of the largest element of each row, as in kvstore-core/src/cpu/reduce.rs. Each launch
// reduces KV_GROUP columns of a row to one, until one column is left.
#include "convert.h"

// The number of columns among which a thread chooses.
#define KV_GROUP 256
// The number of elements that a thread loads before it compares the first of them.
#define KV_COLUMNS_AHEAD 8

// One matrix per launch. `ArgmaxArgs` in src/args/argmax.rs has the same fields.
struct ArgmaxArgs {
    u64 from;
    // The columns to choose from, `len` of each row, as 64-bit integers. 0 if `len` is the number
    // of columns: then the launch chooses from all columns.
    u64 candidates;
    // The chosen columns, one for each group of a row: 64-bit integers, or in the last launch
    // elements.
    u64 to;
    u64 rows, columns;
    u64 len;
    u32 is_last;
    u32 unused;
};

template <class T> struct Candidate {
    typename Arithmetic<T>::Number number;
    u64 column;
};

// Returns whether the later candidate `b` replaces `a`. Of equal elements, the first one wins. NaN
// is never larger, and a NaN loses against any number, but the host starts with column 0: if its
// element is NaN, it wins.
template <class T> KV_DEVICE bool is_better(const Candidate<T> &b, const Candidate<T> &a) {
    bool is_nan = a.number != a.number && a.column != 0;
    return b.number > a.number || (is_nan && b.number == b.number);
}

template <class T> KV_DEVICE void argmax(const ArgmaxArgs &args) {
    u64 num_groups = (args.len + KV_GROUP - 1) / KV_GROUP;
    u64 stride = (u64)KV_GRID * KV_THREADS;
    for (u64 index = (u64)KV_BLOCK * KV_THREADS + KV_THREAD; index < args.rows * num_groups;
         index += stride) {
        u64 row = index / num_groups, begin = (index - row * num_groups) * KV_GROUP;
        u32 count = args.len - begin < KV_GROUP ? (u32)(args.len - begin) : KV_GROUP;
        const T *elements = (const T *)args.from + row * args.columns;
        const u64 *candidates = (const u64 *)args.candidates + row * args.len + begin;
        Candidate<T> best;
        fold<Candidate<T>, KV_COLUMNS_AHEAD>(
            0, count,
            [&](Candidate<T> &loaded, u32 n) {
                loaded.column = args.candidates ? candidates[n] : begin + n;
                loaded.number = widen(elements[loaded.column]);
            },
            [&](const Candidate<T> &next, bool is_first) {
                if (is_first || is_better<T>(next, best)) best = next;
            });
        if (args.is_last)
            from_integer(((T *)args.to)[index], (i64)best.column);
        else
            ((u64 *)args.to)[index] = best.column;
    }
}

#define KV_ARGMAX(name, T, ...)                                                                    \
    KV_KERNEL(kv_argmax_##name, ArgmaxArgs, 2) { argmax<T>(args); }

KV_DTYPES(KV_ARGMAX)

#ifdef KV_EMULATED
// The layout of the struct, which tests compare with the Rust struct.
extern "C" void kv_argmax_layout(u64 *out) {
    const u64 layout[] = {sizeof(ArgmaxArgs),          offsetof(ArgmaxArgs, from),
                          offsetof(ArgmaxArgs, candidates), offsetof(ArgmaxArgs, to),
                          offsetof(ArgmaxArgs, rows),  offsetof(ArgmaxArgs, columns),
                          offsetof(ArgmaxArgs, len),   offsetof(ArgmaxArgs, is_last)};
    memcpy(out, layout, sizeof layout);
}
#endif
