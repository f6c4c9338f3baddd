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

// Adds the other gradients to the first one, and rounds the sum to their type as a sum is that is stored.
template <u32 AHEAD, class T, u32 COUNT>
KV_DEVICE void add_gradients(Some<T, COUNT> &gradient, const UpdateJob &job, const u64 *addends, u64 index, u32 count,
                             bool is_aligned) {
    typename Arithmetic<T>::Number sums[COUNT];
#pragma unroll
    for (u32 lane = 0; lane < COUNT; lane++) sums[lane] = widen(gradient.lanes[lane]);
    fold<Some<T, COUNT>, AHEAD>(
        1, job.num_addends, [&](Some<T, COUNT> &x, u32 n) { load(x, addends[n], index, count, is_aligned); },
        [&](const Some<T, COUNT> &x, bool) {
#pragma unroll
            for (u32 lane = 0; lane < COUNT; lane++) sums[lane] = sums[lane] + widen(x.lanes[lane]);
        });
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

// Weight and state of some elements that a thread steps.
template <class T, class Step, u32 COUNT> struct Operands {
    typedef typename Arithmetic<T>::Number Number;
    // Is the weight kept twice: rounded, and as it is computed?
    enum : bool { HAS_MASTER = IsHalf<T>::VALUE };
    enum : u32 { FIRST = HAS_MASTER ? 1 : 0, ALL = Step::STATES + FIRST };
    Some<Number, COUNT> weight, states[KV_MAX_STATES];

    KV_DEVICE_MEMBER void load_from(const Stepped &memory, u64 index, u32 count, bool is_aligned) {
        load(weight, HAS_MASTER ? memory.states_from[0] : memory.weight_from, index, count, is_aligned);
#pragma unroll
        for (u32 n = FIRST; n < ALL; n++) load(states[n], memory.states_from[n], index, count, is_aligned);
    }

    KV_DEVICE_MEMBER void step(const Stepped &memory, const Number *scalars, const Some<T, COUNT> &gradient,
                               u64 index) {
#pragma unroll
        for (u32 lane = 0; lane < COUNT; lane++) {
            Number state[KV_MAX_STATES];
#pragma unroll
            for (u32 n = FIRST; n < ALL; n++) state[n - FIRST] = states[n].lanes[lane];
            Step::apply(scalars, weight.lanes[lane], state, widen(gradient.lanes[lane]), memory.noise, index + lane);
#pragma unroll
            for (u32 n = FIRST; n < ALL; n++) states[n].lanes[lane] = state[n - FIRST];
        }
    }

    KV_DEVICE_MEMBER void store_to(const Stepped &memory, u64 index, u32 count, bool is_aligned) const {
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
};

// Rounds the scalars of a step to what is computed in.
template <class Step, class Number>
KV_DEVICE void round_scalars(Number (&rounded)[Step::SCALARS], const double *scalars) {
#pragma unroll
    for (u32 n = 0; n < Step::SCALARS; n++) rounded[n] = (Number)scalars[n];
}

template <class T, class Step> KV_DEVICE void update(const BatchArgs<UpdateJob> &args) {
    const u32 COUNT = Lanes<T>::COUNT;
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const UpdateJob &job = job_of(args.jobs, args.num_jobs, tile);
        u64 index = ((tile - job.first_tile) * KV_THREADS + KV_THREAD) * COUNT;
        if (index >= job.len) continue;
        const u64 *addends = args.addends + job.first_addend;
        const Stepped memory = {job.weight_from, job.weight_to, job.states_from, job.states_to, &job};
        u32 count = job.len - index < COUNT ? (u32)(job.len - index) : COUNT;
        Some<T, COUNT> gradient;
        Operands<T, Step, COUNT> operands;
        // One branch for all loads, so that they follow each other. Weight and state come first: the address of the
        // gradient takes a load more.
        const u64 first_addend = addends[0];
        bool is_vector = job.is_aligned && count == COUNT;
        if (is_vector) {
            operands.load_from(memory, index, COUNT, true);
            load(gradient, first_addend, index, COUNT, true);
            add_gradients<KV_AHEAD>(gradient, job, addends, index, COUNT, true);
        } else {
            operands.load_from(memory, index, count, false);
            load(gradient, first_addend, index, count, false);
            add_gradients<1>(gradient, job, addends, index, count, false);
        }
        // After the loads, which would otherwise wait for the scalars.
        typename Arithmetic<T>::Number scalars[Step::SCALARS];
        round_scalars<Step>(scalars, job.scalars);
        operands.step(memory, scalars, gradient, index);
        if (is_vector)
            operands.store_to(memory, index, COUNT, true);
        else
            operands.store_to(memory, index, count, false);
    }
}

// The kernels of a formula, one for each type of a weight. In 64 bits a root or a quotient alone takes many registers,
// and noise is made in 64 bits whatever the weight is.
#define KV_UPDATE(Step) KV_FLOATS(KV_UPDATE_OF, Step)
#define KV_UPDATE_OF(name, T, Step)                                                                                    \
    KV_KERNEL(kv_##Step##_##name, BatchArgs<UpdateJob>, (sizeof(T) == 8 || Step::HAS_NOISE ? 2 : 4)) {                 \
        update<T, Step>(args);                                                                                         \
    }
