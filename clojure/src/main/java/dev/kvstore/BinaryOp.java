package dev.kvstore;

/**
 * What {@link NDArray#apply(BinaryOp, NDArray)} and its siblings compute from two elements.
 * Comparisons give 1 or 0 in the data type of the operands. The order is that of the native library.
 */
public enum BinaryOp {
    /** {@code a + b}. */
    ADD,
    /** {@code a - b}. */
    SUB,
    /** {@code a * b}. */
    MUL,
    /** {@code a / b}; an integer division by zero is {@code INVALID_ARGUMENT}. */
    DIV,
    /** The remainder, with the sign of the divisor. */
    REM,
    /** {@code a} to the power of {@code b}. */
    POW,
    /** The greater of the two. */
    MAXIMUM,
    /** The lesser of the two. */
    MINIMUM,
    /** {@code a == b}. */
    EQUAL,
    /** {@code a != b}. */
    NOT_EQUAL,
    /** {@code a > b}. */
    GREATER,
    /** {@code a >= b}. */
    GREATER_EQUAL,
    /** {@code a < b}. */
    LESS,
    /** {@code a <= b}. */
    LESS_EQUAL
}
