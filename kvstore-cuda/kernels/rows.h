// Rows: how those of a job are spread over threads, and sums of them.
//
// A row is cut into units, each as much as a thread loads at a time. Threads side by side have units side by side,
// also across the end of a row, so rows of any length fill warps.
#pragma once

#include "dtypes.h"
#include "lanes.h"

// Units that a block works on before it takes the next ones.
#define KV_ROW_TILE 1024
// Of numbers up to that a quotient is a product shifted by so many bits: no more than 32 are needed.
#define KV_ROW_SHIFT 20

// How the rows of a job are cut: a tile has some of them, or a part of a long one. `RowCut` in src/args/row_jobs.rs has the
// same fields.
struct RowCut {
    u64 num_rows;
    // Of a row.
    u64 num_units;
    // One of both is 1.
    u32 rows_per_tile, tiles_per_row;
    // 1 through the units that a tile has of a row, times 2^KV_ROW_SHIFT and rounded up.
    u32 reciprocal;
    // How many elements a unit has, or bytes where it does not matter what they mean.
    u32 unit;
};

// What a tile has of its rows, whose units are counted through.
struct RowTile {
    u64 first_row, first_unit;
    u32 num_rows, num_units, reciprocal;

    KV_DEVICE_MEMBER u32 size() const { return num_rows * num_units; }
    // Of a unit: its row, and in this its place.
    KV_DEVICE_MEMBER u32 row_of(u32 number) const { return number * reciprocal >> KV_ROW_SHIFT; }
    KV_DEVICE_MEMBER u64 unit_of(u32 number) const { return first_unit + (number - row_of(number) * num_units); }
};

KV_DEVICE RowTile row_tile(const RowCut &cut, u64 number) {
    // A job has no more tiles than that: division in 64 bits is slow.
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

// Rows that are added up. `RowAddends` in src/args/row_jobs.rs has the same fields.
struct RowAddends {
    // Where they begin in the list of all: the addresses of rows that are sources, and for each sum which of them is
    // its first one, and after the last sum their number, two to a word. KV_NEVER: each sum has one source.
    u32 first_source, first_start;
    // A sum of fewer sources has 0 added.
    u32 full;
    u32 unused;
};

// Sources of a row that a thread loads before it adds them. Most rows have one or two.
#define KV_ROW_AHEAD 2

// The sum of a unit of a row: the left fold of its sources, rounded as it is stored. What is a copy keeps its bits.
template <class T, u32 COUNT>
KV_DEVICE void sum_unit(Some<T, COUNT> &sum, const RowAddends &addends, const u64 *lists, u64 row, u64 unit) {
    typedef typename Arithmetic<T>::Number Number;
    u64 first = row, index = unit * COUNT;
    u32 num_sources = 1;
    if (addends.first_start != KV_NEVER) {
        const u32 *starts = (const u32 *)(lists + addends.first_start) + row;
        first = starts[0];
        num_sources = starts[1] - starts[0];
    }
    const u64 *sources = lists + addends.first_source + first;
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
        for (u32 n = 0; n < KV_ROW_AHEAD; n++) from[n] = sources[source + n < num_sources ? source + n : source];
#pragma unroll
        for (u32 n = 0; n < KV_ROW_AHEAD; n++)
            if (source + n < num_sources) load(loaded[n], from[n], index, COUNT, COUNT > 1);
#pragma unroll
        for (u32 n = 0; n < KV_ROW_AHEAD; n++) {
            if (source + n >= num_sources) break;
#pragma unroll
            for (u32 lane = 0; lane < COUNT; lane++) {
                Number term = widen(loaded[n].lanes[lane]);
                // Not added to 0: that would make 0 of -0.
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
