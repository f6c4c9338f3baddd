// Standard normal random numbers as in kvstore-core/src/noise.rs. The logarithm and the cosine have
// the same operations in the same order as in the crate `libm`, whose code is FreeBSD's, originally
// from SunPro:
//
// Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved.
// Developed at SunPro, a Sun Microsystems, Inc. business.
// Permission to use, copy, modify, and distribute this software is freely granted, provided that
// this notice is preserved.
#pragma once

#include "kernel.h"

KV_DEVICE u32 high_word(double x) { return (u32)(bits_of(x) >> 32); }

// The natural logarithm of a number in (0, 1).
KV_DEVICE double log_of(double x) {
    // Scale into [sqrt(1/2), sqrt(2)], times a power of 2.
    u32 high = high_word(x) + (0x3ff00000u - 0x3fe6a09eu);
    int power = (int)(high >> 20) - 0x3ff;
    high = (high & 0xfffffu) + 0x3fe6a09eu;
    double f = double_of((u64)high << 32 | (bits_of(x) & 0xffffffffu)) - 1.0;
    double half_square = 0.5 * f * f;
    double s = f / (2.0 + f);
    double z = s * s;
    double w = z * z;
    double t1 = w * (3.999999999940941908e-01 +
                     w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    double t2 = z * (6.666666666666735130e-01 +
                     w * (2.857142874366239149e-01 +
                          w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    double r = t2 + t1;
    double k = (double)power;
    return s * (half_square + r) + k * 1.90821492927058770002e-10 - half_square + f +
           k * 6.93147180369123816490e-01;
}

// The cosine of x + y, where x is in [-pi/4, pi/4] and y its tail.
KV_DEVICE double near_cos(double x, double y) {
    double z = x * x;
    double w = z * z;
    double r = z * (4.16666666666666019037e-02 +
                    z * (-1.38888888888741095749e-03 + z * 2.48015872894767294178e-05)) +
               w * w *
                   (-2.75573143513906633035e-07 +
                    z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11));
    double half = 0.5 * z;
    double rest = 1.0 - half;
    return rest + (((1.0 - rest) - half) + (z * r - x * y));
}

// The sine of x + y.
KV_DEVICE double near_sin(double x, double y) {
    double z = x * x;
    double w = z * z;
    double r = 8.33333333332248946124e-03 +
               z * (-1.98412698298579493134e-04 + z * 2.75573137070700676789e-06) +
               z * w * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10);
    double v = z * x;
    return x - ((z * (0.5 * y - v * r) - y) - v * -1.66666666666666324348e-01);
}

// A number in (pi/4, 9 pi/4) minus `quarters` times pi/2, as the sum of x and its tail y.
struct Remainder {
    int quarters;
    double x, y;
};

// For numbers close to a multiple of pi/2, where digits cancel: uses as many digits of pi as
// needed.
KV_DEVICE Remainder remainder_near_multiple(double x, u32 high) {
    const double TO_INTEGER = 1.5 / 2.2204460492503131e-16;
    double n = x * 6.36619772367581382433e-01 + TO_INTEGER - TO_INTEGER;
    double r = x - n * 1.57079632673412561417e+00;
    double w = n * 6.07710050650619224932e-11;
    double y = r - w;
    int exponent = (int)(high >> 20);
    if (exponent - (int)(high_word(y) >> 20 & 0x7ffu) > 16) {
        double t = r;
        w = n * 6.07710050630396597660e-11;
        r = t - w;
        w = n * 2.02226624879595063154e-21 - ((t - r) - w);
        y = r - w;
        if (exponent - (int)(high_word(y) >> 20 & 0x7ffu) > 49) {
            t = r;
            w = n * 2.02226624871116645580e-21;
            r = t - w;
            w = n * 8.47842766036889956997e-32 - ((t - r) - w);
            y = r - w;
        }
    }
    return {(int)n, y, (r - y) - w};
}

KV_DEVICE Remainder remainder_of_quarters(double x, u32 high) {
    bool is_near = high <= 0x400f6a7au ? (high & 0xfffffu) == 0x921fbu
                                       : high == 0x4012d97cu || high == 0x401921fbu;
    if (is_near) return remainder_near_multiple(x, high);
    int quarters = high <= 0x4002d97cu ? 1 : high <= 0x400f6a7au ? 2 : high <= 0x4015fdbcu ? 3 : 4;
    double n = (double)quarters;
    double z = x - n * 1.57079632673412561417e+00;
    double tail = n * 6.07710050650619224932e-11;
    double y = z - tail;
    return {quarters, y, (z - y) - tail};
}

// The cosine of a number in [0, 2 pi).
KV_DEVICE double cos_of(double x) {
    u32 high = high_word(x);
    if (high < 0x3e46a09eu) return 1.0;
    if (high <= 0x3fe921fbu) return near_cos(x, 0.0);
    Remainder left = remainder_of_quarters(x, high);
    double found = left.quarters & 1 ? near_sin(left.x, left.y) : near_cos(left.x, left.y);
    int turn = left.quarters & 3;
    return turn == 1 || turn == 2 ? -found : found;
}

// Philox 4x32 with ten rounds: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
// Returns the first two words.
KV_DEVICE void philox(u32 (&words)[2], const u32 *stream, u64 call, u64 index) {
    u32 c0 = (u32)index, c1 = (u32)(index >> 32), c2 = (u32)call, c3 = (u32)(call >> 32);
    u32 k0 = stream[0], k1 = stream[1];
    for (u32 round = 0; round < 10; round++) {
        u64 one = (u64)c0 * 0xd2511f53u, other = (u64)c2 * 0xcd9e8d57u;
        c0 = (u32)(other >> 32) ^ c1 ^ k0;
        c1 = (u32)other;
        c2 = (u32)(one >> 32) ^ c3 ^ k1;
        c3 = (u32)one;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    words[0] = c0;
    words[1] = c1;
}

KV_DEVICE double standard_normal(const u32 *stream, u64 call, u64 index) {
    const double NUM_WORDS = 4294967296.0, TURN = 6.28318530717958647692528676655900577;
    u32 words[2];
    philox(words, stream, call, index);
    double radius = ((double)words[0] + 0.5) / NUM_WORDS;
    double angle = (double)words[1] / NUM_WORDS;
    return root(-2.0 * log_of(radius)) * cos_of(TURN * angle);
}
