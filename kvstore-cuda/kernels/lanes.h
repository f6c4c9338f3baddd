// Groups of elements that a thread loads and stores at a time.
#pragma once

#include "kernel.h"

template <class T, u32 COUNT> union Some {
    // Groups shorter than a word are not accessed as words.
    u32 words[(COUNT * sizeof(T) + 3) / 4];
    T lanes[COUNT];
};

// The number of elements that a thread has in registers: four, or two 64-bit elements.
template <class T> struct Lanes {
    enum : u32 { COUNT = sizeof(T) == 8 ? 2 : 4 };
};

// Loads `count` elements. The other lanes become 0.
template <class T, u32 COUNT>
KV_DEVICE void load(Some<T, COUNT> &some, u64 address, u64 index, u32 count, bool is_aligned) {
    const T *from = (const T *)address + index;
    if (is_aligned && count == COUNT) {
        load_words(some.words, from);
        return;
    }
#pragma unroll
    for (u32 lane = 0; lane < COUNT; lane++) some.lanes[lane] = lane < count ? from[lane] : T();
}

template <class T, u32 COUNT>
KV_DEVICE void store(const Some<T, COUNT> &some, u64 address, u64 index, u32 count,
                     bool is_aligned) {
    T *to = (T *)address + index;
    if (is_aligned && count == COUNT) {
        store_words(to, some.words);
        return;
    }
#pragma unroll
    for (u32 lane = 0; lane < COUNT; lane++)
        if (lane < count) to[lane] = some.lanes[lane];
}
