// Elements that other libraries keep at regular distances, one after the other, and back. Nothing is computed: a type
// stands for all of its size.
#include "kernel.h"

// As many as there are when axes are one that follow each other in memory.
#define KV_AXES 8

// The argument has all there is. `StridedArgs` in src/args/strided.rs has the same fields.
struct StridedArgs {
    // Those that stand one after the other, and the first of the others.
    u64 packed, strided;
    // In elements.
    u64 len;
    u32 num_axes;
    u32 unused;
    // Of each axis, the last one being that of elements which are neighbours in order; distances are in bytes, and those
    // that go back are so large that addresses wrap.
    u64 lengths[KV_AXES];
    u64 strides[KV_AXES];
};

KV_DEVICE u64 place_of(const StridedArgs &args, u64 index) {
    u64 place = args.strided;
    for (u32 axis = args.num_axes; axis-- > 0;) {
        u64 length = args.lengths[axis], outer = index / length;
        place += (index - outer * length) * args.strides[axis];
        index = outer;
    }
    return place;
}

template <class T, bool IS_GATHER> KV_DEVICE void copy_strided(const StridedArgs &args) {
    T *packed = (T *)args.packed;
    u64 stride = (u64)KV_GRID * KV_THREADS;
    for (u64 index = (u64)KV_BLOCK * KV_THREADS + KV_THREAD; index < args.len; index += stride) {
        T *strided = (T *)place_of(args, index);
        if (IS_GATHER)
            packed[index] = *strided;
        else
            *strided = packed[index];
    }
}

#define KV_STRIDED(size, T)                                                                                            \
    KV_KERNEL(kv_gather_##size, StridedArgs, 4) { copy_strided<T, true>(args); }                                       \
    KV_KERNEL(kv_scatter_##size, StridedArgs, 4) { copy_strided<T, false>(args); }

KV_STRIDED(1, u8)
KV_STRIDED(2, u16)
KV_STRIDED(4, u32)
KV_STRIDED(8, u64)

#ifdef KV_EMULATED
// Sizes and places of fields, which Rust's struct has to have too.
extern "C" void kv_strided_layout(u64 *out) {
    const u64 layout[] = {sizeof(StridedArgs),           offsetof(StridedArgs, packed),  offsetof(StridedArgs, strided),
                          offsetof(StridedArgs, len),    offsetof(StridedArgs, num_axes), offsetof(StridedArgs, lengths),
                          offsetof(StridedArgs, strides)};
    memcpy(out, layout, sizeof layout);
}
#endif
