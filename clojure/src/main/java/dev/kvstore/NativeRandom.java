package dev.kvstore;

/** Native methods for random numbers. */
final class NativeRandom {
    /** A distribution with two parameters. */
    enum Distribution {
        /**
         * The parameters are the lower bound, which is included, and the upper bound, which is not.
         */
        UNIFORM(0),
        /** The parameters are the mean and the standard deviation. */
        NORMAL(1);

        /** The code of this distribution in the native library. */
        final int code;

        Distribution(int code) {
            this.code = code;
        }
    }

    private NativeRandom() {}

    static native void seed(long number);

    /**
     * Returns the description of a new array of random numbers. {@code first} and {@code second}
     * are the parameters of the distribution.
     */
    static native long[] array(
            int distribution,
            double first,
            double second,
            long[] dimensions,
            int dtype,
            int deviceKind,
            int deviceId);
}
