// The macros and functions of optimizer formulas. `make kernels` translates the formulas from Rust
// into formulas.h.
#pragma once

#include "noise.h"

// Clamps to [-bound, bound]. NaN stays NaN.
template <class A> KV_DEVICE A clip(A x, A bound) {
    A below = x > bound ? bound : x;
    return below < -bound ? -bound : below;
}

// Returns -1, 0 or 1. Returns 0 for NaN.
template <class A> KV_DEVICE A sign(A x) {
    A positive = x > (A)0 ? (A)1 : (A)0;
    return x < (A)0 ? (A)-1 : positive;
}

// Declares a formula: whether it has noise, its number of states, and the names of its scalars in
// the order of the Rust struct's fields. `k` are the scalars, `w` is the weight, `s` are the
// states, `g` is the gradient. Noise depends on fields of `job` and on `index`, the index of the
// element.
#define KV_STEP(Name, has_noise, num_states, ...)                                                  \
    struct Name {                                                                                  \
        enum Scalar : u32 { __VA_ARGS__, SCALARS };                                                \
        enum : bool { HAS_NOISE = has_noise };                                                     \
        enum : u32 { STATES = num_states };                                                        \
        template <class A>                                                                         \
        static KV_DEVICE_MEMBER void apply(const A *k, A &w, A *s, A g, const UpdateJob *job,      \
                                           u64 index);                                             \
    };                                                                                             \
    template <class A>                                                                             \
    KV_DEVICE_MEMBER void Name::apply(const A *k, A &w, [[maybe_unused]] A *s, A g,                \
                                      [[maybe_unused]] const UpdateJob *job,                       \
                                      [[maybe_unused]] u64 index)

// Declares the norms that a formula needs before an update: for each element, two numbers whose
// squares are summed. They depend on the first states.
#define KV_NORMS(Name, num_states)                                                                 \
    struct Name##Norms : Name {                                                                    \
        enum : bool { HAS_WEIGHT = true };                                                         \
        enum : u32 { MEASURED_STATES = num_states };                                               \
        template <class A>                                                                         \
        static KV_DEVICE_MEMBER void measure(const A *k, A w, const A *s, A g, A *norms);          \
    };                                                                                             \
    template <class A>                                                                             \
    KV_DEVICE_MEMBER void Name##Norms::measure([[maybe_unused]] const A *k, A w,                   \
                                               [[maybe_unused]] const A *s, A g, A *norms)

// Declares a row-wise formula: a number for each element, whose mean square over the row is needed,
// and the new state of a row.
#define KV_ROW_MEASURE(Name)                                                                       \
    struct Name##Rows : Name {                                                                     \
        template <class A> static KV_DEVICE_MEMBER A measure(const A *k, A g);                     \
        template <class A> static KV_DEVICE_MEMBER void row_state(const A *k, A *s, A mean);       \
    };                                                                                             \
    template <class A> KV_DEVICE_MEMBER A Name##Rows::measure([[maybe_unused]] const A *k, A g)

#define KV_ROW_STATE(Name)                                                                         \
    template <class A>                                                                             \
    KV_DEVICE_MEMBER void Name##Rows::row_state([[maybe_unused]] const A *k, A *s, A mean)

// Calls Use(Formula) after expanding Formula, which is a macro.
#define KV_FOR(Formula, Use) Use(Formula)
