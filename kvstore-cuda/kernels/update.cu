// The steps of optimizers. The PTX of each formula is a file, because a driver compiles complete files: kernels.py
// defines KV_FORMULA as its name. C++ has all formulas in one file.
#include "update.h"

#ifdef KV_FORMULA
KV_FOR(KV_FORMULA, KV_UPDATE)
#else
KV_FORMULAS(KV_UPDATE)
#endif

#ifdef KV_EMULATED
// Sizes and places of fields, which Rust's struct has to have too.
extern "C" void kv_update_layout(u64 *out) {
    const u64 layout[] = {sizeof(UpdateJob),
                          offsetof(UpdateJob, first_tile),
                          offsetof(UpdateJob, len),
                          offsetof(UpdateJob, weight_from),
                          offsetof(UpdateJob, weight_to),
                          offsetof(UpdateJob, states_from),
                          offsetof(UpdateJob, states_to),
                          offsetof(UpdateJob, scalars),
                          offsetof(UpdateJob, first_addend),
                          offsetof(UpdateJob, num_addends),
                          offsetof(UpdateJob, is_aligned),
                          offsetof(UpdateJob, stream),
                          offsetof(UpdateJob, count)};
    memcpy(out, layout, sizeof layout);
}
#endif
