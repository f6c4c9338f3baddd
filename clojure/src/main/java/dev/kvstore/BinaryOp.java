package dev.kvstore;

/**
 * An operation on two elements, for {@link NDArray#apply(BinaryOp, NDArray)} and similar methods.
 * Comparisons return 1 or 0 in the data type of the operands.
 */
public enum BinaryOp {
    /** {@code a + b}. */
    ADD(0),
    /** {@code a - b}. */
    SUB(1),
    /** {@code a * b}. */
    MUL(2),
    /** {@code a / b}; an integer division by zero fails with {@code INVALID_ARGUMENT}. */
    DIV(3),
    /** The remainder, with the sign of the divisor. */
    REM(4),
    /** {@code a} to the power of {@code b}. */
    POW(5),
    /** The greater of the two. */
    MAXIMUM(6),
    /** The lesser of the two. */
    MINIMUM(7),
    /** {@code a == b}. */
    EQUAL(8),
    /** {@code a != b}. */
    NOT_EQUAL(9),
    /** {@code a > b}. */
    GREATER(10),
    /** {@code a >= b}. */
    GREATER_EQUAL(11),
    /** {@code a < b}. */
    LESS(12),
    /** {@code a <= b}. */
    LESS_EQUAL(13);

    /** The code of this operation in the native library. */
    final int code;

    BinaryOp(int code) {
        this.code = code;
    }
}
