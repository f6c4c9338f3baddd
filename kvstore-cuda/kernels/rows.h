// The distribution of rows over threads, and sums of rows.
//
// A row is divided into units. A thread loads one unit at a time. Neighbouring threads have
// neighbouring units, also across the end of a row, so rows of any length fill warps.
#pragma once

#include "dtypes.h"
#include "lanes.h"

// The number of units that a block processes at a time.
#define KV_ROW_TILE 1024
// For numbers up to KV_ROW_TILE, a quotient is a product shifted right by this many bits. The
// product fits into 32 bits.
#define KV_ROW_SHIFT 20

// The division of the rows of a job into tiles. A tile has several rows, or a part of a long row.
// `RowCut` in src/args/row_jobs.rs has the same fields.
struct RowCut {
    u64 num_rows;
    // The number of units in a row.
    u64 num_units;
    // At least one of the two is 1.
    u32 rows_per_tile, tiles_per_row;
    // 2^KV_ROW_SHIFT divided by the number of units that a tile has of a row, rounded up.
    u32 reciprocal;
    // The number of elements in a unit. For dense values, the number of bytes.
    u32 unit;
};

// The rows, or the part of a row, in a tile. Its units are numbered from 0.
struct RowTile {
    u64 first_row, first_unit;
    u32 num_rows, num_units, reciprocal;

    KV_DEVICE_MEMBER u32 size() const { return num_rows * num_units; }
    // Return the row of a unit, counted from the tile's first row, and its position in the row.
    KV_DEVICE_MEMBER u32 row_of(u32 number) const { return number * reciprocal >> KV_ROW_SHIFT; }
    KV_DEVICE_MEMBER u64 unit_of(u32 number) const {
        return first_unit + (number - row_of(number) * num_units);
    }
};

KV_DEVICE RowTile row_tile(const RowCut &cut, u64 number) {
    // Fits into 32 bits, because a job has fewer tiles. 64-bit division is slow.
    u32 tile = (u32)number, group = tile / cut.tiles_per_row;
    RowTile it;
    it.first_row = (u64)group * cut.rows_per_tile;
    it.first_unit = (u64)(tile - group * cut.tiles_per_row) * KV_ROW_TILE;
    u64 rows = cut.num_rows - it.first_row, units = cut.num_units - it.first_unit;
    it.num_rows = rows < cut.rows_per_tile ? (u32)rows : cut.rows_per_tile;
    it.num_units = units < KV_ROW_TILE ? (u32)units : KV_ROW_TILE;
    it.reciprocal = cut.reciprocal;
    return it;
}

// Rows to sum. `RowAddends` in src/args/row_jobs.rs has the same fields.
struct RowAddends {
    // The list of the source addresses.
    u64 sources;
    // For each sum, the position of its first source, and at the end the position after the last
    // source: 32-bit numbers. 0: each sum has exactly one source.
    u64 starts;
    // A sum with fewer sources than this has 0 added.
    u32 full;
    u32 unused;
};

// The number of sources of a row that a thread loads before it adds them. Most rows have one or
// two.
#define KV_ROW_AHEAD 2

// Computes the sum of a unit of a row: the left fold of its sources, rounded to the stored type. A
// sum of a single source is a copy with the same bits.
template <class T, u32 COUNT>
KV_DEVICE void sum_unit(Some<T, COUNT> &sum, const RowAddends &addends, u64 row, u64 unit) {
    typedef typename Arithmetic<T>::Number Number;
    u64 first = row, index = unit * COUNT;
    u32 num_sources = 1;
    if (addends.starts != 0) {
        const u32 *starts = (const u32 *)addends.starts + row;
        first = starts[0];
        num_sources = starts[1] - starts[0];
    }
    const u64 *sources = (const u64 *)addends.sources + first;
    if (num_sources == 1 && addends.full <= 1) {
        load(sum, sources[0], index, COUNT, COUNT > 1);
        return;
    }
    Number numbers[COUNT];
#pragma unroll
    for (u32 lane = 0; lane < COUNT; lane++) numbers[lane] = (Number)0;
    for (u32 source = 0; source < num_sources; source += KV_ROW_AHEAD) {
        u64 from[KV_ROW_AHEAD];
        Some<T, COUNT> loaded[KV_ROW_AHEAD];
#pragma unroll
        for (u32 n = 0; n < KV_ROW_AHEAD; n++)
            from[n] = sources[source + n < num_sources ? source + n : source];
#pragma unroll
        for (u32 n = 0; n < KV_ROW_AHEAD; n++)
            if (source + n < num_sources) load(loaded[n], from[n], index, COUNT, COUNT > 1);
#pragma unroll
        for (u32 n = 0; n < KV_ROW_AHEAD; n++) {
            if (source + n >= num_sources) break;
#pragma unroll
            for (u32 lane = 0; lane < COUNT; lane++) {
                Number term = widen(loaded[n].lanes[lane]);
                // Do not add the first source to 0, which would change -0 to 0.
                numbers[lane] = source + n == 0 ? term : numbers[lane] + term;
            }
        }
    }
#pragma unroll
    for (u32 lane = 0; lane < COUNT; lane++) {
        Number and_zero = numbers[lane] + (Number)0;
        narrow(sum.lanes[lane], num_sources < addends.full ? and_zero : numbers[lane]);
    }
}
