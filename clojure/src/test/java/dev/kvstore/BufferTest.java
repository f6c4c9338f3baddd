package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.CLOSED;
import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static dev.kvstore.KVStoreException.Code.LENGTH_MISMATCH;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ReadOnlyBufferException;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Reads and writes elements through buffers and Java arrays. */
class BufferTest {
    private static final float[] NUMBERS = {1, 2, 3, 4, 5, 6};

    private static NDArray matrix() {
        return NDArray.of(NUMBERS, Shape.of(2, 3));
    }

    @ParameterizedTest
    @EnumSource
    void aBufferContainsTheBytesOfAnyDtype(DType dtype) {
        try (NDArray array = NDArray.of(NUMBERS, Shape.of(2, 3), dtype, Context.cpu())) {
            ByteBuffer buffer = array.asBuffer();
            assertEquals(6 * dtype.numBytes(), buffer.remaining());
            assertEquals(ByteOrder.nativeOrder(), buffer.order());
            assertTrue(buffer.isDirect());
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            assertArrayEquals(array.toBytes(), bytes);
        }
    }

    @Test
    void aBufferIsASnapshot() {
        NDArray array = matrix();
        FloatBuffer before = array.asBuffer().asFloatBuffer();
        array.set(0);
        FloatBuffer after = array.asBuffer().asFloatBuffer();
        array.close();
        assertEquals(3, before.get(2));
        assertEquals(0, after.get(2));
        Expect.code(CLOSED, array::asBuffer);
    }

    @Test
    void aBufferOfAPulledValueOutlivesTheStore() {
        FloatBuffer buffer;
        try (KVStore store = KVStore.create();
                NDArray one = NDArray.ones(Shape.of(2))) {
            store.init("w", one);
            try (NDArray pulled = store.pull("w")) {
                buffer = pulled.asBuffer().asFloatBuffer();
            }
            store.setUpdater((key, pushed, stored) -> stored.addInPlace(pushed)).push("w", one);
        }
        assertEquals(1, buffer.get(1));
    }

    @Test
    void aBufferIsReadOnly() {
        try (NDArray array = matrix()) {
            ByteBuffer buffer = array.asBuffer();
            assertTrue(buffer.isReadOnly());
            assertThrows(ReadOnlyBufferException.class, () -> buffer.put(0, (byte) 1));
            assertThrows(ReadOnlyBufferException.class,
                    () -> buffer.duplicate()
                            .order(ByteOrder.nativeOrder())
                            .asFloatBuffer()
                            .put(0, 1));
        }
    }

    @Test
    void viewsAndEmptyArraysHaveBuffers() {
        try (NDArray array = matrix();
                NDArray row = array.slice(1, 2);
                NDArray nothing = NDArray.zeros(Shape.of(0, 2))) {
            FloatBuffer buffer = row.asBuffer().asFloatBuffer();
            assertEquals(3, buffer.remaining());
            assertEquals(4, buffer.get(0));
            assertEquals(0, nothing.asBuffer().remaining());
        }
    }

    /**
     * The memory stays while a derived buffer is reachable, and is released some time after that.
     */
    @Test
    void memoryIsKeptWhileABufferIsReachable() throws InterruptedException {
        int length = 1 << 20;
        // Arrays of other tests must not be collected between the measurements.
        for (int round = 0; round < 5; round++) {
            System.gc();
            Thread.sleep(20);
        }
        long before = NativeMemory.liveBytes();
        List<FloatBuffer> buffers = new ArrayList<>();
        for (int i = 0; i < 16; i++) {
            try (NDArray array = NDArray.full(Shape.of(length), i)) {
                buffers.add(
                        array.asBuffer().slice().order(ByteOrder.nativeOrder()).asFloatBuffer());
            }
        }
        for (int round = 0; round < 5; round++) {
            System.gc();
        }
        assertTrue(NativeMemory.liveBytes() >= before + 16L * 4 * length - (1 << 20));
        for (int i = 0; i < 16; i++) {
            assertEquals(i, buffers.get(i).get(length - 1));
        }
        buffers.clear();
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (NativeMemory.liveBytes() > before + 4L * length) {
            assertTrue(System.nanoTime() < deadline, "the memory of buffers is not released");
            System.gc();
            Thread.onSpinWait();
        }
    }

