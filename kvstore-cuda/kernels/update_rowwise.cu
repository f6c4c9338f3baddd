// Updates with row-wise rules, which have one state per row. One kernel computes the new state of
// each row, and another one updates the elements. Each formula has its own PTX file.
#include "update_rows.h"

// The elements in a block of sums, and its columns: `BLOCK` and `COLUMNS` in
// kvstore-core/src/norm.rs.
#define KV_SUM_BLOCK 4096
#define KV_SUM_COLUMNS 128

// Adds numbers one by one in pairwise order: neighbours in pairs, then pairs of these sums, until
// one number is left. `LEVELS` is the logarithm of the largest count plus one.
template <u32 LEVELS> struct Pairs {
    double sums[LEVELS];
    u32 count = 0;

    KV_DEVICE_MEMBER void add(double number) {
        u32 level = 0;
        for (u32 bits = count++; bits & 1; bits >>= 1) number = sums[level++] + number;
        sums[level] = number;
    }

    KV_DEVICE_MEMBER double total() const {
        double total = 0;
        bool is_first = true;
        for (u32 level = 0; count >> level != 0; level++) {
            if (!(count >> level & 1)) continue;
            total = is_first ? sums[level] : sums[level] + total;
            is_first = false;
        }
        return total;
    }
};

// Returns the mean square of a row of the gradient.
template <class T, class Step>
KV_DEVICE double mean_square(const RowUpdateJob &job, u64 row,
                             const typename Arithmetic<T>::Number *scalars) {
    u64 row_len = job.cut.num_units * job.cut.unit;
    Pairs<33> blocks;
    for (u64 block = 0; block < row_len; block += KV_SUM_BLOCK) {
        u64 end = block + KV_SUM_BLOCK < row_len ? block + KV_SUM_BLOCK : row_len;
        Pairs<8> columns;
        for (u64 column = block; column < end && column < block + KV_SUM_COLUMNS; column++) {
            double sum = 0;
            for (u64 index = column; index < end; index += KV_SUM_COLUMNS) {
                Some<T, 1> gradient;
                sum_unit(gradient, job.addends, row, index);
                double number = (double)Step::measure(scalars, widen(gradient.lanes[0]));
                sum += number * number;
            }
            columns.add(sum);
        }
        blocks.add(columns.total());
    }
    return blocks.total() / (double)row_len;
}

template <class T, class Step> KV_DEVICE void make_row_states(const BatchArgs<RowUpdateJob> &args) {
    typedef typename Arithmetic<T>::Number Number;
    const u32 FIRST = IsHalf<T>::VALUE ? 1 : 0;
    for (u64 number = KV_BLOCK; number < args.num_tiles; number += KV_GRID) {
        const RowUpdateJob &job = job_of(args.jobs, args.num_jobs, number);
        const RowTile tile = row_tile(job.cut, number - job.first_tile);
        // The thread block with the first tile of a long row processes the entire row.
        if (tile.first_unit != 0) continue;
        Number scalars[Step::SCALARS];
        round_scalars<Step>(scalars, job.scalars);
        for (u32 n = KV_THREAD; n < tile.num_rows; n += KV_THREADS) {
            u64 row = tile.first_row + n, index = ((const u64 *)job.ids)[row];
            Number mean = (Number)mean_square<T, Step>(job, row, scalars),
                   state[KV_MAX_STATES];
#pragma unroll
            for (u32 slot = 0; slot < Step::STATES; slot++)
                state[slot] = ((const Number *)job.states[FIRST + slot])[index];
            Step::row_state(scalars, state, mean);
#pragma unroll
            for (u32 slot = 0; slot < Step::STATES; slot++)
                ((Number *)job.states[FIRST + slot])[index] = state[slot];
        }
    }
}

template <class T, class Step, u32 COUNT>
KV_DEVICE void step_rowwise_tile(const RowUpdateJob &job, u64 number) {
    typedef typename Arithmetic<T>::Number Number;
    const bool HAS_MASTER = IsHalf<T>::VALUE;
    const u32 FIRST = HAS_MASTER ? 1 : 0;
    const RowTile tile = row_tile(job.cut, number);
    Number scalars[Step::SCALARS];
    round_scalars<Step>(scalars, job.scalars);
    for (u32 n = KV_THREAD; n < tile.size(); n += KV_THREADS) {
        u64 row = tile.first_row + tile.row_of(n), unit = tile.unit_of(n);
        u64 weight_row = ((const u64 *)job.ids)[row],
            index = (weight_row * job.cut.num_units + unit) * COUNT;
        Number state[KV_MAX_STATES];
#pragma unroll
        for (u32 slot = 0; slot < Step::STATES; slot++)
            state[slot] = ((const Number *)job.states[FIRST + slot])[weight_row];
        Some<T, COUNT> gradient, rounded;
        sum_unit(gradient, job.addends, row, unit);
        u64 address = HAS_MASTER ? job.states[0] : job.weight;
        Some<Number, COUNT> weight;
        load(weight, address, index, COUNT, COUNT > 1);
#pragma unroll
        for (u32 lane = 0; lane < COUNT; lane++) {
            Step::apply(scalars, weight.lanes[lane], state, widen(gradient.lanes[lane]), nullptr,
                        0);
            narrow(rounded.lanes[lane], (Number)weight.lanes[lane]);
        }
        store(weight, address, index, COUNT, COUNT > 1);
        if (HAS_MASTER) store(rounded, job.weight, index, COUNT, COUNT > 1);
    }
}

template <class T, class Step> KV_DEVICE void step_rowwise(const BatchArgs<RowUpdateJob> &args) {
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const RowUpdateJob &job = job_of(args.jobs, args.num_jobs, tile);
        if (job.cut.unit == 1)
            step_rowwise_tile<T, Step, 1>(job, tile - job.first_tile);
        else
            step_rowwise_tile<T, Step, Lanes<T>::COUNT>(job, tile - job.first_tile);
    }
}

// The kernels of a formula, two for each dtype of the weight.
#define KV_ROWWISE(Step) KV_FLOATS(KV_ROWWISE_OF, Step)
#define KV_ROWWISE_OF(name, T, Step)                                                               \
    KV_KERNEL(kv_row_states_##Step##_##name, BatchArgs<RowUpdateJob>, 2) {                         \
        make_row_states<T, Step##Rows>(args);                                                      \
    }                                                                                              \
    KV_KERNEL(kv_rowwise_##Step##_##name, BatchArgs<RowUpdateJob>, (sizeof(T) == 8 ? 2 : 4)) {     \
        step_rowwise<T, Step##Rows>(args);                                                         \
    }

KV_ROW_FORMULAS(KV_ROWWISE)
