// The elementwise operations as in kvstore-core/src/cpu/arithmetic.rs, if IEEE 754 defines their
// result. Powers, exponentials and similar functions differ between libraries, so they are not
// here.
#pragma once

#include "convert.h"

// The codes in kvstore-core/src/types/ops.rs. Operations that are missing here have no kernel.
enum BinaryOp : u32 {
    KV_ADD = 0,
    KV_SUB = 1,
    KV_MUL = 2,
    KV_DIV = 3,
    KV_REM = 4,
    KV_MAXIMUM = 6,
    KV_MINIMUM = 7,
    KV_EQUAL = 8,
    KV_NOT_EQUAL = 9,
    KV_GREATER = 10,
    KV_GREATER_EQUAL = 11,
    KV_LESS = 12,
    KV_LESS_EQUAL = 13,
};

enum UnaryOp : u32 {
    KV_NEGATE = 0,
    KV_ABS = 1,
    KV_SIGN = 2,
    KV_SQUARE = 3,
    KV_SQRT = 4,
    KV_RSQRT = 5,
    KV_RELU = 12,
    KV_CEIL = 13,
    KV_FLOOR = 14,
    KV_ROUND = 15,
    KV_RINT = 16,
    KV_FIX = 17,
};

// The type for additions. Signed integers are added as unsigned ones, because signed overflow is
// undefined.
template <class A> struct Wrapping {
    typedef u32 Word;
};
template <> struct Wrapping<i64> {
    typedef u64 Word;
};
template <> struct Wrapping<float> {
    typedef float Word;
};
template <> struct Wrapping<double> {
    typedef double Word;
};

// Returns the exact remainder of a truncated division, without rounding. Divides the digits as
// integers, eleven binary places at a time. The divisor must not be 0.
KV_DEVICE double remainder_of(double a, double b) {
    const u64 SIZE = ~0ull >> 1, INFINITE = 0x7ffull << 52, FIRST_DIGIT = 1ull << 52,
              NO_NUMBER = 0xfffull << 51;
    u64 size = bits_of(a) & SIZE, divisor = bits_of(b) & SIZE;
    if (size >= INFINITE || divisor > INFINITE) return double_of(NO_NUMBER);
    if (size < divisor) return a;
    // The exponents. Subnormal numbers have the exponent of the smallest normal ones, but no
    // implicit first digit.
    u32 place = (u32)(size >> 52), divisor_place = (u32)(divisor >> 52);
    u64 digits = size % FIRST_DIGIT + (place ? FIRST_DIGIT : 0);
    u64 divisor_digits = divisor % FIRST_DIGIT + (divisor_place ? FIRST_DIGIT : 0);
    if (place == 0) place = 1;
    if (divisor_place == 0) divisor_place = 1;
    u64 left = digits % divisor_digits;
    for (u32 places = place - divisor_place; places > 0 && left > 0;) {
        u32 step = places < 11 ? places : 11;
        left = (left << step) % divisor_digits;
        places -= step;
    }
    u64 unit = divisor_place > 52 ? (u64)(divisor_place - 52) << 52 : 1ull << (divisor_place - 1);
    double remainder = (double)left * double_of(unit);
    return a < 0.0 ? -remainder : remainder;
}

// Returns the remainder with the sign of the divisor.
KV_DEVICE double floored_remainder(double a, double b) {
    if (b == 0.0) return 0.0;
    double remainder = remainder_of(a, b);
    return remainder != 0.0 && (remainder < 0.0) != (b < 0.0) ? remainder + b : remainder;
}

// Returns the nearest integer, ties to even.
KV_DEVICE float nearest(float x) { return rintf(x); }
KV_DEVICE double nearest(double x) { return rint(x); }
KV_DEVICE float with_sign(float size, float sign) { return copysignf(size, sign); }
KV_DEVICE double with_sign(double size, double sign) { return copysign(size, sign); }

