package dev.kvstore;

/**
 * What a store takes for a key: an array, or some rows of one whose others are 0. The two are alike in all
 * but cost.
 */
public sealed interface Value extends NativeResource permits NDArray, RowSparse {
    /**
     * Returns the shape of the whole value.
     *
     * @return the shape
     */
    Shape shape();

    /**
     * Returns the data type of the elements.
     *
     * @return the data type
     */
    DType dtype();

    /**
     * Returns where the elements are.
     *
     * @return the device
     */
    Context context();
}
