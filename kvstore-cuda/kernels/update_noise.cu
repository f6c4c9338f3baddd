// The step that has noise.
#include "noise.h"
#include "update.h"

// Stochastic gradient Langevin dynamics, as kvstore-core/src/rule/sgld.rs has it.
struct Sgld {
    static const bool HAS_NOISE = true;
    static const u32 STATES = 0, SCALARS = 5;

    template <class A> static KV_DEVICE_MEMBER void apply(const A *k, A &w, const UpdateJob *job, u64 index, A g) {
        A half_rate = k[0], weight_decay = k[1], deviation = k[2], q = clip(k[3] * g, k[4]);
        A noise = (A)standard_normal(job->stream, job->count, index);
        A drift = half_rate * (q + weight_decay * w);
        w = w - drift + deviation * noise;
    }
};

// The noise is made in 64 bits whatever the weight is.
KV_KERNEL(kv_Sgld_f32, BatchArgs<UpdateJob>, 2) { update<float, Sgld>(args); }
KV_KERNEL(kv_Sgld_f64, BatchArgs<UpdateJob>, 2) { update<double, Sgld>(args); }
KV_KERNEL(kv_Sgld_f16, BatchArgs<UpdateJob>, 2) { update<f16, Sgld>(args); }
KV_KERNEL(kv_Sgld_bf16, BatchArgs<UpdateJob>, 2) { update<bf16, Sgld>(args); }
