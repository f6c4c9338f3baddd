// Transposes of matrices. Only the size of the elements matters, so one type per size is enough.
#include "lanes.h"

// One matrix per launch. `TransposeArgs` in src/args/transpose.rs has the same fields.
struct TransposeArgs {
    u64 from, to;
    // The shape of the source.
    u64 rows, columns;
    // Whether each line of a square can be loaded and stored in one instruction.
    u32 is_aligned;
    u32 unused;
};

// The side of the square that a thread transposes in its registers. Squares of 8 x 8 elements do
// not fit in the registers.
template <class T> struct Square {
    enum : u32 { SIDE = sizeof(T) == 8 ? 2 : 4 };
};

// A block transposes 16 x 16 squares. Each warp has 8 x 4 of them: of elements of four or eight
// bytes, it reads lines of 128 bytes and writes lines of 64 bytes.
#define KV_SQUARES 16

template <class T> KV_DEVICE void transpose(const TransposeArgs &args) {
    const u32 SIDE = Square<T>::SIDE;
    const u64 TILE = KV_SQUARES * SIDE;
    const u64 across = (args.columns + TILE - 1) / TILE, down = (args.rows + TILE - 1) / TILE;
    const u32 warp = KV_THREAD / 32, lane = KV_THREAD % 32;
    for (u64 tile = KV_BLOCK; tile < across * down; tile += KV_GRID) {
        u64 tile_row = tile / across, tile_column = tile - tile_row * across;
        u64 row = tile_row * TILE + (warp / 2 * 4 + lane / 8) * SIDE;
        u64 column = tile_column * TILE + (warp % 2 * 8 + lane % 8) * SIDE;
        if (row >= args.rows || column >= args.columns) continue;
        u32 height = args.rows - row < SIDE ? (u32)(args.rows - row) : SIDE;
        u32 width = args.columns - column < SIDE ? (u32)(args.columns - column) : SIDE;
        auto move = [&](u32 num_rows, u32 num_columns, bool is_aligned) {
            Some<T, SIDE> from[SIDE], to;
#pragma unroll
            for (u32 n = 0; n < SIDE; n++)
                load(from[n], args.from, (row + n) * args.columns + column,
                     n < num_rows ? num_columns : 0, is_aligned);
#pragma unroll
            for (u32 n = 0; n < SIDE; n++) {
#pragma unroll
                for (u32 m = 0; m < SIDE; m++) to.lanes[m] = from[m].lanes[n];
                store(to, args.to, (column + n) * args.rows + row, n < num_columns ? num_rows : 0,
                      is_aligned);
            }
        };
        // One branch for all loads, so that they are issued together.
        if (args.is_aligned)
            move(SIDE, SIDE, true);
        else
            move(height, width, false);
    }
}

KV_KERNEL(kv_transpose_1, TransposeArgs, 4) { transpose<u8>(args); }
KV_KERNEL(kv_transpose_2, TransposeArgs, 4) { transpose<u16>(args); }
KV_KERNEL(kv_transpose_4, TransposeArgs, 4) { transpose<u32>(args); }
KV_KERNEL(kv_transpose_8, TransposeArgs, 4) { transpose<u64>(args); }

#ifdef KV_EMULATED
// The layout of the struct, which tests compare with the Rust struct.
extern "C" void kv_transpose_layout(u64 *out) {
    const u64 layout[] = {sizeof(TransposeArgs), offsetof(TransposeArgs, from),
                          offsetof(TransposeArgs, to), offsetof(TransposeArgs, rows),
                          offsetof(TransposeArgs, columns), offsetof(TransposeArgs, is_aligned)};
    memcpy(out, layout, sizeof layout);
}
#endif
