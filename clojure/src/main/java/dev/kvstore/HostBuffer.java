package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;

/**
 * The elements between the position and the limit of a buffer, for one native call. Float, double,
 * int and long buffers hold numbers; a byte buffer holds the bytes of an array of any data type.
 *
 * <p>The native library reads and writes native memory in the byte order of the machine. For any
 * other buffer, this class uses a temporary direct buffer.
 */
final class HostBuffer {
    /** The type of the elements. */
    enum Kind {
        FLOATS(0, Float.BYTES),
        DOUBLES(1, Double.BYTES),
        INTS(2, Integer.BYTES),
        LONGS(3, Long.BYTES),
        BYTES(4, 1);

        /** The code of this type in the native library. */
        final int code;

        private final int numBytes;

        Kind(int code, int numBytes) {
            this.code = code;
            this.numBytes = numBytes;
        }
    }

    private final Buffer given;
    private final Buffer direct;
    private final Kind kind;

    private HostBuffer(Buffer given, Kind kind, ByteOrder order) {
        this.given = given;
        this.kind = kind;
        touch(given);
        this.direct = given.isDirect() && order == ByteOrder.nativeOrder()
                ? given
                : allocate((long) given.remaining() * kind.numBytes);
    }

    private Buffer allocate(long numBytes) {
        if (numBytes > Integer.MAX_VALUE) {
            throw KVStoreException.invalidArgument(
                    "buffer of " + numBytes + " bytes: expected less than 2 GiB, or a direct buffer"
                            + " in " + ByteOrder.nativeOrder() + " byte order");
        }
        ByteBuffer bytes = ByteBuffer.allocateDirect((int) numBytes).order(ByteOrder.nativeOrder());
        return switch (kind) {
            case FLOATS -> bytes.asFloatBuffer();
            case DOUBLES -> bytes.asDoubleBuffer();
            case INTS -> bytes.asIntBuffer();
            case LONGS -> bytes.asLongBuffer();
            case BYTES -> bytes;
        };
    }

    /**
     * Returns a buffer for reading.
     *
     * @param numBytes the element size of the array, for a buffer that holds bytes
     */
    static HostBuffer source(Buffer buffer, int numBytes) {
        HostBuffer source = of(requireNonNull(buffer, "data"), "data", numBytes);
        if (source.direct != buffer) {
            transfer(buffer, source.direct);
        }
        return source;
    }

    /** Returns a buffer for writing. Call {@link #finish} after the native call. */
    static HostBuffer destination(Buffer buffer, int numBytes) {
        if (requireNonNull(buffer, "destination").isReadOnly()) {
            throw KVStoreException.invalidArgument("destination: the buffer is read-only");
        }
        return of(buffer, "destination", numBytes);
    }

    /**
     * Reads an element, so that Java throws if the memory of the buffer has been freed or belongs
     * to another thread. The native library could not detect this.
     */
    private static void touch(Buffer direct) {
        if (!direct.hasRemaining()) {
            return;
        }
        int position = direct.position();
        if (direct instanceof FloatBuffer floats) {
            floats.get(position);
        } else if (direct instanceof DoubleBuffer doubles) {
            doubles.get(position);
        } else if (direct instanceof IntBuffer ints) {
            ints.get(position);
        } else if (direct instanceof LongBuffer longs) {
            longs.get(position);
        } else if (direct instanceof ByteBuffer bytes) {
            bytes.get(position);
        }
    }

    private static HostBuffer of(Buffer buffer, String parameter, int numBytes) {
        if (buffer instanceof FloatBuffer floats) {
            return new HostBuffer(buffer, Kind.FLOATS, floats.order());
        } else if (buffer instanceof DoubleBuffer doubles) {
            return new HostBuffer(buffer, Kind.DOUBLES, doubles.order());
        } else if (buffer instanceof IntBuffer ints) {
            return new HostBuffer(buffer, Kind.INTS, ints.order());
        } else if (buffer instanceof LongBuffer longs) {
            return new HostBuffer(buffer, Kind.LONGS, longs.order());
        } else if (buffer instanceof ByteBuffer bytes) {
            checkBytes(bytes, parameter, numBytes);
            return new HostBuffer(buffer, Kind.BYTES, ByteOrder.nativeOrder());
        }
        throw KVStoreException.invalidArgument(
                parameter + ": expected a buffer of floats, doubles, ints, longs or bytes, found a "
                        + buffer.getClass().getSimpleName());
    }

    private static void checkBytes(ByteBuffer bytes, String parameter, int numBytes) {
        if (numBytes > 1 && bytes.order() != ByteOrder.nativeOrder()) {
            throw KVStoreException.invalidArgument(
                    parameter + ": expected a byte buffer in " + ByteOrder.nativeOrder()
                            + " order, found " + bytes.order()
                            + ": use buffer.order(ByteOrder.nativeOrder())");
        }
    }

    /**
     * Copies what the native library wrote from the temporary buffer, if there is one, to the
     * caller's.
     */
    void finish() {
        if (direct != given) {
            transfer(direct, given);
        }
    }

    /** Copies all elements. The positions of both buffers do not change. */
    private static void transfer(Buffer from, Buffer to) {
        if (from instanceof FloatBuffer floats) {
            ((FloatBuffer) to).duplicate().put(floats.duplicate());
        } else if (from instanceof DoubleBuffer doubles) {
            ((DoubleBuffer) to).duplicate().put(doubles.duplicate());
        } else if (from instanceof IntBuffer ints) {
            ((IntBuffer) to).duplicate().put(ints.duplicate());
        } else if (from instanceof LongBuffer longs) {
            ((LongBuffer) to).duplicate().put(longs.duplicate());
        } else {
            ((ByteBuffer) to).duplicate().put(((ByteBuffer) from).duplicate());
        }
    }

    /** Returns the native memory. The caller needs a reachability fence for this object. */
    Buffer memory() {
        return direct;
    }

    /**
     * Checks that the buffer has as many elements as the array. Does nothing for bytes, which the
     * native library checks.
     */
    void checkCount(Shape shape, DType dtype) {
        if (kind != Kind.BYTES) {
            ElementCount.check(remaining(), shape, dtype);
        }
    }

    int kind() {
        return kind.code;
    }

    int position() {
        return direct.position();
    }

    int remaining() {
        return direct.remaining();
    }
}
