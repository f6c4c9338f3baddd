package dev.kvstore;

/** The preloaded library of {@code tests/failing-malloc}, once {@code System.load} has found it. */
final class FailingMalloc {
    private FailingMalloc() {}

    /** Lets the first {@code after} allocations of this thread of 64 KiB or more succeed. All that follow fail. */
    static native void fail(long after);

    /** Lets all allocations succeed again. Returns whether one has failed. */
    static native boolean stop();
}
