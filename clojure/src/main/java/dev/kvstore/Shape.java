package dev.kvstore;

import java.util.Arrays;
import java.util.Objects;
import java.util.stream.Collectors;

/**
 * The dimensions of an {@link NDArray}, outermost first. A scalar has no
 * dimensions.
 */
public final class Shape {
    private final long[] dimensions;
    private final long product;

    private Shape(long[] dimensions) {
        this.dimensions = dimensions;
        this.product = productOf(dimensions);
    }

    /**
     * Returns the shape with the given dimensions.
     *
     * @param dimensions the dimensions, outermost first, none of them negative
     * @return the shape
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if a dimension is negative or the
     *     number of elements does not fit into a {@code long}
     */
    public static Shape of(long... dimensions) {
        Objects.requireNonNull(dimensions, "dimensions");
        return new Shape(dimensions.clone());
    }

    /**
     * Returns the shape with the given dimensions.
     *
     * @param dimensions the dimensions, outermost first, none of them negative
     * @return the shape
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if a dimension is negative or the
     *     number of elements does not fit into a {@code long}
     */
    public static Shape of(int[] dimensions) {
        Objects.requireNonNull(dimensions, "dimensions");
        return new Shape(Arrays.stream(dimensions).asLongStream().toArray());
    }

    private static long productOf(long[] dimensions) {
        boolean empty = false;
        for (long dimension : dimensions) {
            if (dimension < 0) {
                throw KVStoreException.invalidArgument(
                        "shape " + describe(dimensions)
                                + ": expected dimensions of 0 or more, found " + dimension);
            }
            empty |= dimension == 0;
        }
        if (empty) {
            return 0; // Although the product of the other dimensions may overflow.
        }
        try {
            long product = 1;
            for (long dimension : dimensions) {
                product = Math.multiplyExact(product, dimension);
            }
            return product;
        } catch (ArithmeticException overflow) {
            throw KVStoreException.invalidArgument(
                    "shape " + describe(dimensions) + " has more elements than a long can count");
        }
    }

    /**
     * Returns the dimensions in a new array.
     *
     * @return the dimensions, outermost first
     */
    public long[] toArray() {
        return dimensions.clone();
    }

    /**
     * Returns the number of dimensions.
     *
     * @return the rank, 0 for a scalar
     */
    public int length() {
        return dimensions.length;
    }

    /**
     * Returns one dimension.
     *
     * @param axis the index of the dimension, which starts at 0
     * @return the dimension
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if there is no such axis
     */
    public long get(int axis) {
        if (axis < 0 || axis >= dimensions.length) {
            throw KVStoreException.invalidArgument(
                    "axis " + axis + " is out of range for shape " + this + ": expected "
                            + (dimensions.length == 0
                                    ? "none, because a scalar has no axes"
                                    : "0 to " + (dimensions.length - 1)));
        }
        return dimensions[axis];
    }

    /**
     * Returns the number of elements.
     *
     * @return the product of the dimensions, 1 for a scalar
     */
    public long product() {
        return product;
    }

    /**
     * Returns the internal array of dimensions, for native calls. The caller must not change it.
     */
    long[] dimensions() {
        return dimensions;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Shape that && Arrays.equals(dimensions, that.dimensions);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(dimensions);
    }

    /**
     * Returns the dimensions in parentheses.
     *
     * @return for example {@code (1,2,3)}
     */
    @Override
    public String toString() {
        return describe(dimensions);
    }

    private static String describe(long[] dimensions) {
        return Arrays.stream(dimensions)
                .mapToObj(Long::toString)
                .collect(Collectors.joining(",", "(", ")"));
    }
}
