package dev.kvstore;

/**
 * A value of a key: a dense array or a row-sparse value. Both have the same effect and differ only
 * in cost.
 */
public sealed interface Value extends NativeResource permits NDArray, RowSparse {
    /**
     * Returns the shape of the dense value.
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
     * Returns the device of the elements.
     *
     * @return the device
     */
    Context context();
}
