// One range and several others as long, by tiles: what is made of all others (sums), or goes to all of them (copies).
#pragma once
#include "kernel.h"

// `FanJob` in src/args/fan.rs has the same fields.
struct FanJob {
    // The tiles of the jobs before it.
    u64 first_tile;
    u64 one;
    // In elements.
    u64 len;
    // Where the others begin in the list of all.
    u32 first_other;
    u32 num_others;
    // How many elements come before all pointers are aligned to 16 bytes, or KV_NEVER.
    u32 head;
    u32 unused;
};

// What is done is `Work::element(job, others, index)`, and for `COUNT` vectors in places that are a block's threads
// apart `Work::vectors<COUNT>(job, others, index)`. `AT_ONCE` vectors of a thread are worked on together.
template <class T, class Work> KV_DEVICE void fan_tile(const FanJob &job, const u64 *others, u64 tile) {
    const u32 LANES = Vector<T>::LANES, TILE = KV_TILE_BYTES / sizeof(T);
    const u32 VECTORS = TILE / (LANES * KV_THREADS), AT_ONCE = Work::AT_ONCE;
    u64 head = job.head == KV_NEVER ? 0 : job.head;
    // The first tile has the elements before the first aligned one, too.
    u64 begin = head + tile * TILE, end = begin + TILE < job.len ? begin + TILE : job.len;
    if (tile == 0 && KV_THREAD < head) Work::element(job, others, KV_THREAD);
    if (job.head != KV_NEVER && begin + TILE <= job.len) {
#pragma unroll
        for (u32 v = 0; v < VECTORS; v += AT_ONCE)
            Work::template vectors<AT_ONCE>(job, others, begin + (v * KV_THREADS + KV_THREAD) * LANES);
        return;
    }
    u64 rest = begin;
    if (job.head != KV_NEVER) {
        u64 vector = begin + KV_THREAD * LANES;
        for (; vector + LANES <= end; vector += KV_THREADS * LANES) Work::template vectors<1>(job, others, vector);
        rest = begin < end ? end - (end - begin) % LANES : end;
    }
    for (u64 index = rest + KV_THREAD; index < end; index += KV_THREADS) Work::element(job, others, index);
}

template <class T, class Work> KV_DEVICE void fan(const BatchArgs<FanJob> &args) {
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const FanJob &job = job_of(args.jobs, args.num_jobs, tile);
        fan_tile<T, Work>(job, args.addends + job.first_other, tile - job.first_tile);
    }
}
