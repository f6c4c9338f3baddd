package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.nio.Buffer;
import java.nio.ByteBuffer;

/** Reads the elements of an {@link NDArray} into numbers, Java arrays and buffers. */
public sealed interface ElementReader permits NDArray {
    /**
     * Returns the elements without a copy, as they are now: a read-only direct buffer of row-major
     * elements in the byte order of the machine. Later changes of this array do not reach it, and
     * it stays valid as long as something can reach it or a buffer made from it, {@link
     * NDArray#close} or not. Until then its memory is not released. The elements of an array on a
     * GPU are copied to the host first.
     *
     * <pre>{@code
     * FloatBuffer floats = array.asBuffer().asFloatBuffer();
     * }</pre>
     *
     * @return a buffer of {@code size() * dtype().numBytes()} bytes
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when these are 2 GiB or more, which no
     *     buffer can have: {@link #read(long, float[])} reads piece by piece
     */
    default ByteBuffer asBuffer() {
        NDArray array = array();
        long numBytes = array.numBytes();
        if (numBytes > Integer.MAX_VALUE) {
            throw KVStoreException.invalidArgument(
                    array + ": " + numBytes
                            + " bytes do not fit into a buffer, read it piece by piece");
        }
        try {
            return NativeHandle.buffer(ElementCopy.pin(array, array.handle()), numBytes);
        } finally {
            Reference.reachabilityFence(array);
        }
    }

    /**
     * Copies elements into a Java array, converted whatever the data type. So an array that is
     * larger than any Java array can be read piece by piece.
     *
     * @param first the first element that is read, in row-major order
     * @param destination as many elements are read as it has
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this array does not have as many
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
     * @param first the first element that is read, in row-major order
     * @param destination as many elements are read as it has
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
     * @param first the first element that is read, in row-major order
     * @param destination as many elements are read as it has
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
     * @param first the first element that is read, in row-major order
     * @param destination as many elements are read as it has
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
     * Copies elements into a Java array, see {@link #read(long, float[])}. They become signed
     * bytes; {@link #toBytes} gives the bytes of elements of any data type.
     *
     * @param first the first element that is read, in row-major order
     * @param destination as many elements are read as it has
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
     * Copies elements to where a buffer has its position and its limit, which do not move; see
     * {@link #read(long, float[])}. The copy is quickest into a direct buffer in the byte order of
     * the machine.
     *
     * @param first the first element that is read, in row-major order
     * @param destination a float, double, int or long buffer receives numbers, converted; a byte
     *     buffer receives the bytes of the elements
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this array does not have as many
     *     elements, when a byte buffer has no room for a whole number of them or is in another byte
     *     order, and for a buffer of another kind or one that is read-only
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
     * Returns the elements as floats, whatever the data type.
     *
     * @return a new Java array in row-major order
     */
    default float[] toFloats() {
        NDArray array = array();
        float[] copied = ElementCopy.floats(array);
        return copied != null ? copied : array.query(NativeNDArray::toFloats);
    }

    /**
     * Returns the elements as doubles, whatever the data type.
     *
     * @return a new Java array in row-major order
     */
    default double[] toDoubles() {
        NDArray array = array();
        double[] copied = ElementCopy.doubles(array);
        return copied != null ? copied : array.query(NativeNDArray::toDoubles);
    }

    /**
     * Returns the elements as ints, whatever the data type; see {@link NDArray#asType} for the
     * conversion.
     *
     * @return a new Java array in row-major order
     */
    default int[] toInts() {
        NDArray array = array();
        int[] copied = ElementCopy.ints(array);
        return copied != null ? copied : array.query(NativeNDArray::toInts);
    }

    /**
     * Returns the elements as longs, whatever the data type; see {@link NDArray#asType} for the
     * conversion.
     *
     * @return a new Java array in row-major order
     */
    default long[] toLongs() {
        NDArray array = array();
        long[] copied = ElementCopy.longs(array);
        return copied != null ? copied : array.query(NativeNDArray::toLongs);
    }

    /**
     * Returns the elements as they are in memory.
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
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this array has not one element
     */
    default double toScalar() {
        NDArray array = array();
        array.handle();
        if (array.size() != 1) {
            throw KVStoreException.invalidArgument(
                    "array of shape " + array.shape() + " is not a scalar, expected one element");
        }
        return toDoubles()[0];
    }

    /** Blocks until every change of this array that was asked for so far is made. */
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
