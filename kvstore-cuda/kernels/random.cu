// Random numbers as in kvstore-core/src/noise.rs: functions of the index of an element.
#include "convert.h"
#include "noise.h"

// One range per launch. `RandomArgs` in src/args/random.rs has the same fields.
struct RandomArgs {
    u64 to;
    // The number of elements.
    u64 len;
    // The number of the call in its stream.
    u64 call;
    // A number is `offset + scale * x` for a number x of the standard distribution.
    double offset, scale;
    u32 stream[2];
};

// A uniform number in [0, 1).
KV_DEVICE double standard_uniform(const u32 *stream, u64 call, u64 index) {
    const double NUM_FRACTIONS = 9007199254740992.0;
    u32 words[2];
    philox(words, stream, call, index);
    u64 bits = (u64)words[0] << 21 | words[1] >> 11;
    return (double)bits / NUM_FRACTIONS;
}

template <class T, class Sample> KV_DEVICE void randomize(const RandomArgs &args, Sample sample) {
    u64 stride = (u64)KV_GRID * KV_THREADS;
    for (u64 index = (u64)KV_BLOCK * KV_THREADS + KV_THREAD; index < args.len; index += stride) {
        double x = sample(args.stream, args.call, index);
        convert(((T *)args.to)[index], args.offset + args.scale * x);
    }
}

#define KV_RANDOM(name, T, ...)                                                                    \
    KV_KERNEL(kv_uniform_##name, RandomArgs, 4) {                                                  \
        randomize<T>(args, [](const u32 *stream, u64 call, u64 index) {                            \
            return standard_uniform(stream, call, index);                                          \
        });                                                                                        \
    }                                                                                              \
    KV_KERNEL(kv_normal_##name, RandomArgs, 4) {                                                   \
        randomize<T>(args, [](const u32 *stream, u64 call, u64 index) {                            \
            return standard_normal(stream, call, index);                                           \
        });                                                                                        \
    }

KV_FLOATS(KV_RANDOM)

#ifdef KV_EMULATED
// The layout of the struct, which tests compare with the Rust struct.
extern "C" void kv_random_layout(u64 *out) {
    const u64 layout[] = {sizeof(RandomArgs),        offsetof(RandomArgs, to),
                          offsetof(RandomArgs, len), offsetof(RandomArgs, call),
                          offsetof(RandomArgs, offset), offsetof(RandomArgs, scale),
                          offsetof(RandomArgs, stream)};
    memcpy(out, layout, sizeof layout);
}
#endif
