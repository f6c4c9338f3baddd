package dev.kvstore;

/** Entry points of the native library for random numbers. */
final class NativeRandom {
    private NativeRandom() {}

    static native void seed(long seed);

    static native long[] uniform(
            double low, double high, long[] dimensions, int dtype, int deviceKind, int deviceId);

    static native long[] normal(
            double mean,
            double deviation,
            long[] dimensions,
            int dtype,
            int deviceKind,
            int deviceId);
}
