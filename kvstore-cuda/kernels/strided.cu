// Copies between contiguous and strided elements. Only the size of the elements matters, so one
// type per size is enough.
#include "kernel.h"

// The largest number of axes, after contiguous axes have been merged.
#define KV_AXES 8

// One array per launch. `StridedArgs` in src/args/strided.rs has the same fields.
struct StridedArgs {
    // The address of the contiguous elements, and the address of the first strided element.
    u64 packed, strided;
    // The number of elements.
    u64 len;
    u32 num_axes;
    u32 unused;
    // The lengths and strides of the axes, from the outermost to the innermost. Strides are in
    // bytes. A negative stride is a large number, with which addresses wrap.
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

#define KV_STRIDED(size, T)                                                                        \
    KV_KERNEL(kv_gather_##size, StridedArgs, 4) { copy_strided<T, true>(args); }                   \
    KV_KERNEL(kv_scatter_##size, StridedArgs, 4) { copy_strided<T, false>(args); }

KV_STRIDED(1, u8)
KV_STRIDED(2, u16)
KV_STRIDED(4, u32)
KV_STRIDED(8, u64)

#ifdef KV_EMULATED
// The layout of the struct, which tests compare with the Rust struct.
extern "C" void kv_strided_layout(u64 *out) {
    const u64 layout[] = {sizeof(StridedArgs),
                          offsetof(StridedArgs, packed),
                          offsetof(StridedArgs, strided),
                          offsetof(StridedArgs, len),
                          offsetof(StridedArgs, num_axes),
                          offsetof(StridedArgs, lengths),
                          offsetof(StridedArgs, strides)};
    memcpy(out, layout, sizeof layout);
}
#endif
