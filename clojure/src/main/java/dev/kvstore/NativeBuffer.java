package dev.kvstore;

import java.nio.Buffer;
import java.nio.ByteBuffer;

/** Entry points of the native library for elements that Java sees or that are copied to where it does. */
final class NativeBuffer {
    private NativeBuffer() {}

    /** Returns a handle to the present value of an array; its memory stays until it is released. */
    static native long pin(long array);

    /** Returns a part of the memory itself. It must not be written, nor read after the release. */
    static native ByteBuffer view(long pin, long start, long numBytes);

    static native void release(long pin);

    /**
     * Returns the description of a new array with elements of a direct buffer.
     *
     * @param kind what the elements are, see {@link HostBuffer}
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

    /** Sets an array; {@code dtype} is that of the elements where the buffer holds bytes. */
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
