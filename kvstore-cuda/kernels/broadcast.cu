// Copies of a batch in one launch. Each range is read once and written to all of its destinations.
#include "fan.h"

template <class T> struct Broadcast {
    static KV_DEVICE_MEMBER void element(const FanJob &job, const u64 *places, u64 index) {
        T element = ((const T *)job.one)[index];
#pragma unroll 1
        for (u32 n = 0; n < job.num_others; n++) ((T *)places[n])[index] = element;
    }

    static KV_DEVICE_MEMBER void vector(const FanJob &job, const u64 *places, u64 index) {
        u32 words[4];
        load_16(words, (const T *)job.one + index);
        for (u32 n = 0; n < job.num_others; n++) store_16((T *)places[n] + index, words);
    }
};

KV_KERNEL(kv_broadcast_8, BatchArgs<FanJob>, 4) { fan<u8, Broadcast<u8>>(args); }
KV_KERNEL(kv_broadcast_16, BatchArgs<FanJob>, 4) { fan<u16, Broadcast<u16>>(args); }
KV_KERNEL(kv_broadcast_32, BatchArgs<FanJob>, 4) { fan<u32, Broadcast<u32>>(args); }
KV_KERNEL(kv_broadcast_64, BatchArgs<FanJob>, 4) { fan<u64, Broadcast<u64>>(args); }
