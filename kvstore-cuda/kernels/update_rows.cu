// Updates of some rows in place, for formulas with `lazy_update`. Each formula has its own PTX
// file.
#include "update_rows.h"

template <class T, class Step, u32 COUNT>
KV_DEVICE void step_row_tile(const RowUpdateJob &job, u64 number) {
    const RowTile tile = row_tile(job.cut, number);
    const Stepped memory = {job.weight, job.weight, job.states, job.states, nullptr};
    typename Arithmetic<T>::Number scalars[Step::SCALARS];
    round_scalars<Step>(scalars, job.scalars);
    for (u32 n = KV_THREAD; n < tile.size(); n += KV_THREADS) {
        u64 row = tile.first_row + tile.row_of(n), unit = tile.unit_of(n);
        u64 index = (((const u64 *)job.ids)[row] * job.cut.num_units + unit) * COUNT;
        Some<T, COUNT> gradient;
        sum_unit(gradient, job.addends, row, unit);
        Operands<T, Step, COUNT> operands;
        operands.load_from(memory, index, COUNT, COUNT > 1);
        operands.step(memory, scalars, gradient, index);
        operands.store_to(memory, index, COUNT, COUNT > 1);
    }
}

template <class T, class Step> KV_DEVICE void update_rows(const BatchArgs<RowUpdateJob> &args) {
    for (u64 tile = KV_BLOCK; tile < args.num_tiles; tile += KV_GRID) {
        const RowUpdateJob &job = job_of(args.jobs, args.num_jobs, tile);
        if (job.cut.unit == 1)
            step_row_tile<T, Step, 1>(job, tile - job.first_tile);
        else
            step_row_tile<T, Step, Lanes<T>::COUNT>(job, tile - job.first_tile);
    }
}

// The kernels of a formula, one for each dtype of the weight.
#define KV_UPDATE_ROWS(Step) KV_FLOATS(KV_UPDATE_ROWS_OF, Step)
#define KV_UPDATE_ROWS_OF(name, T, Step)                                                           \
    KV_KERNEL(kv_rows_##Step##_##name, BatchArgs<RowUpdateJob>, (sizeof(T) == 8 ? 2 : 4)) {        \
        update_rows<T, Step>(args);                                                                \
    }

KV_LAZY_FORMULAS(KV_UPDATE_ROWS)

#ifdef KV_EMULATED
// The layout of the struct, which tests compare with the Rust struct.
extern "C" void kv_update_rows_layout(u64 *out) {
    const u64 layout[] = {sizeof(RowUpdateJob),
                          offsetof(RowUpdateJob, first_tile),
                          offsetof(RowUpdateJob, cut),
                          offsetof(RowUpdateJob, addends),
                          offsetof(RowUpdateJob, weight),
                          offsetof(RowUpdateJob, states),
                          offsetof(RowUpdateJob, scalars),
                          offsetof(RowUpdateJob, ids)};
    memcpy(out, layout, sizeof layout);
}
#endif
