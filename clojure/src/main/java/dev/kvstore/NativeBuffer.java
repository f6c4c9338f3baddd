package dev.kvstore;

import java.nio.Buffer;
import java.nio.ByteBuffer;

/** Native methods that copy elements between arrays and Java buffers or Java arrays. */
final class NativeBuffer {
    private NativeBuffer() {}

    /**
     * Returns a handle to the current elements of an array. It keeps their memory alive until it is
     * released.
     */
    static native long pin(long array);

    /**
     * Returns a direct buffer over a part of the pinned memory. The caller must not write to it,
     * nor read it after the release.
     */
    static native ByteBuffer view(long pin, long start, long numBytes);

    static native void release(long pin);

    /**
     * Returns the description of a new array with the elements of a direct buffer.
     *
     * @param kind the type of the elements, see {@link HostBuffer}
     */
    static native long[] create(
            Buffer data,
            int kind,
            long position,
            long length,
            long[] dimensions,
            int dtype,
            int deviceKind,
            int deviceId);

    /**
     * Sets the elements of an array. {@code dtype} is the data type of the elements if the buffer
     * holds bytes.
     */
    static native void assign(
            long array, Buffer data, int kind, long position, long length, int dtype);

    static native void read(
            long array, long first, Buffer destination, int kind, long position, long length);

    static native void readFloats(long array, long first, float[] destination);

    static native void readDoubles(long array, long first, double[] destination);

    static native void readInts(long array, long first, int[] destination);

    static native void readLongs(long array, long first, long[] destination);

    static native void readBytes(long array, long first, byte[] destination);
}
