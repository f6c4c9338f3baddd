package dev.kvstore;

/**
 * What {@link NDArray#reduce(Reduction)} computes from all elements.
 */
public enum Reduction {
    /** The sum. */
    SUM(0),
    /** The arithmetic mean. */
    MEAN(1),
    /** The greatest element. */
    MAX(2),
    /** The least element. */
    MIN(3),
    /** The Euclidean norm. */
    NORM(4);

    /** The number at the native border. */
    final int code;

    Reduction(int code) {
        this.code = code;
    }
}