    @Test
    void elementsAreReadIntoArrays() {
        try (NDArray array = matrix();
                NDArray row = array.slice(1, 2);
                NDArray bytes = array.asType(DType.UINT8)) {
            float[] floats = new float[3];
            array.read(2, floats);
            assertArrayEquals(new float[] {3, 4, 5}, floats);
            double[] doubles = new double[2];
            row.read(1, doubles);
            assertArrayEquals(new double[] {5, 6}, doubles);
            int[] ints = new int[6];
            bytes.read(0, ints);
            assertArrayEquals(new int[] {1, 2, 3, 4, 5, 6}, ints);
            long[] longs = new long[0];
            array.read(6, longs);
            Expect.code(INVALID_ARGUMENT, () -> array.read(4, floats));
            Expect.code(INVALID_ARGUMENT, () -> array.read(-1, floats));
            Expect.code(INVALID_ARGUMENT, () -> array.read(Long.MAX_VALUE, floats));
            Expect.nullParameter("destination", () -> array.read(0, (float[]) null));
        }
    }

    @Test
    void aLargeArrayIsReadInPieces() {
        try (NDArray array = NDArray.arange(0, 1000, 1, 1, DType.INT64, Context.cpu())) {
            long sum = 0;
            long[] piece = new long[100];
            for (long first = 0; first < array.size(); first += piece.length) {
                array.read(first, piece);
                for (long number : piece) {
                    sum += number;
                }
            }
            assertEquals(999 * 1000 / 2, sum);
        }
    }

    private static ByteBuffer direct(int numBytes) {
        return ByteBuffer.allocateDirect(numBytes).order(ByteOrder.nativeOrder());
    }

    /** Returns buffers of every type with an offset of 1, direct or not, in both byte orders. */
    private static Stream<Buffer> buffers() {
        ByteBuffer swapped = ByteBuffer.allocateDirect(64).order(ByteOrder.BIG_ENDIAN);
        ByteBuffer unaligned = direct(65).position(1).slice().order(ByteOrder.nativeOrder());
        return Stream.of(
                FloatBuffer.allocate(8), direct(32).asFloatBuffer(),
                swapped.duplicate().asFloatBuffer(),
                DoubleBuffer.allocate(8), direct(64).asDoubleBuffer(), swapped.asDoubleBuffer(),
                IntBuffer.allocate(8), direct(32).asIntBuffer(), swapped.asIntBuffer(),
                LongBuffer.allocate(8), direct(64).asLongBuffer(), swapped.asLongBuffer(),
                unaligned.asFloatBuffer(), unaligned.asLongBuffer())
                .map(buffer -> buffer.limit(7).position(1));
    }

