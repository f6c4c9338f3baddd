package dev.kvstore;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.stream.IntStream;

/**
 * Copies long runs of elements from native memory into Java arrays, on all cores. The Java code
 * copies them in pieces, so a garbage collection waits for one piece at most.
 */
final class ElementCopy {
    /** The minimum length of a run. Shorter runs are copied by one native call. */
    private static final long LEAST_BYTES = 4 << 20;

    private static final int PIECE = 1 << 18;

    /** The elements per buffer, because a buffer has fewer than 2^31 bytes. */
    private static final int SECTION = 1 << 27;

    private ElementCopy() {}

    /**
     * Copies {@code length} elements of {@code source}, beginning at {@code start}, to
     * {@code position} in the destination.
     */
    @FunctionalInterface
    private interface Copy {
        void run(ByteBuffer source, int start, int position, int length);
    }

    /**
     * Returns whether this class can copy the elements and is faster than a native call: there are
     * many elements, they are in host memory and need no conversion.
     */
    static boolean pays(NDArray array, DType dtype, long first, long length) {
        return array.dtype() == dtype
                && length * dtype.numBytes() >= LEAST_BYTES
                && length <= Integer.MAX_VALUE
                && first >= 0
                && first <= array.size() - length
                && array.context().isHost();
    }

    /**
     * Returns a handle that keeps the elements alive for a buffer. If the array is not on the host,
     * it is a handle to a copy on the host.
     */
    static long pin(NDArray array, long handle) {
        long copied = array.context().isHost() ? 0 : array.numBytes();
        return NativeMemory.allocate(copied, () -> new long[] {NativeBuffer.pin(handle)})[0];
    }

    /**
     * Copies the elements from {@code first} on if {@link #pays} returns true. Returns whether it
     * did.
     */
    static boolean read(NDArray array, long handle, long first, float[] destination) {
        return run(array, DType.FLOAT32, handle, first, destination.length,
                (source, start, position, length) ->
                        source.asFloatBuffer().get(start, destination, position, length));
    }

    static boolean read(NDArray array, long handle, long first, double[] destination) {
        return run(array, DType.FLOAT64, handle, first, destination.length,
                (source, start, position, length) ->
                        source.asDoubleBuffer().get(start, destination, position, length));
    }

    static boolean read(NDArray array, long handle, long first, int[] destination) {
        return run(array, DType.INT32, handle, first, destination.length,
                (source, start, position, length) ->
                        source.asIntBuffer().get(start, destination, position, length));
    }

    static boolean read(NDArray array, long handle, long first, long[] destination) {
        return run(array, DType.INT64, handle, first, destination.length,
                (source, start, position, length) ->
                        source.asLongBuffer().get(start, destination, position, length));
    }

    /** Returns all elements as a new Java array, or null if {@link #pays} returns false. */
    static float[] floats(NDArray array) {
        if (!pays(array, DType.FLOAT32, 0, array.size())) {
            return null;
        }
        float[] elements = new float[(int) array.size()];
        array.read(0, elements);
        return elements;
    }

    static double[] doubles(NDArray array) {
        if (!pays(array, DType.FLOAT64, 0, array.size())) {
            return null;
        }
        double[] elements = new double[(int) array.size()];
        array.read(0, elements);
        return elements;
    }

    static int[] ints(NDArray array) {
        if (!pays(array, DType.INT32, 0, array.size())) {
            return null;
        }
        int[] elements = new int[(int) array.size()];
        array.read(0, elements);
        return elements;
    }

    static long[] longs(NDArray array) {
        if (!pays(array, DType.INT64, 0, array.size())) {
            return null;
        }
        long[] elements = new long[(int) array.size()];
        array.read(0, elements);
        return elements;
    }

    private static boolean run(
            NDArray array, DType dtype, long handle, long first, int length, Copy copy) {
        if (!pays(array, dtype, first, length)) {
            return false;
        }
        long pin = NativeBuffer.pin(handle);
        try {
            for (int done = 0; done < length; done += Math.min(SECTION, length - done)) {
                section(pin, first, done, Math.min(SECTION, length - done), dtype.numBytes(), copy);
            }
        } finally {
            NativeBuffer.release(pin);
        }
        return true;
    }

    private static void section(
            long pin, long first, int done, int length, int numBytes, Copy copy) {
        ByteBuffer source =
                NativeBuffer.view(pin, (first + done) * numBytes, (long) length * numBytes)
                        .order(ByteOrder.nativeOrder());
        IntStream.range(0, (length + PIECE - 1) / PIECE).parallel().forEach(piece -> {
            int start = piece * PIECE;
            copy.run(source, start, done + start, Math.min(PIECE, length - start));
        });
    }
}
