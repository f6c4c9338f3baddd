package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.nio.Buffer;
import java.nio.ByteBuffer;

/** Sets the elements of an {@link NDArray} from numbers, Java arrays and buffers. */
public sealed interface ElementWriter permits NDArray {
    /**
     * Sets every element.
     *
     * @param value the value, which is converted to the data type
     * @return this array
     */
    default NDArray set(double value) {
        return array().change(handle -> NativeNDArray.fill(handle, value));
    }

    /**
     * Sets every element. The value is not rounded to a double, so more than 53 bits are exact.
     *
     * @param value the value, which is converted to the data type
     * @return this array
     */
    default NDArray set(long value) {
        return array().change(handle -> NativeNDArray.fillLong(handle, value));
    }

    /**
     * Copies the elements of another array into this one, see {@link NDArray#copyTo}.
     *
     * @param source the array to read
     * @return this array
     * @throws KVStoreException with {@code SPEC_MISMATCH} if the shapes differ
     */
    default NDArray set(NDArray source) {
        requireNonNull(source, "source");
        return source.copyTo(array());
    }

    /**
     * Sets the elements.
     *
     * @param data one number per element, in row-major order; the numbers are converted to the data
     *     type
     * @return this array
     * @throws KVStoreException with {@code LENGTH_MISMATCH} if the number of elements differs
     */
    default NDArray set(float[] data) {
        ElementCount.check(requireNonNull(data, "data").length, array());
        return array().change(handle -> NativeNDArray.assignFloats(handle, data));
    }

    /**
     * Sets the elements, see {@link #set(float[])}.
     *
     * @param data one number per element, in row-major order; the numbers are converted to the data
     *     type
     * @return this array
     */
    default NDArray set(double[] data) {
        ElementCount.check(requireNonNull(data, "data").length, array());
        return array().change(handle -> NativeNDArray.assignDoubles(handle, data));
    }

    /**
     * Sets the elements, see {@link #set(float[])}.
     *
     * @param data one number per element, in row-major order; the numbers are converted to the data
     *     type
     * @return this array
     */
    default NDArray set(int[] data) {
        ElementCount.check(requireNonNull(data, "data").length, array());
        return array().change(handle -> NativeNDArray.assignInts(handle, data));
    }

    /**
     * Sets the elements, see {@link #set(float[])}.
     *
     * @param data one number per element, in row-major order; the numbers are converted to the data
     *     type
     * @return this array
     */
    default NDArray set(long[] data) {
        ElementCount.check(requireNonNull(data, "data").length, array());
        return array().change(handle -> NativeNDArray.assignLongs(handle, data));
    }

    /**
     * Sets the elements, see {@link #set(float[])}.
     *
     * @param data one signed byte per element, in row-major order
     * @return this array
     */
    default NDArray set(byte[] data) {
        ElementCount.check(requireNonNull(data, "data").length, array());
        return set(ByteBuffer.wrap(data), DType.INT8);
    }

    /**
     * Sets the elements to those between the position and the limit of a buffer, see
     * {@link NDArray#of(Buffer, Shape, DType, Context)}. Position and limit do not change.
     *
     * @param data a float, double, int or long buffer with one number per element, or a byte buffer
     *     with the bytes of the elements
     * @return this array
     * @throws KVStoreException with {@code LENGTH_MISMATCH} if the number of elements differs
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the buffer is of another type
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if a byte buffer is not in the byte
     *     order of the machine
     */
    default NDArray set(Buffer data) {
        return set(data, array().dtype());
    }

    private NDArray set(Buffer data, DType bytesOf) {
        HostBuffer source = HostBuffer.source(data, bytesOf.numBytes());
        NDArray array = array();
        array.handle();
        source.checkCount(array.shape(), array.dtype());
        try {
            return array.change(handle -> NativeBuffer.assign(
                    handle, source.memory(), source.kind(), source.position(), source.remaining(),
                    bytesOf.code()));
        } finally {
            Reference.reachabilityFence(source);
        }
    }

    private NDArray array() {
        return (NDArray) this;
    }
}
