package dev.kvstore;

/** A reduction of all elements to one, for {@link NDArray#reduce(Reduction)}. */
public enum Reduction {
    /** The sum. */
    SUM(0),
    /** The arithmetic mean. */
    MEAN(1),
    /** The maximum. */
    MAX(2),
    /** The minimum. */
    MIN(3),
    /** The Euclidean norm. */
    NORM(4);

    /** The code of this reduction in the native library. */
    final int code;

    Reduction(int code) {
        this.code = code;
    }
}
