// Updates of some rows in place.
#pragma once

#include "rows.h"
#include "update.h"

// An update. `RowUpdateJob` in src/args/row_jobs.rs has the same fields.
struct RowUpdateJob {
    // The number of tiles of all earlier jobs.
    u64 first_tile;
    RowCut cut;
    RowAddends addends;
    u64 weight;
    // For a half-precision weight, the first state is the master copy.
    u64 states[KV_MAX_STATES];
    double scalars[KV_MAX_SCALARS];
    // The row indices.
    u64 ids;
};
