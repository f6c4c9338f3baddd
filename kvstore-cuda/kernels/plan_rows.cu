// Plans of sums of rows: lists of the sources of each row of a sum, computed from the row indices
// of the addends.
//
// The plan of a union is made in steps. Each step is a launch of its own, because it needs all
// results of the previous one:
//
// 1. `kv_merge_rows` searches for the place of every source in the merged order: ascending indices,
//    and equal indices in the order of the addends. The first source of an index begins a row.
// 2. `kv_count_rows` counts the rows that begin in each chunk of the merged order. `kv_add_counts`
//    adds up chunks of counts until few are left, and `kv_scan_counts` turns the counts back into
//    the number of rows before each chunk.
// 3. `kv_list_rows` writes the start and the index of each row.
//
// All unions of a launch form one merged order, one union after the other.
#include "kernel.h"

// The number of places in the merged order that a thread processes.
#define KV_PLACES 32
// The number of counts that a thread processes.
#define KV_COUNTS 256
// Marks a source that does not begin a row. Row indices are below 2^63.
#define KV_SAME_ROW 0x8000000000000000ull

// The rows of an addend of a union. `RowList` in src/args/plan_rows.rs has the same fields.
struct RowList {
    // The number of tiles of all earlier lists. A tile has KV_THREADS rows.
    u64 first_tile;
    // The row indices of the addend, and its first row.
    u64 ids, rows;
    u64 row_bytes;
    // The merged order of the union: its indices, and the addresses of the sources.
    u64 merged, sources;
    u32 num_rows;
    // The lists of the union: numbers `first_list` to `end_list - 1`.
    u32 first_list, end_list;
    u32 unused;
};

KV_KERNEL(kv_merge_rows, BatchArgs<RowList>, 4) {
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const RowList &list = job_of(args.jobs, args.num_jobs, tile);
        u64 row = (tile - list.first_tile) * KV_THREADS + KV_THREAD;
        if (row >= list.num_rows) continue;
        const u32 own = (u32)(&list - args.jobs);
        const u64 id = ((const u64 *)list.ids)[row];
        u64 place = row, same_row = 0;
        for (u32 n = list.first_list; n < list.end_list; n++) {
            if (n == own) continue;
            const u64 *others = (const u64 *)args.jobs[n].ids;
            u32 before = first_from(others, 0, args.jobs[n].num_rows, n < own ? id + 1 : id);
            place += before;
            if (n < own && before > 0 && others[before - 1] == id) same_row = KV_SAME_ROW;
        }
        ((u64 *)list.merged)[place] = id | same_row;
        ((u64 *)list.sources)[place] = list.rows + row * list.row_bytes;
    }
}

// A step that processes chunks. `ChunkArgs` in src/args/plan_rows.rs has the same fields.
struct ChunkArgs {
    u64 from, to;
    // The number of rows before each chunk. If `is_top` is 1: the counts of rows in each chunk.
    u64 before;
    // The destination of the row indices.
    u64 ids;
    // The number of places or counts to process.
    u64 len;
    u32 is_top;
    u32 unused;
};

// Calls `process(chunk, first, end)` for the chunks of this thread. A chunk has `SIZE` places.
template <u64 SIZE, class Process>
KV_DEVICE void for_each_chunk(const ChunkArgs &args, Process process) {
    const u64 stride = (u64)KV_GRID * KV_THREADS;
    u64 chunk = (u64)KV_BLOCK * KV_THREADS + KV_THREAD;
    for (; chunk * SIZE < args.len; chunk += stride) {
        u64 first = chunk * SIZE;
        process(chunk, first, args.len - first < SIZE ? args.len : first + SIZE);
    }
}

// Returns the number of rows before a chunk. There are at most KV_COUNTS chunks at the top.
KV_DEVICE u32 rows_before(const ChunkArgs &args, u64 chunk) {
    const u32 *before = (const u32 *)args.before;
    if (!args.is_top) return before[chunk];
    u32 count = 0;
    for (u64 n = 0; n < chunk; n++) count += before[n];
    return count;
}

