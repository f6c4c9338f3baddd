// Copies of a batch: each range is read once and written to all of its places, every copy in one launch.
#include "fan.h"

template <class T> struct Broadcast {
    enum : u32 { AT_ONCE = 4 };

    static KV_DEVICE_MEMBER void element(const FanJob &job, const u64 *places, u64 index) {
        T element = ((const T *)job.one)[index];
        for (u32 n = 0; n < job.num_others; n++) ((T *)places[n])[index] = element;
    }

    template <u32 COUNT> static KV_DEVICE_MEMBER void vectors(const FanJob &job, const u64 *places, u64 index) {
        const u32 STRIDE = KV_THREADS * Vector<T>::LANES;
        u32 words[COUNT][4];
#pragma unroll
        for (u32 v = 0; v < COUNT; v++) load_16(words[v], (const T *)job.one + index + v * STRIDE);
        for (u32 n = 0; n < job.num_others; n++) {
#pragma unroll
            for (u32 v = 0; v < COUNT; v++) store_16((T *)places[n] + index + v * STRIDE, words[v]);
        }
    }
};

KV_KERNEL(kv_broadcast_8, BatchArgs<FanJob>, 4) { fan<u8, Broadcast<u8>>(args); }
KV_KERNEL(kv_broadcast_16, BatchArgs<FanJob>, 4) { fan<u16, Broadcast<u16>>(args); }
KV_KERNEL(kv_broadcast_32, BatchArgs<FanJob>, 4) { fan<u32, Broadcast<u32>>(args); }
KV_KERNEL(kv_broadcast_64, BatchArgs<FanJob>, 4) { fan<u64, Broadcast<u64>>(args); }
