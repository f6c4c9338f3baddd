// A step on some rows, in place.
#pragma once

#include "rows.h"
#include "update.h"

// One step. `RowUpdateJob` in src/args/row_jobs.rs has the same fields.
struct RowUpdateJob {
    // The tiles of the jobs before it.
    u64 first_tile;
    RowCut cut;
    RowAddends addends;
    u64 weight;
    // Of a weight of half precision the first one is its master copy.
    u64 states[KV_MAX_STATES];
    double scalars[KV_MAX_SCALARS];
    // Where the numbers of the weight's rows begin in the list of all.
    u32 first_index;
    u32 unused;
};
