// Some elements that a thread loads and stores at a time.
#pragma once

#include "kernel.h"

template <class T, u32 COUNT> union Some {
    // Less than a word is not loaded so.
    u32 words[(COUNT * sizeof(T) + 3) / 4];
    T lanes[COUNT];
};

// How many elements a thread has in its registers: four, or two of 64 bits.
template <class T> struct Lanes {
    enum : u32 { COUNT = sizeof(T) == 8 ? 2 : 4 };
};

// Loads as many elements, or those before the end; the others are 0.
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
KV_DEVICE void store(const Some<T, COUNT> &some, u64 address, u64 index, u32 count, bool is_aligned) {
    T *to = (T *)address + index;
    if (is_aligned && count == COUNT) {
        store_words(to, some.words);
        return;
    }
#pragma unroll
    for (u32 lane = 0; lane < COUNT; lane++)
        if (lane < count) to[lane] = some.lanes[lane];
}
