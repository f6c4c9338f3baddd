// Sums of squares of gradients, and the second pass of all sums of squares.
#include "measure.h"

struct Gradient {
    enum : bool { HAS_WEIGHT = false };
    enum : u32 { MEASURED_STATES = 0, SCALARS = 1 };
    template <class A>
    static KV_DEVICE_MEMBER void measure(const A *, A, const A *, A g, A *norms) {
        norms[0] = g;
        norms[1] = (A)0;
    }
};

KV_MEASURE(gradient, Gradient)

// One launch for all sums. `PairArgs` in src/args/norm.rs has the same fields.
struct PairArgs {
    // The partial sums, KV_NORM_THREADS for each sum.
    u64 from;
    u64 to;
    // The number of sums.
    u64 len;
};

// Adds the partial sums of each sum: neighbours in pairs, until one number is left.
KV_KERNEL(kv_add_in_pairs, PairArgs, 2) {
    u64 stride = (u64)KV_GRID * KV_THREADS;
    for (u64 index = (u64)KV_BLOCK * KV_THREADS + KV_THREAD; index < args.len; index += stride) {
        const double *from = (const double *)args.from + index * KV_NORM_THREADS;
        double numbers[KV_NORM_THREADS];
#pragma unroll
        for (u32 n = 0; n < KV_NORM_THREADS; n++) numbers[n] = from[n];
#pragma unroll
        for (u32 len = KV_NORM_THREADS; len > 1; len /= 2)
#pragma unroll
            for (u32 pair = 0; pair < len / 2; pair++)
                numbers[pair] = numbers[2 * pair] + numbers[2 * pair + 1];
        ((double *)args.to)[index] = numbers[0];
    }
}

#ifdef KV_EMULATED
// The layout of the struct, which tests compare with the Rust struct.
extern "C" void kv_norm_layout(u64 *out) {
    const u64 layout[] = {sizeof(PairArgs), offsetof(PairArgs, from), offsetof(PairArgs, to),
                          offsetof(PairArgs, len)};
    memcpy(out, layout, sizeof layout);
}
#endif