    @ParameterizedTest
    @MethodSource("buffers")
    void buffersOfNumbersAreReadAndWritten(Buffer buffer) {
        for (DType dtype : DType.values()) {
            try (NDArray array = NDArray.of(NUMBERS, Shape.of(2, 3), dtype, Context.cpu())) {
                array.read(0, buffer);
                assertEquals(1, buffer.position());
                assertEquals(7, buffer.limit());
                try (NDArray copy = NDArray.of(buffer, Shape.of(3, 2), dtype, Context.cpu(1));
                        NDArray zeros = NDArray.zeros(Shape.of(6), dtype, Context.cpu())) {
                    assertArrayEquals(NUMBERS, copy.toFloats());
                    assertArrayEquals(NUMBERS, zeros.set(buffer).toFloats());
                    assertArrayEquals(array.toBytes(), zeros.toBytes());
                }
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void byteBuffersAreReadAndWritten(DType dtype) {
        int size = 6 * dtype.numBytes();
        for (ByteBuffer buffer :
                List.of(direct(size), ByteBuffer.allocate(size).order(ByteOrder.nativeOrder()))) {
            try (NDArray array = NDArray.of(NUMBERS, Shape.of(6), dtype, Context.cpu())) {
                array.read(0, buffer);
                try (NDArray copy = NDArray.of(buffer, array.shape(), dtype, Context.cpu())) {
                    assertArrayEquals(NUMBERS, copy.toFloats());
                    assertArrayEquals(NUMBERS, copy.set(0).set(buffer).toFloats());
                    assertArrayEquals(NUMBERS, copy.set(0).set(array.asBuffer()).toFloats());
                }
            }
        }
    }

    @Test
    void onlyTheRangeFromPositionToLimitIsFilled() {
        try (NDArray array = matrix()) {
            FloatBuffer floats = direct(40).asFloatBuffer();
            array.read(2, floats.position(3).limit(5));
            assertArrayEquals(
                    new float[] {0, 0, 0, 3, 4, 0, 0, 0, 0, 0},
                    values(floats.position(0).limit(10)));
            array.read(6, floats.limit(0));
            Expect.code(INVALID_ARGUMENT, () -> array.read(5, floats.limit(2)));
        }
    }

    private static float[] values(FloatBuffer buffer) {
        float[] values = new float[buffer.remaining()];
        buffer.duplicate().get(values);
        return values;
    }

    @Test
    void unsuitableBuffersAreRejected() {
        try (NDArray array = matrix()) {
            Shape shape = array.shape();
            DType dtype = array.dtype();
            Context context = array.context();
            String text = Expect.code(INVALID_ARGUMENT, () -> array.set(ByteBuffer.allocate(24)))
                    .getMessage();
            assertTrue(text.contains("ByteOrder.nativeOrder()"), text);
            Expect.code(LENGTH_MISMATCH, () -> array.set(direct(20)));
            Expect.code(LENGTH_MISMATCH, () -> array.set(FloatBuffer.allocate(5)));
            Expect.code(LENGTH_MISMATCH, () -> NDArray.of(direct(28), shape, dtype, context));
            Expect.code(LENGTH_MISMATCH,
                    () -> NDArray.of(direct(28).asIntBuffer(), shape, dtype, context));
            Expect.code(INVALID_ARGUMENT, () -> array.set(CharBuffer.allocate(6)));
            Expect.code(INVALID_ARGUMENT, () -> array.read(0, direct(6)));
            Expect.code(INVALID_ARGUMENT, () -> array.read(0, array.asBuffer()));
            Expect.nullParameter("data", () -> array.set((Buffer) null));
            Expect.nullParameter("destination", () -> array.read(0, (Buffer) null));
            assertArrayEquals(NUMBERS, array.toFloats());
        }
    }

    @Test
    void byteArraysAreSignedNumbers() {
        byte[] bytes = {-1, 0, 127};
        for (DType dtype : DType.values()) {
            try (NDArray array = NDArray.of(bytes, Shape.of(3), dtype, Context.cpu());
                    NDArray other = NDArray.zeros(Shape.of(3), dtype, Context.cpu()).set(bytes)) {
                float first = dtype == DType.UINT8 ? 255 : -1;
                assertArrayEquals(new float[] {first, 0, 127}, array.toFloats());
                assertArrayEquals(array.toFloats(), other.toFloats());
                byte[] read = new byte[3];
                array.read(0, read);
                assertArrayEquals(bytes, read);
            }
        }
        try (NDArray array = matrix()) {
            Expect.code(LENGTH_MISMATCH, () -> array.set(bytes));
            Expect.code(LENGTH_MISMATCH,
                    () -> NDArray.of(bytes, Shape.of(2), DType.FLOAT32, Context.cpu()));
        }
    }

    /**
     * Uses reflection, because memory segments are final only since Java 22 and the tests are
     * compiled for 17.
     */
    @Test
    void aBufferOverFreedMemoryThrows() throws Exception {
        assumeTrue(Runtime.version().feature() >= 22, "java.lang.foreign is final since Java 22");
        Class<?> arenas = Class.forName("java.lang.foreign.Arena");
        AutoCloseable arena = (AutoCloseable) arenas.getMethod("ofShared").invoke(null);
        Object segment = arenas.getMethod("allocate", long.class).invoke(arena, 24);
        ByteBuffer buffer = (ByteBuffer) Class.forName("java.lang.foreign.MemorySegment")
                .getMethod("asByteBuffer").invoke(segment);
        buffer.order(ByteOrder.nativeOrder());
        try (NDArray array = matrix()) {
            array.read(0, buffer);
            assertEquals(1, buffer.getFloat(0));
            arena.close();
            assertThrows(IllegalStateException.class, () -> array.read(0, buffer));
            assertThrows(IllegalStateException.class, () -> array.read(0, buffer.asFloatBuffer()));
            assertThrows(IllegalStateException.class,
                    () -> NDArray.of(buffer, Shape.of(6), DType.FLOAT32, Context.cpu()));
        }
    }
}
