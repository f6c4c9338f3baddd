package dev.kvstore;

/**
 * What {@link NDArray#apply(UnaryOp)} computes from each element. The order is that of the native
 * library.
 */
public enum UnaryOp {
    /** {@code -x}. */
    NEGATE,
    /** The absolute value. */
    ABS,
    /** -1, 0 or 1. */
    SIGN,
    /** {@code x * x}. */
    SQUARE,
    /** The square root. */
    SQRT,
    /** One over the square root. */
    RSQRT,
    /** e to the power of x. */
    EXP,
    /** The natural logarithm. */
    LOG,
    /** The sine of x in radians. */
    SIN,
    /** The cosine of x in radians. */
    COS,
    /** The hyperbolic tangent. */
    TANH,
    /** {@code 1 / (1 + exp(-x))}. */
    SIGMOID,
    /** {@code max(x, 0)}. */
    RELU,
    /** The least integer that is not below x. */
    CEIL,
    /** The greatest integer that is not above x. */
    FLOOR,
    /** The nearest integer, a half away from zero. */
    ROUND,
    /** The nearest integer, a half downwards. */
    RINT,
    /** The integer part. */
    FIX
}