template <class A> struct Operations {
    typedef typename Wrapping<A>::Word Word;
    enum : bool { IS_SIGNED = (A)-1 < (A)1 };

    static KV_DEVICE_MEMBER A add(A a, A b) { return (A)((Word)a + (Word)b); }
    static KV_DEVICE_MEMBER A sub(A a, A b) { return (A)((Word)a - (Word)b); }
    static KV_DEVICE_MEMBER A mul(A a, A b) { return (A)((Word)a * (Word)b); }
    static KV_DEVICE_MEMBER A negate(A x) { return (A)-(Word)x; }
    static KV_DEVICE_MEMBER A larger(A a, A b) { return a != a || a > b ? a : b; }
    static KV_DEVICE_MEMBER A smaller(A a, A b) { return a != a || a < b ? a : b; }

    static KV_DEVICE_MEMBER A div(A a, A b) {
        if constexpr (IsFloat<A>::VALUE) return a / b;
        // The host has rejected zero divisors. Lanes beyond the end of a range are 0, though.
        else if (b == 0) return 0;
        else return IS_SIGNED && b == (A)-1 ? negate(a) : (A)(a / b);
    }

    static KV_DEVICE_MEMBER A rem(A a, A b) {
        if constexpr (IsFloat<A>::VALUE) return (A)floored_remainder((double)a, (double)b);
        else if (b == 0 || (IS_SIGNED && b == (A)-1)) return 0;
        else {
            A remainder = (A)(a % b);
            bool is_below = IS_SIGNED && remainder != 0 && (remainder < (A)0) != (b < (A)0);
            return is_below ? (A)(remainder + b) : remainder;
        }
    }

    static KV_DEVICE_MEMBER A abs(A x) {
        if constexpr (IsFloat<A>::VALUE) return absolute(x);
        else return IS_SIGNED && x < (A)0 ? negate(x) : x;
    }

    static KV_DEVICE_MEMBER A sign(A x) {
        return x > (A)0 ? (A)1 : IS_SIGNED && x < (A)0 ? (A)-1 : x;
    }

    static KV_DEVICE_MEMBER A sqrt(A x) {
        if constexpr (IsFloat<A>::VALUE) return root(x);
        else return (A)truncated(root((double)x));
    }

    static KV_DEVICE_MEMBER A rsqrt(A x) {
        if constexpr (IsFloat<A>::VALUE) return (A)1 / root(x);
        else return (A)truncated(1.0 / root((double)x));
    }

    // Rounding functions, for floats only.

    static KV_DEVICE_MEMBER A fix(A x) {
        A size = absolute(x), near = nearest(size);
        return with_sign(near > size ? near - (A)1 : near, x);
    }

    static KV_DEVICE_MEMBER A floor(A x) {
        A near = nearest(x);
        return near > x ? near - (A)1 : near;
    }

    static KV_DEVICE_MEMBER A ceil(A x) {
        A near = nearest(x);
        return with_sign(near < x ? near + (A)1 : near, x);
    }

    // Rounds halves away from zero.
    static KV_DEVICE_MEMBER A round(A x) {
        A size = absolute(x), near = nearest(size);
        return with_sign(size - near == (A)0.5 ? near + (A)1 : near, x);
    }

    // Rounds halves down.
    static KV_DEVICE_MEMBER A rint(A x) {
        A near = nearest(x);
        return near - x == (A)0.5 ? near - (A)1 : near;
    }
};

template <class A, u32 COUNT, class F> KV_DEVICE void each(A (&x)[COUNT], F f) {
#pragma unroll
    for (u32 lane = 0; lane < COUNT; lane++) x[lane] = f(x[lane]);
}

template <class A, u32 COUNT, class F>
KV_DEVICE void each_pair(A (&a)[COUNT], const A (&b)[COUNT], F f) {
#pragma unroll
    for (u32 lane = 0; lane < COUNT; lane++) a[lane] = f(a[lane], b[lane]);
}

// Computes `a = a op b`. All threads take the same branch, once for all of their numbers.
template <class A, u32 COUNT>
KV_DEVICE void apply_binary(u32 op, A (&a)[COUNT], const A (&b)[COUNT]) {
    typedef Operations<A> Of;
    switch (op) {
    case KV_ADD: return each_pair(a, b, [](A x, A y) { return Of::add(x, y); });
    case KV_SUB: return each_pair(a, b, [](A x, A y) { return Of::sub(x, y); });
    case KV_MUL: return each_pair(a, b, [](A x, A y) { return Of::mul(x, y); });
    case KV_DIV: return each_pair(a, b, [](A x, A y) { return Of::div(x, y); });
    case KV_REM: return each_pair(a, b, [](A x, A y) { return Of::rem(x, y); });
    case KV_MAXIMUM: return each_pair(a, b, [](A x, A y) { return Of::larger(x, y); });
    case KV_MINIMUM: return each_pair(a, b, [](A x, A y) { return Of::smaller(x, y); });
    case KV_EQUAL: return each_pair(a, b, [](A x, A y) { return (A)(x == y); });
    case KV_NOT_EQUAL: return each_pair(a, b, [](A x, A y) { return (A)(x != y); });
    case KV_GREATER: return each_pair(a, b, [](A x, A y) { return (A)(x > y); });
    case KV_GREATER_EQUAL: return each_pair(a, b, [](A x, A y) { return (A)(x >= y); });
    case KV_LESS: return each_pair(a, b, [](A x, A y) { return (A)(x < y); });
    case KV_LESS_EQUAL: return each_pair(a, b, [](A x, A y) { return (A)(x <= y); });
    }
}

// Computes `x = op(x)`.
template <class A, u32 COUNT> KV_DEVICE void apply_unary(u32 op, A (&x)[COUNT]) {
    typedef Operations<A> Of;
    switch (op) {
    case KV_NEGATE: return each(x, [](A y) { return Of::negate(y); });
    case KV_ABS: return each(x, [](A y) { return Of::abs(y); });
    case KV_SIGN: return each(x, [](A y) { return Of::sign(y); });
    case KV_SQUARE: return each(x, [](A y) { return Of::mul(y, y); });
    case KV_SQRT: return each(x, [](A y) { return Of::sqrt(y); });
    case KV_RSQRT: return each(x, [](A y) { return Of::rsqrt(y); });
    case KV_RELU: return each(x, [](A y) { return Of::larger(y, (A)0); });
    }
    // Rounding an integer does nothing.
    if constexpr (IsFloat<A>::VALUE) {
        switch (op) {
        case KV_CEIL: return each(x, [](A y) { return Of::ceil(y); });
        case KV_FLOOR: return each(x, [](A y) { return Of::floor(y); });
        case KV_ROUND: return each(x, [](A y) { return Of::round(y); });
        case KV_RINT: return each(x, [](A y) { return Of::rint(y); });
        case KV_FIX: return each(x, [](A y) { return Of::fix(y); });
        }
    }
}
