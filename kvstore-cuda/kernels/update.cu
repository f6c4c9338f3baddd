// Optimizer updates. The driver compiles complete PTX files, so each formula has its own file.
#include "update.h"

KV_FORMULAS(KV_UPDATE)

#ifdef KV_EMULATED
// The layout of the struct, which tests compare with the Rust struct.
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
