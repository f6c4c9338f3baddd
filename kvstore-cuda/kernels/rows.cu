// Sums of rows, and dense values written from some of their rows.
#include "rows.h"

// A sum of rows. `RowSumJob` in src/args/row_jobs.rs has the same fields.
struct RowSumJob {
    // The number of tiles of all earlier jobs.
    u64 first_tile;
    RowCut cut;
    RowAddends addends;
    u64 dst;
};

// A dense value to write: its rows, and zeros between them. `RowScatterJob` in src/args/row_jobs.rs
// has the same fields.
struct RowScatterJob {
    // The number of tiles of all earlier jobs.
    u64 first_tile;
    RowCut cut;
    u64 rows, dst;
    // The row indices, in ascending order.
    u64 ids;
    u32 num_ids;
    u32 unused;
};

template <class T, u32 COUNT>
KV_DEVICE void sum_row_tile(const RowSumJob &job, u64 number) {
    const RowTile tile = row_tile(job.cut, number);
    // A copy in registers. The compiler would read the fields of the job again after each store.
    const RowAddends addends = job.addends;
    // The sums are contiguous.
    u64 dst = job.dst, first = tile.first_row * job.cut.num_units + tile.first_unit;
    for (u32 n = KV_THREAD; n < tile.size(); n += KV_THREADS) {
        Some<T, COUNT> sum;
        sum_unit(sum, addends, tile.first_row + tile.row_of(n), tile.unit_of(n));
        store(sum, dst, (first + n) * COUNT, COUNT, COUNT > 1);
    }
}

template <class T> KV_DEVICE void sum_rows(const BatchArgs<RowSumJob> &args) {
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const RowSumJob &job = job_of(args.jobs, args.num_jobs, tile);
        if (job.cut.unit == 1)
            sum_row_tile<T, 1>(job, tile - job.first_tile);
        else
            sum_row_tile<T, Lanes<T>::COUNT>(job, tile - job.first_tile);
    }
}

// Loads of rows have a high latency, so let five blocks run side by side. For 64-bit elements, four
// blocks: with five, registers would spill.
#define KV_SUM_ROWS(name, T, ...)                                                                  \
    KV_KERNEL(kv_sum_rows_##name, BatchArgs<RowSumJob>, (sizeof(T) == 8 ? 4 : 5)) {                \
        sum_rows<T>(args);                                                                         \
    }

KV_FLOATS(KV_SUM_ROWS)
KV_WORDS(KV_SUM_ROWS)

// A unit is a vector of `COUNT` words of type `T`. Only the bits matter: 0 has all bits off in
// every dtype.
template <class T, u32 COUNT>
KV_DEVICE void scatter_tile(const RowScatterJob &job, u64 number) {
    const RowTile tile = row_tile(job.cut, number);
    const u64 *indices = (const u64 *)job.ids;
    // Find the stored rows of the tile. All threads search together for the range, then each thread
    // searches in it.
    u32 first = first_from(indices, 0, job.num_ids, tile.first_row);
    u32 end = first + tile.num_rows < job.num_ids ? first + tile.num_rows : job.num_ids;
    end = first_from(indices, first, end, tile.first_row + tile.num_rows);
    u64 start = tile.first_row * job.cut.num_units + tile.first_unit;
    for (u32 n = KV_THREAD; n < tile.size(); n += KV_THREADS) {
        u64 index = tile.first_row + tile.row_of(n);
        u32 row = first_from(indices, first, end, index);
        bool is_there = row < end && indices[row] == index;
        Some<T, COUNT> some;
        load(some, job.rows, (row * job.cut.num_units + tile.unit_of(n)) * COUNT,
             is_there ? COUNT : 0, COUNT > 1);
        store(some, job.dst, (start + n) * COUNT, COUNT, COUNT > 1);
    }
}

KV_KERNEL(kv_scatter_rows, BatchArgs<RowScatterJob>, 4) {
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const RowScatterJob &job = job_of(args.jobs, args.num_jobs, tile);
        u64 number = tile - job.first_tile;
        switch (job.cut.unit) {
        case 16: scatter_tile<u32, 4>(job, number); break;
        case 8: scatter_tile<u32, 2>(job, number); break;
        case 4: scatter_tile<u32, 1>(job, number); break;
        case 2: scatter_tile<u16, 1>(job, number); break;
        default: scatter_tile<u8, 1>(job, number); break;
        }
    }
}

#ifdef KV_EMULATED
#define KV_ROW_CUT_LAYOUT(Job)                                                                     \
    offsetof(Job, first_tile), offsetof(Job, cut.num_rows), offsetof(Job, cut.num_units),          \
        offsetof(Job, cut.rows_per_tile), offsetof(Job, cut.tiles_per_row),                        \
        offsetof(Job, cut.reciprocal), offsetof(Job, cut.unit)

// The layout of the structs, which tests compare with the Rust structs.
extern "C" void kv_rows_layout(u64 *out) {
    const u64 layout[] = {sizeof(RowSumJob),
                          KV_ROW_CUT_LAYOUT(RowSumJob),
                          offsetof(RowSumJob, addends.sources),
                          offsetof(RowSumJob, addends.starts),
                          offsetof(RowSumJob, addends.full),
                          offsetof(RowSumJob, dst),
                          sizeof(RowScatterJob),
                          KV_ROW_CUT_LAYOUT(RowScatterJob),
                          offsetof(RowScatterJob, rows),
                          offsetof(RowScatterJob, dst),
                          offsetof(RowScatterJob, ids),
                          offsetof(RowScatterJob, num_ids)};
    memcpy(out, layout, sizeof layout);
}
#endif
