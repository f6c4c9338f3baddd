package dev.kvstore;

/**
 * What {@link NDArray#reduce(Reduction)} computes from all elements. The order is that of the native
 * library.
 */
public enum Reduction {
    /** The sum. */
    SUM,
    /** The arithmetic mean. */
    MEAN,
    /** The greatest element. */
    MAX,
    /** The least element. */
    MIN,
    /** The Euclidean norm. */
    NORM
}
