package dev.kvstore;

import java.util.Arrays;

/**
 * What the native library says of a value in numbers: one of the caller's, dtype code, device kind, device
 * ordinal, rank, dimensions.
 *
 * @param first the number in front: the handle of an array, say
 * @param end the position behind the last dimension
 */
record Description(long first, DType dtype, Context context, Shape shape, int end) {
    private static final int HEADER = 5;

    /** Reads the description that begins at {@code position}. */
    static Description at(long[] numbers, int position) {
        int dimensions = position + HEADER;
        int end = dimensions + Math.toIntExact(numbers[dimensions - 1]);
        return new Description(
                numbers[position],
                DType.fromCode(Math.toIntExact(numbers[position + 1])),
                Context.ofKind(numbers[position + 2], numbers[position + 3]),
                Shape.of(Arrays.copyOfRange(numbers, dimensions, end)),
                end);
    }
}
