// Optimizer updates of a batch. Each update sums its gradients in the same pass.
#pragma once

#include "dtypes.h"
#include "lanes.h"

#define KV_MAX_STATES 4
#define KV_MAX_SCALARS 12

// An update. `UpdateJob` in src/args/update.rs has the same fields.
struct UpdateJob {
    // The number of tiles of all earlier jobs.
    u64 first_tile;
    // The number of elements.
    u64 len;
    // The old and the new weight. The addresses are equal if it is updated in place.
    u64 weight_from, weight_to;
    // For a half-precision weight, the first state is the master copy, and `weight_from` is not
    // read.
    u64 states_from[KV_MAX_STATES], states_to[KV_MAX_STATES];
    // They are rounded once, to the type of the arithmetic.
    double scalars[KV_MAX_SCALARS];
    // The position of the gradients in the list of addends.
    u32 first_addend;
    u32 num_addends;
    // Whether the elements of a thread can be loaded in one instruction from all pointers.
    u32 is_aligned;
    u32 unused;
    // For formulas with noise: the key of the random number generator, and the update number.
    u32 stream[2];
    u64 count;
};

// After `UpdateJob`, because formulas with noise read a job.
#include "formulas.h"

// Adds the other gradients to the first one, and rounds the sum to the dtype of the gradients, as a
// stored sum is rounded.
template <u32 AHEAD, class T, u32 COUNT>
KV_DEVICE void add_gradients(Some<T, COUNT> &gradient, const UpdateJob &job, const u64 *addends,
                             u64 index, u32 count, bool is_aligned) {
    typename Arithmetic<T>::Number sums[COUNT];
#pragma unroll
    for (u32 lane = 0; lane < COUNT; lane++) sums[lane] = widen(gradient.lanes[lane]);
    fold<Some<T, COUNT>, AHEAD>(
        1, job.num_addends,
        [&](Some<T, COUNT> &x, u32 n) { load(x, addends[n], index, count, is_aligned); },
        [&](const Some<T, COUNT> &x, bool) {
#pragma unroll
            for (u32 lane = 0; lane < COUNT; lane++) sums[lane] = sums[lane] + widen(x.lanes[lane]);
        });
#pragma unroll
    for (u32 lane = 0; lane < COUNT; lane++) narrow(gradient.lanes[lane], sums[lane]);
}

// The memory of an update: fields of a job, which are read when they are needed, to save registers.
struct Stepped {
    const u64 &weight_from, &weight_to;
    const u64 *states_from, *states_to;
    // The job, for formulas with noise. Null in the kernels for rows, whose formulas have no noise.
    const UpdateJob *noise;
};

// The weight and the states of the elements that a thread updates.
template <class T, class Step, u32 COUNT> struct Operands {
    typedef typename Arithmetic<T>::Number Number;
    // Whether the weight is stored twice: rounded, and as a master copy.
    enum : bool { HAS_MASTER = IsHalf<T>::VALUE };
    enum : u32 { FIRST = HAS_MASTER ? 1 : 0, ALL = Step::STATES + FIRST };
    Some<Number, COUNT> weight, states[KV_MAX_STATES];

    KV_DEVICE_MEMBER void load_from(const Stepped &memory, u64 index, u32 count, bool is_aligned) {
        load(weight, HAS_MASTER ? memory.states_from[0] : memory.weight_from, index, count,
             is_aligned);
#pragma unroll
        for (u32 n = FIRST; n < ALL; n++)
            load(states[n], memory.states_from[n], index, count, is_aligned);
    }

    KV_DEVICE_MEMBER void step(const Stepped &memory, const Number *scalars,
                               const Some<T, COUNT> &gradient, u64 index) {
#pragma unroll
        for (u32 lane = 0; lane < COUNT; lane++) {
            Number state[KV_MAX_STATES];
#pragma unroll
            for (u32 n = FIRST; n < ALL; n++) state[n - FIRST] = states[n].lanes[lane];
            Step::apply(scalars, weight.lanes[lane], state, widen(gradient.lanes[lane]),
                        memory.noise, index + lane);
#pragma unroll
            for (u32 n = FIRST; n < ALL; n++) states[n].lanes[lane] = state[n - FIRST];
        }
    }

    KV_DEVICE_MEMBER void store_to(const Stepped &memory, u64 index, u32 count,
                                   bool is_aligned) const {
#pragma unroll
        for (u32 n = FIRST; n < ALL; n++)
            store(states[n], memory.states_to[n], index, count, is_aligned);
        if (HAS_MASTER) {
            store(weight, memory.states_to[0], index, count, is_aligned);
            Some<T, COUNT> rounded;
#pragma unroll
            for (u32 lane = 0; lane < COUNT; lane++)
                narrow(rounded.lanes[lane], (Number)weight.lanes[lane]);
            store(rounded, memory.weight_to, index, count, is_aligned);
        } else {
            store(weight, memory.weight_to, index, count, is_aligned);
        }
    }
};

// Rounds the scalars of an update to the type of the arithmetic.
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
        const Stepped memory = {job.weight_from, job.weight_to, job.states_from, job.states_to,
                                &job};
        u32 count = job.len - index < COUNT ? (u32)(job.len - index) : COUNT;
        Some<T, COUNT> gradient;
        Operands<T, Step, COUNT> operands;
        // One branch for all loads, so that they are issued together. Weight and states come first,
        // because the address of the gradient needs one more load.
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

// The kernels of a formula, one for each dtype of the weight. In 64 bits, a square root or a
// quotient takes many registers, and noise is always computed in 64 bits.
#define KV_UPDATE(Step) KV_FLOATS(KV_UPDATE_OF, Step)
#define KV_UPDATE_OF(name, T, Step)                                                                \
    KV_KERNEL(kv_##Step##_##name, BatchArgs<UpdateJob>,                                            \
              (sizeof(T) == 8 || Step::HAS_NOISE ? 2 : 4)) {                                       \
        update<T, Step>(args);                                                                     \
    }
