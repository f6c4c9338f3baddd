package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.nio.Buffer;
import java.nio.ByteBuffer;

/** Reads the elements of an {@link NDArray} into numbers, Java arrays and buffers. */
public sealed interface ElementReader permits NDArray {
    /**
     * Returns the current elements without a copy, as a read-only direct buffer in row-major order
     * and in the byte order of the machine. If the array is on a GPU, its elements are first copied
     * to the host. Later changes of this array do not change the buffer. The buffer stays valid
     * after {@link NDArray#close}: its memory is released when neither it nor a buffer derived from
     * it is reachable.
     *
     * <pre>{@code
     * FloatBuffer floats = array.asBuffer().asFloatBuffer();
     * }</pre>
     *
     * @return a buffer of {@code size() * dtype().numBytes()} bytes
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the elements take 2 GiB or more,
     *     which is too large for a buffer; use {@link #read(long, float[])} for parts of the array
     */
    default ByteBuffer asBuffer() {
        NDArray array = array();
        long numBytes = array.numBytes();
        if (numBytes > Integer.MAX_VALUE) {
            throw KVStoreException.invalidArgument(
                    array + ": " + numBytes
                            + " bytes do not fit into a buffer, read them piece by piece"
                            + " (`NDArray.read`, `ndarray/read-into`)");
        }
        try {
            return NativeHandle.buffer(ElementCopy.pin(array, array.handle()), numBytes);
        } finally {
            Reference.reachabilityFence(array);
        }
    }

    /**
     * Copies consecutive elements into a Java array and converts them to its type. Use this to read
     * an array that is larger than any Java array in pieces.
     *
     * @param first the index of the first element, in row-major order
     * @param destination the Java array to fill; its length is the number of elements to read
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if this array has too few elements
     */
    default void read(long first, float[] destination) {
        requireNonNull(destination, "destination");
        NDArray array = array();
        try {
            if (!ElementCopy.read(array, array.handle(), first, destination)) {
                NativeBuffer.readFloats(array.handle(), first, destination);
            }
        } finally {
            Reference.reachabilityFence(array);
        }
    }

    /**
     * Copies elements into a Java array, see {@link #read(long, float[])}.
     *
     * @param first the index of the first element, in row-major order
     * @param destination the Java array to fill; its length is the number of elements to read
     */
    default void read(long first, double[] destination) {
        requireNonNull(destination, "destination");
        NDArray array = array();
        try {
            if (!ElementCopy.read(array, array.handle(), first, destination)) {
                NativeBuffer.readDoubles(array.handle(), first, destination);
            }
        } finally {
            Reference.reachabilityFence(array);
        }
    }

    /**
     * Copies elements into a Java array, see {@link #read(long, float[])}.
     *
     * @param first the index of the first element, in row-major order
     * @param destination the Java array to fill; its length is the number of elements to read
     */
    default void read(long first, int[] destination) {
        requireNonNull(destination, "destination");
        NDArray array = array();
        try {
            if (!ElementCopy.read(array, array.handle(), first, destination)) {
                NativeBuffer.readInts(array.handle(), first, destination);
            }
        } finally {
            Reference.reachabilityFence(array);
        }
    }

    /**
     * Copies elements into a Java array, see {@link #read(long, float[])}.
     *
     * @param first the index of the first element, in row-major order
     * @param destination the Java array to fill; its length is the number of elements to read
     */
    default void read(long first, long[] destination) {
        requireNonNull(destination, "destination");
        NDArray array = array();
        try {
            if (!ElementCopy.read(array, array.handle(), first, destination)) {
                NativeBuffer.readLongs(array.handle(), first, destination);
            }
        } finally {
            Reference.reachabilityFence(array);
        }
    }

    /**
     * Copies elements into a Java array as signed bytes, see {@link #read(long, float[])}. Use
     * {@link #toBytes} for the bytes of elements of any data type.
     *
     * @param first the index of the first element, in row-major order
     * @param destination the Java array to fill; its length is the number of elements to read
     */
    default void read(long first, byte[] destination) {
        requireNonNull(destination, "destination");
        NDArray array = array();
        try {
            NativeBuffer.readBytes(array.handle(), first, destination);
        } finally {
            Reference.reachabilityFence(array);
        }
    }

    /**
     * Copies elements into the range between the position and the limit of a buffer, see
     * {@link #read(long, float[])}. Position and limit do not change. A direct buffer in the byte
     * order of the machine is the fastest.
     *
     * @param first the index of the first element, in row-major order
     * @param destination a float, double, int or long buffer, which receives converted numbers; or
     *     a byte buffer, which receives the bytes of the elements
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if this array has too few elements
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the buffer is read-only or of
     *     another type
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if a byte buffer is not in the byte
     *     order of the machine, or its length is not a multiple of the element size
     */
    default void read(long first, Buffer destination) {
        NDArray array = array();
        HostBuffer host = HostBuffer.destination(destination, array.dtype().numBytes());
        try {
            NativeBuffer.read(
                    array.handle(), first, host.memory(), host.kind(), host.position(),
                    host.remaining());
            host.finish();
        } finally {
            Reference.reachabilityFence(array);
            Reference.reachabilityFence(host);
        }
    }

    /**
     * Returns the elements converted to floats.
     *
     * @return a new Java array in row-major order
     */
    default float[] toFloats() {
        NDArray array = array();
        float[] copied = ElementCopy.floats(array);
        return copied != null ? copied : array.query(NativeNDArray::toFloats);
    }

    /**
     * Returns the elements converted to doubles.
     *
     * @return a new Java array in row-major order
     */
    default double[] toDoubles() {
        NDArray array = array();
        double[] copied = ElementCopy.doubles(array);
        return copied != null ? copied : array.query(NativeNDArray::toDoubles);
    }

    /**
     * Returns the elements converted to ints, as by {@link NDArray#asType}.
     *
     * @return a new Java array in row-major order
     */
    default int[] toInts() {
        NDArray array = array();
        int[] copied = ElementCopy.ints(array);
        return copied != null ? copied : array.query(NativeNDArray::toInts);
    }

    /**
     * Returns the elements converted to longs, as by {@link NDArray#asType}.
     *
     * @return a new Java array in row-major order
     */
    default long[] toLongs() {
        NDArray array = array();
        long[] copied = ElementCopy.longs(array);
        return copied != null ? copied : array.query(NativeNDArray::toLongs);
    }

    /**
     * Returns the bytes of the elements.
     *
     * @return a new Java array in row-major order, each element in little-endian byte order
     */
    default byte[] toBytes() {
        return array().query(NativeNDArray::toBytes);
    }

    /**
     * Returns the only element.
     *
     * @return its value as a double
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if this array does not have exactly
     *     one element
     */
    default double toScalar() {
        NDArray array = array();
        array.handle();
        if (array.size() != 1) {
            throw KVStoreException.invalidArgument(
                    "expected an array with one element, found "
                            + array.dtype() + " " + array.shape());
        }
        return toDoubles()[0];
    }

    /** Waits until every change of this array that was requested so far is complete. */
    default void waitToRead() {
        NDArray array = array();
        try {
            NativeNDArray.waitToRead(array.handle());
        } finally {
            Reference.reachabilityFence(array);
        }
    }

    private NDArray array() {
        return (NDArray) this;
    }
}