KV_KERNEL(kv_count_rows, ChunkArgs, 4) {
    const u64 *merged = (const u64 *)args.from;
    u32 *counts = (u32 *)args.to;
    for_each_chunk<KV_PLACES>(args, [&](u64 chunk, u64 first, u64 end) {
        u32 count = 0;
        for (u64 place = first; place < end; place++) count += merged[place] < KV_SAME_ROW ? 1 : 0;
        counts[chunk] = count;
    });
}

KV_KERNEL(kv_add_counts, ChunkArgs, 4) {
    const u32 *counts = (const u32 *)args.from;
    u32 *sums = (u32 *)args.to;
    for_each_chunk<KV_COUNTS>(args, [&](u64 chunk, u64 first, u64 end) {
        u32 sum = 0;
        for (u64 n = first; n < end; n++) sum += counts[n];
        sums[chunk] = sum;
    });
}

// Replaces each count with the sum of all earlier counts.
KV_KERNEL(kv_scan_counts, ChunkArgs, 4) {
    u32 *counts = (u32 *)args.to;
    for_each_chunk<KV_COUNTS>(args, [&](u64 chunk, u64 first, u64 end) {
        u32 sum = rows_before(args, chunk);
        for (u64 n = first; n < end; n++) {
            u32 count = counts[n];
            counts[n] = sum;
            sum += count;
        }
    });
}

KV_KERNEL(kv_list_rows, ChunkArgs, 4) {
    const u64 *merged = (const u64 *)args.from;
    u32 *starts = (u32 *)args.to;
    u64 *ids = (u64 *)args.ids;
    for_each_chunk<KV_PLACES>(args, [&](u64 chunk, u64 first, u64 end) {
        u32 row = rows_before(args, chunk);
        for (u64 place = first; place < end; place++) {
            u64 id = merged[place];
            if (id >= KV_SAME_ROW) continue;
            starts[row] = (u32)place;
            ids[row] = id;
            row++;
        }
        if (end == args.len) starts[row] = (u32)end;
    });
}

// Rows with one source each. `LocateJob` in src/args/plan_rows.rs has the same fields.
struct LocateJob {
    // The number of tiles of all earlier jobs. A tile has KV_THREADS rows.
    u64 first_tile;
    // The row indices of the sources. 0: row `n` is source `n`.
    u64 ids;
    // The first row of the addend.
    u64 rows;
    u64 row_bytes;
    // The destination of the source addresses.
    u64 sources;
    u64 num_rows;
};

KV_KERNEL(kv_locate_rows, BatchArgs<LocateJob>, 4) {
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const LocateJob &job = job_of(args.jobs, args.num_jobs, tile);
        u64 row = (tile - job.first_tile) * KV_THREADS + KV_THREAD;
        if (row >= job.num_rows) continue;
        u64 source = job.ids != 0 ? ((const u64 *)job.ids)[row] : row;
        ((u64 *)job.sources)[row] = job.rows + source * job.row_bytes;
    }
}

#ifdef KV_EMULATED
// The layout of the structs, which tests compare with the Rust structs.
extern "C" void kv_plan_rows_layout(u64 *out) {
    const u64 layout[] = {sizeof(RowList),
                          offsetof(RowList, first_tile),
                          offsetof(RowList, ids),
                          offsetof(RowList, rows),
                          offsetof(RowList, row_bytes),
                          offsetof(RowList, merged),
                          offsetof(RowList, sources),
                          offsetof(RowList, num_rows),
                          offsetof(RowList, first_list),
                          offsetof(RowList, end_list),
                          sizeof(ChunkArgs),
                          offsetof(ChunkArgs, from),
                          offsetof(ChunkArgs, to),
                          offsetof(ChunkArgs, before),
                          offsetof(ChunkArgs, ids),
                          offsetof(ChunkArgs, len),
                          offsetof(ChunkArgs, is_top),
                          sizeof(LocateJob),
                          offsetof(LocateJob, first_tile),
                          offsetof(LocateJob, ids),
                          offsetof(LocateJob, rows),
                          offsetof(LocateJob, row_bytes),
                          offsetof(LocateJob, sources),
                          offsetof(LocateJob, num_rows)};
    memcpy(out, layout, sizeof layout);
}
#endif
