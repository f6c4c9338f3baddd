// Sums of rows, and whole values made of some rows.
#include "rows.h"

// One sum of rows. `RowSumJob` in src/args/row_jobs.rs has the same fields.
struct RowSumJob {
    // The tiles of the jobs before it.
    u64 first_tile;
    RowCut cut;
    RowAddends addends;
    u64 dst;
};

// One whole value: the rows that are there, and 0 between them. `RowScatterJob` in src/args/row_jobs.rs has the same fields.
struct RowScatterJob {
    // The tiles of the jobs before it.
    u64 first_tile;
    RowCut cut;
    u64 rows, dst;
    // Where the numbers of the rows begin in the list of all. They ascend.
    u32 first_index;
    u32 num_indices;
};

template <class T, u32 COUNT> KV_DEVICE void sum_row_tile(const RowSumJob &job, const u64 *lists, u64 number) {
    const RowTile tile = row_tile(job.cut, number);
    // What is read of the job in the loop would be read again after each store.
    const RowAddends addends = job.addends;
    // Sums stand side by side.
    u64 dst = job.dst, first = tile.first_row * job.cut.num_units + tile.first_unit;
    for (u32 n = KV_THREAD; n < tile.size(); n += KV_THREADS) {
        Some<T, COUNT> sum;
        sum_unit(sum, addends, lists, tile.first_row + tile.row_of(n), tile.unit_of(n));
        store(sum, dst, (first + n) * COUNT, COUNT, COUNT > 1);
    }
}

template <class T> KV_DEVICE void sum_rows(const BatchArgs<RowSumJob> &args) {
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const RowSumJob &job = job_of(args.jobs, args.num_jobs, tile);
        if (job.cut.unit == 1)
            sum_row_tile<T, 1>(job, args.addends, tile - job.first_tile);
        else
            sum_row_tile<T, Lanes<T>::COUNT>(job, args.addends, tile - job.first_tile);
    }
}

// Rows are waited for, so it helps that five blocks run side by side; of f64 four, or registers would spill.
#define KV_SUM_ROWS(name, T, ...)                                                                                      \
    KV_KERNEL(kv_sum_rows_##name, BatchArgs<RowSumJob>, (IsFloat<T>::VALUE && sizeof(T) == 8 ? 4 : 5)) {               \
        sum_rows<T>(args);                                                                                             \
    }

KV_FLOATS(KV_SUM_ROWS)
KV_WORDS(KV_SUM_ROWS)

// Which of the numbers from `low` to `high`, which ascend, is the first that is not below a limit.
KV_DEVICE u32 first_from(const u64 *numbers, u32 low, u32 high, u64 limit) {
    while (low < high) {
        u32 middle = low + (high - low) / 2;
        if (numbers[middle] < limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// A unit is a vector of `COUNT` words of this type: 0 is all bits off whatever they mean.
template <class T, u32 COUNT> KV_DEVICE void scatter_tile(const RowScatterJob &job, const u64 *lists, u64 number) {
    const RowTile tile = row_tile(job.cut, number);
    const u64 *indices = lists + job.first_index;
    // The rows of the tile that are there: first all threads search together, then each among these.
    u32 first = first_from(indices, 0, job.num_indices, tile.first_row);
    u32 end = first + tile.num_rows < job.num_indices ? first + tile.num_rows : job.num_indices;
    end = first_from(indices, first, end, tile.first_row + tile.num_rows);
    u64 start = tile.first_row * job.cut.num_units + tile.first_unit;
    for (u32 n = KV_THREAD; n < tile.size(); n += KV_THREADS) {
        u64 index = tile.first_row + tile.row_of(n);
        u32 row = first_from(indices, first, end, index);
        bool is_there = row < end && indices[row] == index;
        Some<T, COUNT> some;
        load(some, job.rows, (row * job.cut.num_units + tile.unit_of(n)) * COUNT, is_there ? COUNT : 0, COUNT > 1);
        store(some, job.dst, (start + n) * COUNT, COUNT, COUNT > 1);
    }
}

KV_KERNEL(kv_scatter_rows, BatchArgs<RowScatterJob>, 4) {
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const RowScatterJob &job = job_of(args.jobs, args.num_jobs, tile);
        u64 number = tile - job.first_tile;
        switch (job.cut.unit) {
        case 16: scatter_tile<u32, 4>(job, args.addends, number); break;
        case 8: scatter_tile<u32, 2>(job, args.addends, number); break;
        case 4: scatter_tile<u32, 1>(job, args.addends, number); break;
        case 2: scatter_tile<u16, 1>(job, args.addends, number); break;
        default: scatter_tile<u8, 1>(job, args.addends, number); break;
        }
    }
}

#ifdef KV_EMULATED
#define KV_ROW_CUT_LAYOUT(Job)                                                                                         \
    offsetof(Job, first_tile), offsetof(Job, cut.num_rows), offsetof(Job, cut.num_units),                              \
        offsetof(Job, cut.rows_per_tile), offsetof(Job, cut.tiles_per_row), offsetof(Job, cut.reciprocal),             \
        offsetof(Job, cut.unit)

// Sizes and places of fields, which Rust's structs have to have too.
extern "C" void kv_rows_layout(u64 *out) {
    const u64 layout[] = {sizeof(RowSumJob),
                          KV_ROW_CUT_LAYOUT(RowSumJob),
                          offsetof(RowSumJob, addends.first_source),
                          offsetof(RowSumJob, addends.first_start),
                          offsetof(RowSumJob, addends.full),
                          offsetof(RowSumJob, dst),
                          sizeof(RowScatterJob),
                          KV_ROW_CUT_LAYOUT(RowScatterJob),
                          offsetof(RowScatterJob, rows),
                          offsetof(RowScatterJob, dst),
                          offsetof(RowScatterJob, first_index),
                          offsetof(RowScatterJob, num_indices)};
    memcpy(out, layout, sizeof layout);
}
#endif
