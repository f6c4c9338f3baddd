// Conversion of an element to another type, as in kvstore-core/src/types/element.rs: between floats
// with one rounding, from float to integer by truncation to 64 bits and then to the low bits,
// and from integer to integer by keeping the low bits.
#pragma once

#include "dtypes.h"

// Truncates to a 64-bit integer. Saturates, and converts NaN to 0.
template <class A> KV_DEVICE i64 truncated(A x) {
    const i64 MOST = 0x7fffffffffffffffll;
    if (!(x == x)) return 0;
    if (x >= (A)9223372036854775808.0) return MOST;
    if (x <= (A)-9223372036854775808.0) return -MOST - 1;
    return (i64)x;
}

template <class T> KV_DEVICE i64 to_integer(T x) { return (i64)x; }
#define KV_TO_INTEGER(name, T, ...)                                                                \
    KV_DEVICE i64 to_integer(T x) { return truncated(widen(x)); }
KV_FLOATS(KV_TO_INTEGER)

// Rounds to float with "round to odd": returns the number if it is exact, otherwise the neighbour
// whose last bit is odd. A second rounding to a shorter type then gives the same result as one
// rounding.
KV_DEVICE float round_to_odd(double number) {
    float nearest = (float)number;
    double back = (double)nearest;
    u32 bits = bits_of(nearest);
    bool is_finite = number - number == 0.0;
    if (back == number || !is_finite || (bits & 1u)) return nearest;
    return float_of((back < number) == (number > 0.0) ? bits + 1 : bits - 1);
}

// Converts an integer to double, rounding to odd if it has more digits than a double.
KV_DEVICE double exact_or_odd(i64 number) {
    const i64 SPARE = (1 << 11) - 1;
    u64 size = number < 0 ? 0 - (u64)number : (u64)number;
    i64 odd = (number & ~SPARE) | (i64)((number & SPARE) != 0) << 11;
    return (double)(size < 1ull << 53 ? number : odd);
}

template <class T> KV_DEVICE void from_integer(T &to, i64 number) { to = (T)number; }
template <class T> KV_DEVICE void from_double(T &to, double number) { to = (T)number; }
template <class T> KV_DEVICE void from_float(T &to, float number) { to = (T)number; }
#define KV_FROM_NUMBER(name, T, ...)                                                               \
    KV_DEVICE void from_integer(T &to, i64 number) {                                               \
        narrow(to, round_to_odd(exact_or_odd(number)));                                            \
    }                                                                                              \
    KV_DEVICE void from_double(T &to, double number) { narrow(to, round_to_odd(number)); }         \
    KV_DEVICE void from_float(T &to, float number) { narrow(to, number); }
KV_HALVES(KV_FROM_NUMBER)

// Selects the conversion: through an integer, or between floats.
template <bool BETWEEN_FLOATS> struct Way {
    template <class S, class D> static KV_DEVICE_MEMBER void convert(D &to, S from) {
        from_integer(to, to_integer(from));
    }
};
template <> struct Way<true> {
    template <class D> static KV_DEVICE_MEMBER void convert(D &to, double from) {
        from_double(to, from);
    }
    template <class S, class D> static KV_DEVICE_MEMBER void convert(D &to, S from) {
        from_float(to, widen(from));
    }
};

template <class S, class D> KV_DEVICE void convert(D &to, S from) {
    Way<IsFloat<S>::VALUE && IsFloat<D>::VALUE>::convert(to, from);
}
