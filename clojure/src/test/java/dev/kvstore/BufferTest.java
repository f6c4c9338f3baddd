package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.CLOSED;
import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.ReadOnlyBufferException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Elements without a copy, and elements in arrays of the caller. */
class BufferTest {
    private static final float[] NUMBERS = {1, 2, 3, 4, 5, 6};

    private static NDArray matrix() {
        return NDArray.of(NUMBERS, Shape.of(2, 3));
    }

    @ParameterizedTest
    @EnumSource
    void aBufferHasTheBytesOfEveryDtype(DType dtype) {
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
    void aBufferCannotBeWritten() {
        try (NDArray array = matrix()) {
            ByteBuffer buffer = array.asBuffer();
            assertTrue(buffer.isReadOnly());
            assertThrows(ReadOnlyBufferException.class, () -> buffer.put(0, (byte) 1));
            assertThrows(ReadOnlyBufferException.class,
                    () -> buffer.duplicate().order(ByteOrder.nativeOrder()).asFloatBuffer().put(0, 1));
        }
    }

    @Test
    void aViewAndNothingHaveBuffers() {
        try (NDArray array = matrix();
                NDArray row = array.slice(1, 2);
                NDArray nothing = NDArray.zeros(Shape.of(0, 2))) {
            FloatBuffer buffer = row.asBuffer().asFloatBuffer();
            assertEquals(3, buffer.remaining());
            assertEquals(4, buffer.get(0));
            assertEquals(0, nothing.asBuffer().remaining());
        }
    }

    /** The memory stays while a buffer made from the first one is there, and goes some time after it. */
    @Test
    void memoryLivesAsLongAsItCanBeReached() {
        int length = 1 << 20;
        long before = NativeMemory.liveBytes();
        List<FloatBuffer> buffers = new ArrayList<>();
        for (int i = 0; i < 16; i++) {
            try (NDArray array = NDArray.full(Shape.of(length), i)) {
                buffers.add(array.asBuffer().slice().order(ByteOrder.nativeOrder()).asFloatBuffer());
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
    void aLargeArrayIsReadPieceByPiece() {
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
}
