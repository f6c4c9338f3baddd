// Conversions of elements between types.
#include "convert.h"
#include "lanes.h"

// One range per launch. `CastArgs` in src/args/cast.rs has the same fields.
struct CastArgs {
    u64 from, to;
    // The number of elements.
    u64 len;
    // Whether four elements can be loaded and stored in one instruction.
    u32 is_aligned;
    u32 unused;
};

template <class S, class D> KV_DEVICE void cast(const CastArgs &args) {
    const u32 COUNT = 4;
    u64 stride = (u64)KV_GRID * KV_THREADS * COUNT;
    for (u64 index = ((u64)KV_BLOCK * KV_THREADS + KV_THREAD) * COUNT; index < args.len;
         index += stride) {
        u32 count = args.len - index < COUNT ? (u32)(args.len - index) : COUNT;
        Some<S, COUNT> from;
        Some<D, COUNT> to;
        load(from, args.from, index, count, args.is_aligned);
#pragma unroll
        for (u32 lane = 0; lane < COUNT; lane++) convert(to.lanes[lane], from.lanes[lane]);
        store(to, args.to, index, count, args.is_aligned);
    }
}

#define KV_CAST(s, S, d, D)                                                                        \
    KV_KERNEL(kv_cast_##s##_##d, CastArgs, 4) { cast<S, D>(args); }

// The backend launches no kernel if both types are equal.
KV_PAIRS(KV_CAST)

#ifdef KV_EMULATED
// The layout of the struct, which tests compare with the Rust struct.
extern "C" void kv_cast_layout(u64 *out) {
    const u64 layout[] = {sizeof(CastArgs), offsetof(CastArgs, from), offsetof(CastArgs, to),
                          offsetof(CastArgs, len), offsetof(CastArgs, is_aligned)};
    memcpy(out, layout, sizeof layout);
}
#endif
