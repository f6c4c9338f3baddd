package dev.kvstore;

/** The native methods of the preloaded library {@code tests/failing-malloc}. */
final class FailingMalloc {
    private FailingMalloc() {}

    /**
     * Lets the next {@code after} allocations of this thread of 64 KiB or more succeed. All later
     * ones fail.
     */
    static native void fail(long after);

    /** Lets all allocations succeed again. Returns whether one has failed. */
    static native boolean stop();
}
