package dev.kvstore;

/** Entry points of the native library for random numbers. */
final class NativeRandom {
    /** A distribution of two parameters. */
    enum Distribution {
        /** The parameters are the lowest number and the end. */
        UNIFORM(0),
        /** The parameters are the mean and the standard deviation. */
        NORMAL(1);

        /** The number at the native border. */
        final int code;

        Distribution(int code) {
            this.code = code;
        }
    }

    private NativeRandom() {}

    static native void seed(long number);

    /** Returns the description of a new array of numbers with a distribution and its two parameters. */
    static native long[] array(
            int distribution,
            double one,
            double other,
            long[] dimensions,
            int dtype,
            int deviceKind,
            int deviceId);
}
