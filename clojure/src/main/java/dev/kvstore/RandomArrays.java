package dev.kvstore;

/**
 * Creates arrays of random numbers. The process has one random number generator: after the same
 * {@link #seed}, the same calls return the same numbers on every machine, whatever the number of
 * threads.
 *
 * <pre>{@code
 * RandomArrays.seed(7);
 * NDArray weights = RandomArrays.normal(0, 0.1, Shape.of(64, 10));
 * }</pre>
 */
public final class RandomArrays {
    private RandomArrays() {}

    /**
     * Seeds the random number generator of the process.
     *
     * @param seed any number
     */
    public static void seed(long seed) {
        NativeLibrary.load();
        NativeRandom.seed(seed);
    }

    /**
     * Returns an array of uniformly distributed numbers from {@code low} (included) to {@code high}
     * (excluded).
     *
     * @param low the lower bound
     * @param high the upper bound; rounding may produce it
     * @param shape the shape
     * @return a float32 array on {@code cpu(0)}
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if {@code high} is below {@code low}
     *     or an argument is not finite
     */
    public static NDArray uniform(double low, double high, Shape shape) {
        return uniform(low, high, shape, DType.FLOAT32, Context.cpu());
    }

    /**
     * Returns an array of uniformly distributed numbers from {@code low} (included) to {@code high}
     * (excluded).
     *
     * @param low the lower bound
     * @param high the upper bound; rounding may produce it
     * @param shape the shape
     * @param dtype a floating-point data type
     * @param context the device
     * @return the array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if {@code high} is below {@code low},
     *     an argument is not finite, or the data type is an integer type
     */
    public static NDArray uniform(
            double low, double high, Shape shape, DType dtype, Context context) {
        return array(NativeRandom.Distribution.UNIFORM, low, high, shape, dtype, context);
    }

    /**
     * Returns an array of normally distributed numbers.
     *
     * @param mean the mean
     * @param deviation the standard deviation
     * @param shape the shape
     * @return a float32 array on {@code cpu(0)}
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if {@code deviation} is negative or an
     *     argument is not finite
     */
    public static NDArray normal(double mean, double deviation, Shape shape) {
        return normal(mean, deviation, shape, DType.FLOAT32, Context.cpu());
    }

    /**
     * Returns an array of normally distributed numbers.
     *
     * @param mean the mean
     * @param deviation the standard deviation
     * @param shape the shape
     * @param dtype a floating-point data type
     * @param context the device
     * @return the array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if {@code deviation} is negative, an
     *     argument is not finite, or the data type is an integer type
     */
    public static NDArray normal(
            double mean, double deviation, Shape shape, DType dtype, Context context) {
        return array(NativeRandom.Distribution.NORMAL, mean, deviation, shape, dtype, context);
    }

    private static NDArray array(
            NativeRandom.Distribution distribution,
            double first, double second, Shape shape, DType dtype, Context context) {
        return NDArray.create(shape, dtype, context, () -> NativeRandom.array(
                distribution.code, first, second,
                shape.dimensions(), dtype.code(), context.kind(), context.deviceId()));
    }
}
