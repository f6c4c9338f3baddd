package dev.kvstore;

import java.util.Arrays;

/**
 * The description of a value, decoded from numbers of the native library: one number whose meaning
 * depends on the call, then dtype code, device kind, device ordinal, rank, dimensions.
 *
 * @param first the number whose meaning depends on the call, for example the handle of an array
 * @param end the position after the last dimension
 */
record Description(long first, DType dtype, Context context, Shape shape, int end) {
    private static final int HEADER = 5;

    /** Decodes the description that starts at {@code position}. */
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
