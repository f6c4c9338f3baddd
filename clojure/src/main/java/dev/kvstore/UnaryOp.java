package dev.kvstore;

/**
 * What {@link NDArray#apply(UnaryOp)} computes from each element.
 */
public enum UnaryOp {
    /** {@code -x}. */
    NEGATE(0),
    /** The absolute value. */
    ABS(1),
    /** -1, 0 or 1. */
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
    /** The least integer that is not below x. */
    CEIL(13),
    /** The greatest integer that is not above x. */
    FLOOR(14),
    /** The nearest integer, a half away from zero. */
    ROUND(15),
    /** The nearest integer, a half downwards. */
    RINT(16),
    /** The integer part. */
    FIX(17);

    /** The number at the native border. */
    final int code;

    UnaryOp(int code) {
        this.code = code;
    }
}
