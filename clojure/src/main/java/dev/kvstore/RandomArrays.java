package dev.kvstore;

/**
 * Arrays of random numbers, from one sequence for the whole process: after the same {@link #seed}, the
 * same calls give the same numbers, on every machine and for any number of threads.
 *
 * <pre>{@code
 * RandomArrays.seed(7);
 * NDArray weights = RandomArrays.normal(0, 0.1, Shape.of(64, 10));
 * }</pre>
 */
public final class RandomArrays {
    private RandomArrays() {}

    /**
     * Starts the sequence anew.
     *
     * @param seed any number
     */
    public static void seed(long seed) {
        NativeLibrary.load();
        NativeRandom.seed(seed);
    }

    /**
     * Returns an array of numbers from {@code low} up to {@code high}, all alike.
     *
     * @param low the lowest number
     * @param high the end, which only rounding reaches
     * @param shape the shape
     * @return a float32 array on {@code cpu(0)}
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when {@code high} is below {@code low} or
     *     one of them is not finite
     */
    public static NDArray uniform(double low, double high, Shape shape) {
        return uniform(low, high, shape, DType.FLOAT32, Context.cpu());
    }

    /**
     * Returns an array of numbers from {@code low} up to {@code high}, all alike.
     *
     * @param low the lowest number
     * @param high the end, which only rounding reaches
     * @param shape the shape
     * @param dtype a data type of floating point
     * @param context the device
     * @return the array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when {@code high} is below {@code low}, one
     *     of them is not finite, or the data type is one of integers
     */
    public static NDArray uniform(
            double low, double high, Shape shape, DType dtype, Context context) {
        return array(NativeRandom.Distribution.UNIFORM, low, high, shape, dtype, context);
    }

    /**
     * Returns an array of normally distributed numbers.
     *
     * @param mean the number in the middle
     * @param deviation the standard deviation
     * @param shape the shape
     * @return a float32 array on {@code cpu(0)}
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when the standard deviation is negative or
     *     one of them is not finite
     */
    public static NDArray normal(double mean, double deviation, Shape shape) {
        return normal(mean, deviation, shape, DType.FLOAT32, Context.cpu());
    }

    /**
     * Returns an array of normally distributed numbers.
     *
     * @param mean the number in the middle
     * @param deviation the standard deviation
     * @param shape the shape
     * @param dtype a data type of floating point
     * @param context the device
     * @return the array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when the standard deviation is negative, one
     *     of them is not finite, or the data type is one of integers
     */
    public static NDArray normal(
            double mean, double deviation, Shape shape, DType dtype, Context context) {
        return array(NativeRandom.Distribution.NORMAL, mean, deviation, shape, dtype, context);
    }

    private static NDArray array(
            NativeRandom.Distribution distribution,
            double one, double other, Shape shape, DType dtype, Context context) {
        return NDArray.create(shape, dtype, context, () -> NativeRandom.array(
                distribution.code, one, other,
                shape.dimensions(), dtype.code(), context.kind(), context.deviceId()));
    }
}
