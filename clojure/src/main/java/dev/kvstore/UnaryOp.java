package dev.kvstore;

/** A function of one element, for {@link NDArray#apply(UnaryOp)}. */
public enum UnaryOp {
    /** {@code -x}. */
    NEGATE(0),
    /** The absolute value. */
    ABS(1),
    /** The sign: -1, 0 or 1. */
    SIGN(2),
    /** {@code x * x}. */
    SQUARE(3),
    /** The square root. */
    SQRT(4),
    /** One over the square root. */
    RSQRT(5),
    /** e to the power of x. */
    EXP(6),
    /** The natural logarithm. */
    LOG(7),
    /** The sine of x in radians. */
    SIN(8),
    /** The cosine of x in radians. */
    COS(9),
    /** The hyperbolic tangent. */
    TANH(10),
    /** {@code 1 / (1 + exp(-x))}. */
    SIGMOID(11),
    /** {@code max(x, 0)}. */
    RELU(12),
    /** The smallest integer that is not below x. */
    CEIL(13),
    /** The largest integer that is not above x. */
    FLOOR(14),
    /** The nearest integer; halves are rounded away from zero. */
    ROUND(15),
    /** The nearest integer; halves are rounded down. */
    RINT(16),
    /** The integer part: rounds towards zero. */
    FIX(17);

    /** The code of this function in the native library. */
    final int code;

    UnaryOp(int code) {
        this.code = code;
    }
}
