// The element types, and the conversions between half precision and float. This file has the only
// lists of types. DType::ALL in kvstore-core has the same types with the same names.
#pragma once

#include "kernel.h"

typedef signed char i8;
typedef int i32;
typedef long long i64;

// The half-precision types, as bits.
struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};

// Each list calls `X(name, T, ..)` for each of its types. The dots are the additional arguments of
// the list.
//
// KV_FULL: floats that are computed in their own type. KV_HALVES: floats that are computed in 32
// bits and rounded.
#define KV_FULL(X, ...) X(f32, float, __VA_ARGS__) X(f64, double, __VA_ARGS__)
#define KV_HALVES(X, ...) X(f16, f16, __VA_ARGS__) X(bf16, bf16, __VA_ARGS__)
#define KV_FLOATS(X, ...) KV_FULL(X, __VA_ARGS__) KV_HALVES(X, __VA_ARGS__)
#define KV_INTEGERS(X, ...)                                                                        \
    X(u8, u8, __VA_ARGS__) X(i8, i8, __VA_ARGS__) X(i32, i32, __VA_ARGS__) X(i64, i64, __VA_ARGS__)
#define KV_DTYPES(X, ...) KV_FLOATS(X, __VA_ARGS__) KV_INTEGERS(X, __VA_ARGS__)
// Unsigned integers, named by their bits, for operations that do not depend on the sign.
#define KV_WORDS(X, ...) X(8, u8, __VA_ARGS__) X(32, u32, __VA_ARGS__) X(64, u64, __VA_ARGS__)

// Calls `X(from, From, to, To)` for each pair of types. The preprocessor does not expand a macro
// within itself, so the inner list is expanded after the outer one.
#define KV_PAIRS(X) KV_RESCAN(KV_DTYPES(KV_PAIRS_TO, X))
#define KV_PAIRS_TO(to, To, X) KV_INNER KV_EMPTY()(X, to, To)
#define KV_INNER(X, to, To) KV_DTYPES(X, to, To)
#define KV_EMPTY()
#define KV_RESCAN(...) __VA_ARGS__

// The type in which elements are computed. Integers wrap, so unsigned types can replace signed
// ones.
template <class T> struct Arithmetic {
    typedef T Number;
};
template <class T> struct IsHalf {
    enum : bool { VALUE = false };
};
template <class T> struct IsFloat {
    enum : bool { VALUE = false };
};
#define KV_IS_FLOAT(name, T, ...)                                                                  \
    template <> struct IsFloat<T> {                                                                \
        enum : bool { VALUE = true };                                                              \
    };
#define KV_IS_HALF(name, T, ...)                                                                   \
    template <> struct IsHalf<T> {                                                                 \
        enum : bool { VALUE = true };                                                              \
    };                                                                                             \
    template <> struct Arithmetic<T> {                                                             \
        typedef float Number;                                                                      \
    };
KV_FLOATS(KV_IS_FLOAT)
KV_HALVES(KV_IS_HALF)

template <class T> KV_DEVICE T widen(T x) { return x; }
KV_DEVICE float widen(f16 x) { return widen_half(x.bits); }
KV_DEVICE float widen(bf16 x) { return float_of((u32)x.bits << 16); }

template <class T> KV_DEVICE void narrow(T &to, T x) { to = x; }
KV_DEVICE void narrow(f16 &to, float x) { to.bits = narrow_half(x); }

// Rounds to nearest, ties to even. NaN stays NaN.
KV_DEVICE void narrow(bf16 &to, float x) {
    u32 bits = bits_of(x);
    bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    u32 rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    to.bits = (u16)(is_nan ? bits >> 16 | 0x40u : rounded);
}
