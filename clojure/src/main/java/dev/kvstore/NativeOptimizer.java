package dev.kvstore;

/**
 * Native methods for optimizers. Multipliers are passed as a list of keys and a list of factors. A
 * schedule has the form that {@link LrScheduler#numbers} returns; an empty array means no schedule.
 */
final class NativeOptimizer {
    private NativeOptimizer() {}

    static native long create(
            String name,
            String[] names,
            double[] values,
            long[] schedule,
            String[] lrKeys,
            double[] lrFactors,
            String[] wdKeys,
            double[] wdFactors);

    static native void release(long optimizer);

    static native String[] names();

    static native String[] defaultNames(String name);

    static native double[] defaultValues(String name);

    static native double learningRate(long[] schedule, double base, long numUpdate);

    static native long createState(long optimizer, long weight);

    static native void releaseState(long state);

    static native void update(long optimizer, String key, long weight, long gradient, long state);

    static native long numUpdates(long state);

    /** Returns the descriptions of new arrays. */
    static native long[] stateArrays(long state);
}
