// Optimizer steps of a batch, each in one pass with the sum of its gradients.
#pragma once

#include "lanes.h"
#include "steps.h"

#define KV_MAX_STATES 4
#define KV_MAX_SCALARS 12

// One step. `UpdateJob` in src/update.rs has the same fields.
struct UpdateJob {
    // The tiles of the jobs before it.
    u64 first_tile;
    // In elements.
    u64 len;
    // Read and written; the same address where it is in place.
    u64 weight_from, weight_to;
    // Of a weight of half precision the first one is its master copy, and nothing else is read of the weight.
    u64 states_from[KV_MAX_STATES], states_to[KV_MAX_STATES];
    // Rounded once to what is computed in.
    double scalars[KV_MAX_SCALARS];
    // Where its gradients begin in the list of all.
    u32 first_addend;
    u32 num_addends;
    // Whether all pointers are aligned to as many elements as a thread loads at a time.
    u32 is_aligned;
    u32 unused;
};

struct UpdateArgs {
    const UpdateJob *jobs;
    // Addresses.
    const u64 *addends;
    u64 num_tiles;
    u32 num_jobs;
    u32 unused;
};

// Elements that a block works on before it takes the next ones.
#define KV_UPDATE_TILE 4096

// How many elements a thread has in its registers: four, or two of 64 bits.
template <class T> struct Lanes {
    static const u32 COUNT = sizeof(T) == 8 ? 2 : 4;
};

// Is the weight kept twice: rounded, and as it is computed?
template <class T> struct HasMaster {
    static const bool VALUE = false;
};
template <> struct HasMaster<f16> {
    static const bool VALUE = true;
};
template <> struct HasMaster<bf16> {
    static const bool VALUE = true;
};

// The sum of the gradients, rounded to their type as a sum is that is stored.
template <class T>
KV_DEVICE void sum_gradients(typename Arithmetic<T>::Number *sums, const UpdateJob &job, const u64 *addends, u64 index,
                             u32 count) {
    const u32 COUNT = Lanes<T>::COUNT;
    for (u32 n = 0; n < job.num_addends; n++) {
        Some<T, COUNT> loaded;
        load(loaded, addends[n], index, count, job.is_aligned);
#pragma unroll
        for (u32 lane = 0; lane < COUNT; lane++)
            sums[lane] = n == 0 ? widen(loaded.lanes[lane]) : sums[lane] + widen(loaded.lanes[lane]);
    }
#pragma unroll
    for (u32 lane = 0; lane < COUNT; lane++) {
        T rounded;
        narrow(rounded, sums[lane]);
        sums[lane] = widen(rounded);
    }
}

// Steps the elements that a thread has from `index` on.
template <class T, class Step>
KV_DEVICE void step_some(const UpdateJob &job, const u64 *addends, const typename Arithmetic<T>::Number *scalars,
                         u64 index, u32 count) {
    typedef typename Arithmetic<T>::Number Number;
    const bool HAS_MASTER = HasMaster<T>::VALUE;
    const u32 FIRST = HAS_MASTER ? 1 : 0, ALL = Step::STATES + FIRST, COUNT = Lanes<T>::COUNT;
    Number sums[COUNT];
    sum_gradients<T>(sums, job, addends, index, count);
    Some<Number, COUNT> weight, states[KV_MAX_STATES];
    load(weight, HAS_MASTER ? job.states_from[0] : job.weight_from, index, count, job.is_aligned);
#pragma unroll
    for (u32 n = FIRST; n < ALL; n++) load(states[n], job.states_from[n], index, count, job.is_aligned);
#pragma unroll
    for (u32 lane = 0; lane < COUNT; lane++) {
        Number state[KV_MAX_STATES];
#pragma unroll
        for (u32 n = FIRST; n < ALL; n++) state[n - FIRST] = states[n].lanes[lane];
        Step::apply(scalars, weight.lanes[lane], state, sums[lane]);
#pragma unroll
        for (u32 n = FIRST; n < ALL; n++) states[n].lanes[lane] = state[n - FIRST];
    }
#pragma unroll
    for (u32 n = FIRST; n < ALL; n++) store(states[n], job.states_to[n], index, count, job.is_aligned);
    if (HAS_MASTER) {
        store(weight, job.states_to[0], index, count, job.is_aligned);
        Some<T, COUNT> rounded;
#pragma unroll
        for (u32 lane = 0; lane < COUNT; lane++) narrow(rounded.lanes[lane], (Number)weight.lanes[lane]);
        store(rounded, job.weight_to, index, count, job.is_aligned);
    } else {
        store(weight, job.weight_to, index, count, job.is_aligned);
    }
}

template <class T, class Step> KV_DEVICE void update(const UpdateArgs &args) {
    typedef typename Arithmetic<T>::Number Number;
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const UpdateJob &job = job_of(args.jobs, args.num_jobs, tile);
        const u64 *addends = args.addends + job.first_addend;
        Number scalars[Step::SCALARS];
#pragma unroll
        for (u32 n = 0; n < Step::SCALARS; n++) scalars[n] = (Number)job.scalars[n];
        u64 begin = (tile - job.first_tile) * KV_UPDATE_TILE;
        u64 end = begin + KV_UPDATE_TILE < job.len ? begin + KV_UPDATE_TILE : job.len;
        const u32 COUNT = Lanes<T>::COUNT;
        for (u64 index = begin + KV_THREAD * COUNT; index < end; index += KV_THREADS * COUNT)
            step_some<T, Step>(job, addends, scalars, index, end - index < COUNT ? (u32)(end - index) : COUNT);
    }
}

// The kernels of a formula, one for each type of a weight. In 64 bits a root or a quotient alone takes many registers.
#define KV_UPDATE(Step)                                                                                                \
    KV_KERNEL(kv_##Step##_f32, UpdateArgs, 4) { update<float, Step>(args); }                                           \
    KV_KERNEL(kv_##Step##_f64, UpdateArgs, 2) { update<double, Step>(args); }                                          \
    KV_KERNEL(kv_##Step##_f16, UpdateArgs, 4) { update<f16, Step>(args); }                                             \
    KV_KERNEL(kv_##Step##_bf16, UpdateArgs, 4) { update<bf16, Step>(args); }
