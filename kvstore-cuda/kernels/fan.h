// One range and several others of the same length, by tiles: sums of the others, or copies to them.
#pragma once
#include "kernel.h"

// `FanJob` in src/args/fan.rs has the same fields.
struct FanJob {
    // The number of tiles of all earlier jobs.
    u64 first_tile;
    u64 one;
    // The number of elements.
    u64 len;
    // The position of the others in the list of addends.
    u32 first_other;
    u32 num_others;
    // The number of elements before all pointers are aligned to 16 bytes, or KV_NEVER.
    u32 head;
    u32 unused;
};

// Calls `Work::vector(job, others, index)` for each aligned vector, and
// `Work::element(job, others, index)` for each other element.
template <class T, class Work>
KV_DEVICE void fan_tile(const FanJob &job, const u64 *others, u64 tile) {
    const u32 LANES = Vector<T>::LANES, TILE = KV_TILE_BYTES / sizeof(T);
    u64 head = job.head == KV_NEVER ? 0 : job.head;
    // The first tile also has the elements before the first aligned one.
    u64 begin = head + tile * TILE, end = begin + TILE < job.len ? begin + TILE : job.len,
        rest = begin;
    if (tile == 0 && KV_THREAD < head) Work::element(job, others, KV_THREAD);
    if (job.head != KV_NEVER) {
        u64 vector = begin + KV_THREAD * LANES;
        if (vector + LANES <= end) Work::vector(job, others, vector);
        rest = end - (end - begin) % LANES;
    }
    // Not unrolled: that would take registers from the loop over vectors.
#pragma unroll 1
    for (u64 index = rest + KV_THREAD; index < end; index += KV_THREADS)
        Work::element(job, others, index);
}

template <class T, class Work> KV_DEVICE void fan(const BatchArgs<FanJob> &args) {
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const FanJob &job = job_of(args.jobs, args.num_jobs, tile);
        fan_tile<T, Work>(job, args.addends + job.first_other, tile - job.first_tile);
    }
}
