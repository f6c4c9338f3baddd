// Sums of squares of a batch. A job is an `UpdateJob`. Its `weight_to` is the destination of the
// partial sums, two for each thread that sums a block. kv_add_in_pairs adds them.
#pragma once

#include "update.h"

// The number of elements in a block: `BLOCK` in kvstore-core/src/norm.rs.
#define KV_NORM_BLOCK 4096
// The number of threads that sum a block. Each thread has four columns, so there are as many
// columns as `COLUMNS` in kvstore-core/src/norm.rs.
#define KV_NORM_THREADS 32
#define KV_NORM_COLUMNS 4
// The number of elements that a thread block processes at a time.
#define KV_NORM_TILE (KV_NORM_BLOCK * (KV_THREADS / KV_NORM_THREADS))

// Adds the squares of a thread's elements in a block to the sums of its columns.
template <class T, class Step>
KV_DEVICE void add_squares(double (&sums)[2][KV_NORM_COLUMNS], const UpdateJob &job,
                           const u64 *addends, u64 begin, u64 end) {
    typedef typename Arithmetic<T>::Number Number;
    const u32 COUNT = Lanes<T>::COUNT, FIRST = IsHalf<T>::VALUE ? 1 : 0;
    const u64 weight_from =
        IsHalf<T>::VALUE && Step::HAS_WEIGHT ? job.states_from[0] : job.weight_from;
    Number scalars[Step::SCALARS];
    round_scalars<Step>(scalars, job.scalars);
    for (u64 row = begin; row < end; row += KV_NORM_COLUMNS * KV_NORM_THREADS) {
#pragma unroll
        for (u32 column = 0; column < KV_NORM_COLUMNS; column += COUNT) {
            u64 index = row + KV_THREAD % KV_NORM_THREADS * KV_NORM_COLUMNS + column;
            if (index >= end) continue;
            u32 count = end - index < COUNT ? (u32)(end - index) : COUNT;
            Some<T, COUNT> gradient;
            Some<Number, COUNT> weight, states[KV_MAX_STATES];
            auto load_all = [&](u32 num, bool is_aligned) {
                if (Step::HAS_WEIGHT) load(weight, weight_from, index, num, is_aligned);
#pragma unroll
                for (u32 n = 0; n < Step::MEASURED_STATES; n++)
                    load(states[n], job.states_from[FIRST + n], index, num, is_aligned);
                load(gradient, addends[0], index, num, is_aligned);
                add_gradients<1>(gradient, job, addends, index, num, is_aligned);
            };
            // One branch for all loads, so that they are issued together.
            if (job.is_aligned && count == COUNT)
                load_all(COUNT, true);
            else
                load_all(count, false);
#pragma unroll
            for (u32 lane = 0; lane < COUNT; lane++) {
                if (lane >= count) continue;
                Number state[KV_MAX_STATES], norms[2];
#pragma unroll
                for (u32 n = 0; n < Step::MEASURED_STATES; n++) state[n] = states[n].lanes[lane];
                Number w = Step::HAS_WEIGHT ? (Number)weight.lanes[lane] : (Number)0;
                Step::measure(scalars, w, state, widen(gradient.lanes[lane]), norms);
#pragma unroll
                for (u32 n = 0; n < 2; n++)
                    sums[n][column + lane] += (double)norms[n] * (double)norms[n];
            }
        }
    }
}

template <class T, class Step> KV_DEVICE void measure(const BatchArgs<UpdateJob> &args) {
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const UpdateJob &job = job_of(args.jobs, args.num_jobs, tile);
        u64 block =
            (tile - job.first_tile) * (KV_THREADS / KV_NORM_THREADS) + KV_THREAD / KV_NORM_THREADS;
        u64 begin = block * KV_NORM_BLOCK;
        if (begin >= job.len) continue;
        u64 end = begin + KV_NORM_BLOCK < job.len ? begin + KV_NORM_BLOCK : job.len;
        double sums[2][KV_NORM_COLUMNS] = {};
        add_squares<T, Step>(sums, job, args.addends + job.first_addend, begin, end);
        double *partial =
            (double *)job.weight_to + block * 2 * KV_NORM_THREADS + KV_THREAD % KV_NORM_THREADS;
#pragma unroll
        for (u32 n = 0; n < 2; n++)
            partial[n * KV_NORM_THREADS] = (sums[n][0] + sums[n][1]) + (sums[n][2] + sums[n][3]);
    }
}

// The kernels of a formula, one for each dtype of the gradient.
#define KV_MEASURE(name, Step) KV_FLOATS(KV_MEASURE_OF, name, Step)
#define KV_MEASURE_OF(dtype, T, name, Step)                                                        \
    KV_KERNEL(kv_measure_##name##_##dtype, BatchArgs<UpdateJob>, 2) { measure<T, Step>(args); }
