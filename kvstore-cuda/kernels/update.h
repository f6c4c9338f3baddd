// Optimizer steps of a batch, each in one pass with the sum of its gradients.
#pragma once

#include "dtypes.h"
#include "lanes.h"

#define KV_MAX_STATES 4
#define KV_MAX_SCALARS 12

// One step. `UpdateJob` in src/args/update.rs has the same fields.
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
    // Of the noise, for formulas that have some: the key of its generator, and the number of the update.
    u32 stream[2];
    u64 count;
};

// The formulas with noise read a job.
#include "formulas.h"

// Elements that a block works on before it takes the next ones.
#define KV_UPDATE_TILE 4096

// The sum of the gradients, rounded to their type as a sum is that is stored.
template <class T, u32 COUNT>
KV_DEVICE void sum_gradients(Some<T, COUNT> &gradient, const UpdateJob &job, const u64 *addends, u64 index, u32 count) {
    typename Arithmetic<T>::Number sums[COUNT];
    for (u32 n = 0; n < job.num_addends; n++) {
        Some<T, COUNT> loaded;
        load(loaded, addends[n], index, count, job.is_aligned);
#pragma unroll
        for (u32 lane = 0; lane < COUNT; lane++)
            sums[lane] = n == 0 ? widen(loaded.lanes[lane]) : sums[lane] + widen(loaded.lanes[lane]);
    }
#pragma unroll
    for (u32 lane = 0; lane < COUNT; lane++) narrow(gradient.lanes[lane], sums[lane]);
}

// What a step reads and writes: the fields of a job, which are read when they are needed. Registers are few.
struct Stepped {
    const u64 &weight_from, &weight_to;
    const u64 *states_from, *states_to;
    // Has the fields that noise depends on. Null for formulas without noise.
    const UpdateJob *noise;
};

// Steps the elements that a thread has from `index` on.
template <class T, class Step, u32 COUNT>
KV_DEVICE void step_some(const Stepped &memory, const typename Arithmetic<T>::Number *scalars,
                         const Some<T, COUNT> &gradient, u64 index, u32 count, bool is_aligned) {
    typedef typename Arithmetic<T>::Number Number;
    // Is the weight kept twice: rounded, and as it is computed?
    const bool HAS_MASTER = IsHalf<T>::VALUE;
    const u32 FIRST = HAS_MASTER ? 1 : 0, ALL = Step::STATES + FIRST;
    Some<Number, COUNT> weight, states[KV_MAX_STATES];
    load(weight, HAS_MASTER ? memory.states_from[0] : memory.weight_from, index, count, is_aligned);
#pragma unroll
    for (u32 n = FIRST; n < ALL; n++) load(states[n], memory.states_from[n], index, count, is_aligned);
#pragma unroll
    for (u32 lane = 0; lane < COUNT; lane++) {
        Number state[KV_MAX_STATES];
#pragma unroll
        for (u32 n = FIRST; n < ALL; n++) state[n - FIRST] = states[n].lanes[lane];
        Step::apply(scalars, weight.lanes[lane], state, widen(gradient.lanes[lane]), memory.noise, index + lane);
#pragma unroll
        for (u32 n = FIRST; n < ALL; n++) states[n].lanes[lane] = state[n - FIRST];
    }
#pragma unroll
    for (u32 n = FIRST; n < ALL; n++) store(states[n], memory.states_to[n], index, count, is_aligned);
    if (HAS_MASTER) {
        store(weight, memory.states_to[0], index, count, is_aligned);
        Some<T, COUNT> rounded;
#pragma unroll
        for (u32 lane = 0; lane < COUNT; lane++) narrow(rounded.lanes[lane], (Number)weight.lanes[lane]);
        store(rounded, memory.weight_to, index, count, is_aligned);
    } else {
        store(weight, memory.weight_to, index, count, is_aligned);
    }
}

// Rounds the scalars of a step to what is computed in.
template <class Step, class Number>
KV_DEVICE void round_scalars(Number (&rounded)[Step::SCALARS], const double *scalars) {
#pragma unroll
    for (u32 n = 0; n < Step::SCALARS; n++) rounded[n] = (Number)scalars[n];
}

template <class T, class Step> KV_DEVICE void update(const BatchArgs<UpdateJob> &args) {
    typedef typename Arithmetic<T>::Number Number;
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const UpdateJob &job = job_of(args.jobs, args.num_jobs, tile);
        const u64 *addends = args.addends + job.first_addend;
        const Stepped memory = {job.weight_from, job.weight_to, job.states_from, job.states_to, &job};
        Number scalars[Step::SCALARS];
        round_scalars<Step>(scalars, job.scalars);
        u64 begin = (tile - job.first_tile) * KV_UPDATE_TILE;
        u64 end = begin + KV_UPDATE_TILE < job.len ? begin + KV_UPDATE_TILE : job.len;
        const u32 COUNT = Lanes<T>::COUNT;
        for (u64 index = begin + KV_THREAD * COUNT; index < end; index += KV_THREADS * COUNT) {
            u32 count = end - index < COUNT ? (u32)(end - index) : COUNT;
            Some<T, COUNT> gradient;
            sum_gradients(gradient, job, addends, index, count);
            step_some<T, Step>(memory, scalars, gradient, index, count, job.is_aligned);
        }
    }
}

// The kernels of a formula, one for each type of a weight. In 64 bits a root or a quotient alone takes many registers,
// and noise is made in 64 bits whatever the weight is.
#define KV_UPDATE(Step) KV_FLOATS(KV_UPDATE_OF, Step)
#define KV_UPDATE_OF(name, T, Step)                                                                                    \
    KV_KERNEL(kv_##Step##_##name, BatchArgs<UpdateJob>, (sizeof(T) == 8 || Step::HAS_NOISE ? 2 : 4)) {                 \
        update<T, Step>(args);                                                                                         \
    }
