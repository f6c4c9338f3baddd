package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.DEVICE_UNAVAILABLE;
import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static dev.kvstore.KVStoreException.Code.LENGTH_MISMATCH;
import static dev.kvstore.KVStoreException.Code.SPEC_MISMATCH;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class NDArrayTest {
    private static final Context CPU = Context.cpu();
    private static final Shape VECTOR = Shape.of(3);

    @ParameterizedTest
    @EnumSource(DType.class)
    void everyNumberTypeIsConvertedToAndFromEveryDType(DType dtype) {
        try (NDArray floats = NDArray.of(new float[] {1, 2, 100}, VECTOR, dtype, CPU);
                NDArray doubles = NDArray.of(new double[] {1, 2, 100}, VECTOR, dtype, CPU);
                NDArray ints = NDArray.of(new int[] {1, 2, 100}, VECTOR, dtype, CPU);
                NDArray longs = NDArray.of(new long[] {1, 2, 100}, VECTOR, dtype, CPU);
                NDArray bytes = NDArray.fromBytes(longs.toBytes(), VECTOR, dtype, CPU)) {
            for (NDArray array : List.of(floats, doubles, ints, longs, bytes)) {
                assertEquals(dtype, array.dtype());
                assertArrayEquals(new float[] {1, 2, 100}, array.toFloats());
                assertArrayEquals(new double[] {1, 2, 100}, array.toDoubles());
                assertArrayEquals(new int[] {1, 2, 100}, array.toInts());
                assertArrayEquals(new long[] {1, 2, 100}, array.toLongs());
                assertEquals(3 * dtype.numBytes(), array.toBytes().length);
            }
        }
    }

    @ParameterizedTest
    @EnumSource(DType.class)
    void everyDTypeIsFilledAndWritten(DType dtype) {
        Shape shape = Shape.of(2, 2);
        try (NDArray array = NDArray.zeros(shape, dtype, CPU)) {
            assertArrayEquals(new int[4], array.toInts());
            assertArrayEquals(new int[] {7, 7, 7, 7}, array.set(7.9).asType(DType.INT32).toInts(),
                    "floats keep the fraction until they are converted");
            assertArrayEquals(new int[] {5, 5, 5, 5}, array.set(5).toInts());
            assertArrayEquals(new int[] {1, 2, 3, 4}, array.set(new float[] {1, 2, 3, 4}).toInts());
            assertArrayEquals(new int[] {4, 3, 2, 1}, array.set(new int[] {4, 3, 2, 1}).toInts());
            assertArrayEquals(new int[] {1, 1, 2, 2}, array.set(new long[] {1, 1, 2, 2}).toInts());
            assertArrayEquals(
                    new int[] {3, 3, 4, 4}, array.set(new double[] {3, 3, 4, 4}).toInts());
            assertEquals("NDArray[" + dtype + " (2,2) cpu(0)]", array.toString());
        }
    }

    @Test
    void bytesAreLittleEndian() {
        byte[] expected = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN)
                .putInt(1).putInt(-2).array();
        try (NDArray array = NDArray.of(new int[] {1, -2}, Shape.of(2), DType.INT32, CPU)) {
            assertArrayEquals(expected, array.toBytes());
        }
    }

    @Test
    void unsignedBytesReadAsNumbersFrom0To255() {
        try (NDArray array = NDArray.of(new int[] {200}, Shape.of(1), DType.UINT8, CPU)) {
            assertEquals(200, array.toScalar());
            assertArrayEquals(new byte[] {(byte) 200}, array.toBytes());
        }
    }

    @Test
    void longsAreExactBeyondDoubles() {
        long odd = (1L << 53) + 1;
        try (NDArray array = NDArray.fullLong(Shape.of(2), odd, DType.INT64, CPU);
                NDArray sum = array.apply(BinaryOp.ADD, 2L)) {
            assertArrayEquals(new long[] {odd, odd}, array.toLongs());
            assertArrayEquals(new long[] {odd + 2, odd + 2}, sum.toLongs());
            assertArrayEquals(new long[] {odd + 1, odd + 1},
                    array.applyInPlace(BinaryOp.ADD, 1L).toLongs());
            assertArrayEquals(new long[] {odd, odd}, array.set(odd).toLongs());
        }
    }

    @Test
    void defaultsAreFloat32OnTheFirstCpu() {
        try (NDArray array = NDArray.ones(Shape.of(2, 3))) {
            assertEquals(DType.FLOAT32, array.dtype());
            assertEquals(Context.cpu(), array.context());
            assertEquals(Shape.of(2, 3), array.shape());
            assertEquals(6, array.size());
        }
    }

    @Test
    void arraysKeepTheirContext() {
        try (NDArray array = NDArray.ones(VECTOR, DType.FLOAT64, Context.cpu(3));
                NDArray moved = array.asContext(Context.cpu(1))) {
            assertEquals(Context.cpu(3), array.context());
            assertEquals(Context.cpu(1), moved.context());
            assertSame(array, array.asContext(Context.cpu(3)));
        }
    }

    @Test
    void scalarsAndEmptyArraysExist() {
        try (NDArray scalar = NDArray.full(Shape.of(), 4);
                NDArray empty = NDArray.zeros(Shape.of(0, 3))) {
            assertEquals(4, scalar.toScalar());
            assertEquals(0, empty.toFloats().length);
            Expect.code(INVALID_ARGUMENT, empty::toScalar);
        }
    }

    @Test
    void arangeCountsAndRepeats() {
        try (NDArray array = NDArray.arange(1, 3, 0.5, 2, DType.FLOAT64, CPU)) {
            assertArrayEquals(new double[] {1, 1, 1.5, 1.5, 2, 2, 2.5, 2.5}, array.toDoubles());
        }
        Expect.code(INVALID_ARGUMENT, () -> NDArray.arange(3, 1, 1, 1, DType.FLOAT32, CPU));
        Expect.code(INVALID_ARGUMENT, () -> NDArray.arange(1, 3, 1, -1, DType.FLOAT32, CPU));
    }

    @Test
    void arithmetic() {
        try (NDArray a = NDArray.of(new float[] {1, 2, 3}, VECTOR);
                NDArray b = NDArray.of(new float[] {4, 5, 6}, VECTOR)) {
            assertArrayEquals(new float[] {5, 7, 9}, a.add(b).toFloats());
            assertArrayEquals(new float[] {-3, -3, -3}, a.subtract(b).toFloats());
            assertArrayEquals(new float[] {4, 10, 18}, a.multiply(b).toFloats());
            assertArrayEquals(new float[] {4, 2.5f, 2}, b.divide(a).toFloats());
            assertArrayEquals(new float[] {2, 3, 4}, a.add(1).toFloats());
            assertArrayEquals(new float[] {0, 1, 2}, a.subtract(1).toFloats());
            assertArrayEquals(new float[] {2, 4, 6}, a.multiply(2).toFloats());
            assertArrayEquals(new float[] {.5f, 1, 1.5f}, a.divide(2).toFloats());
            assertArrayEquals(
                    new float[] {9, 8, 7}, a.applyReversed(BinaryOp.SUB, 10).toFloats());
            assertArrayEquals(
                    new float[] {0, 1, 1}, a.apply(BinaryOp.GREATER, 1.5).toFloats());
            assertArrayEquals(new float[] {-1, -2, -3}, a.apply(UnaryOp.NEGATE).toFloats());
            assertEquals(6, a.reduce(Reduction.SUM).toScalar());
            assertEquals(32, a.dot(b).toScalar());
            assertArrayEquals(new float[] {1.5f, 2, 2.5f}, a.clip(1.5, 2.5).toFloats());
        }
    }

    @Test
    void arithmeticInPlaceReturnsTheArray() {
        try (NDArray a = NDArray.of(new float[] {1, 2, 3}, VECTOR);
                NDArray b = NDArray.of(new float[] {4, 5, 6}, VECTOR)) {
            assertSame(a, a.addInPlace(b).subtractInPlace(1).multiplyInPlace(b).divideInPlace(2));
            assertArrayEquals(new float[] {8, 15, 24}, a.toFloats());
            a.divideInPlace(b).multiplyInPlace(3).addInPlace(1).subtractInPlace(b);
            assertArrayEquals(new float[] {3, 5, 7}, a.toFloats());
        }
    }

    @Test
    void matrices() {
        try (NDArray matrix = NDArray.of(new float[] {1, 5, 3, 4, 2, 6}, Shape.of(2, 3));
                NDArray transposed = matrix.transpose();
                NDArray product = matrix.dot(transposed);
                NDArray best = matrix.argmaxChannel();
                NDArray joined = NDArray.concatenate(List.of(matrix, matrix), 1)) {
            assertEquals(Shape.of(3, 2), transposed.shape());
            assertArrayEquals(new float[] {35, 32, 32, 56}, product.toFloats());
            assertArrayEquals(new float[] {1, 2}, best.toFloats());
            assertEquals(Shape.of(2, 6), joined.shape());
        }
    }

    @Test
    void viewsShareTheirElements() {
        try (NDArray array = NDArray.zeros(Shape.of(3, 2));
                NDArray rows = array.slice(1, 3);
                NDArray row = array.at(0);
                NDArray flat = array.reshape(-1)) {
            rows.set(1);
            row.set(2);
            assertEquals(Shape.of(2, 2), rows.shape());
            assertEquals(Shape.of(2), row.shape());
            assertEquals(Shape.of(6), flat.shape());
            assertArrayEquals(new float[] {2, 2, 1, 1, 1, 1}, flat.toFloats());
        }
    }

    @Test
    void aViewOutlivesItsParent() {
        NDArray parent = NDArray.ones(Shape.of(3, 2));
        try (NDArray row = parent.at(1)) {
            parent.close();
            assertArrayEquals(new float[] {1, 1}, row.toFloats());
        }
    }

    @Test
    void copiesShareNoElements() {
        try (NDArray array = NDArray.ones(VECTOR);
                NDArray copy = array.copy();
                NDArray target = NDArray.zeros(VECTOR, DType.INT32, CPU)) {
            array.set(2.5);
            assertArrayEquals(new float[] {1, 1, 1}, copy.toFloats());
            assertSame(target, array.copyTo(target));
            assertArrayEquals(new int[] {2, 2, 2}, target.toInts());
            assertSame(copy, copy.set(target));
            assertArrayEquals(new float[] {2, 2, 2}, copy.toFloats());
        }
    }

    @Test
    void invalidArgumentsThrowWithACode() {
        try (NDArray array = NDArray.ones(Shape.of(2, 3));
                NDArray other = NDArray.ones(Shape.of(3, 2));
                NDArray ints = NDArray.ones(Shape.of(2, 3), DType.INT32, CPU)) {
            KVStoreException mismatch = Expect.code(SPEC_MISMATCH, () -> array.add(other));
            assertEquals("[2, 3] f32", mismatch.expected());
            assertEquals("[3, 2] f32", mismatch.found());
            Expect.code(SPEC_MISMATCH, () -> array.add(ints));
            Expect.code(SPEC_MISMATCH, () -> array.copyTo(other));
            Expect.code(INVALID_ARGUMENT, () -> ints.divide(0));
            Expect.code(INVALID_ARGUMENT, () -> array.slice(-1, 1));
            Expect.code(INVALID_ARGUMENT, () -> array.slice(2, 1));
            Expect.code(INVALID_ARGUMENT, () -> array.slice(0, 3));
            Expect.code(INVALID_ARGUMENT, () -> array.at(2));
            Expect.code(INVALID_ARGUMENT, () -> array.at(-1));
            Expect.code(INVALID_ARGUMENT, () -> array.reshape(4, -1));
            Expect.code(INVALID_ARGUMENT, () -> array.reshape(Long.MAX_VALUE, Long.MAX_VALUE));
            Expect.code(INVALID_ARGUMENT, () -> NDArray.concatenate(List.of(array, array), 2));
            Expect.code(INVALID_ARGUMENT, () -> NDArray.concatenate(List.of(array, array), -1));
            Expect.code(INVALID_ARGUMENT, () -> NDArray.concatenate(List.of(), 0));
            Expect.code(LENGTH_MISMATCH, () -> array.set(new float[5]));
            Expect.code(LENGTH_MISMATCH, () -> NDArray.of(new float[5], Shape.of(2, 3)));
            Expect.code(LENGTH_MISMATCH,
                    () -> NDArray.of(new int[5], Shape.of(1L << 40), DType.FLOAT32, CPU));
            Expect.code(LENGTH_MISMATCH,
                    () -> NDArray.fromBytes(new byte[5], VECTOR, DType.FLOAT32, CPU));
        }
    }

    @Test
    void nullArgumentsAreRejectedByName() {
        Expect.nullParameter("shape", () -> NDArray.zeros(null));
        Expect.nullParameter("dtype", () -> NDArray.zeros(VECTOR, null, CPU));
        Expect.nullParameter("context", () -> NDArray.zeros(VECTOR, DType.INT8, null));
        Expect.nullParameter("data", () -> NDArray.of(null, VECTOR));
        try (NDArray array = NDArray.ones(VECTOR)) {
            Expect.nullParameter("other", () -> array.add(null));
            Expect.nullParameter("op", () -> array.apply((UnaryOp) null));
            Expect.nullParameter("destination", () -> array.copyTo(null));
        }
    }

    @Test
    void theNativeLibraryRejectsNull() {
        NativeLibrary.load();
        KVStoreException exception = Expect.code(
                INVALID_ARGUMENT, () -> NativeNDArray.fromFloats(null, new long[] {1}, 0, 0, 0));
        assertTrue(exception.getMessage().contains("data"), exception.getMessage());
        Expect.code(INVALID_ARGUMENT, () -> NativeNDArray.full(null, 0, 0, 0, 0));
        Expect.code(INVALID_ARGUMENT, () -> NativeNDArray.full(new long[] {-1}, 0, 0, 0, 0));
        Expect.code(INVALID_ARGUMENT, () -> NativeNDArray.full(new long[] {1}, 9, 0, 0, 0));
        Expect.code(INVALID_ARGUMENT, () -> NativeNDArray.full(new long[] {1}, 0, 2, 0, 0));
        Expect.code(INVALID_ARGUMENT, () -> NativeNDArray.full(new long[] {1}, 0, 0, -1, 0));
        Expect.code(INVALID_ARGUMENT,
                () -> NativeNDArray.full(new long[] {1L << 40, 1L << 40}, 0, 0, 0, 0));
        try (NDArray array = NDArray.ones(VECTOR)) {
            Expect.code(INVALID_ARGUMENT, () -> NativeNDArray.unary(array.handle(), 99));
            Expect.code(INVALID_ARGUMENT, () -> NativeNDArray.unary(array.handle(), -1));
        }
    }

    @Test
    @Tag("host")
    void aGpuThatDoesNotExistThrows() {
        Context none = Context.gpu(Context.numGpus());
        KVStoreException exception = Expect.code(DEVICE_UNAVAILABLE,
                () -> NDArray.zeros(VECTOR, DType.FLOAT32, none));
        assertTrue(exception.getMessage().contains(none.toString()), exception.getMessage());
        try (NDArray array = NDArray.ones(VECTOR)) {
            Expect.code(DEVICE_UNAVAILABLE, () -> array.asContext(Context.gpu(99)));
            assertArrayEquals(new float[] {1, 1, 1}, array.toFloats());
        }
    }

    @Test
    void waitingReturns() {
        try (NDArray array = NDArray.ones(VECTOR)) {
            array.waitToRead();
            NDArray.waitAll();
        }
    }

    @Test
    void oneElementOfEachRow() {
        try (NDArray matrix = NDArray.arange(0, 6, 1, 1, DType.INT64, Context.cpu()).reshape(3, 2);
                NDArray columns =
                        NDArray.of(new byte[] {1, 0, 1}, Shape.of(3), DType.FLOAT32, Context.cpu());
                NDArray wrong = NDArray.full(Shape.of(3), 2);
                NDArray few = NDArray.ones(Shape.of(2))) {
            NDArray chosen = matrix.chooseElements(columns);
            assertArrayEquals(new long[] {1, 2, 5}, chosen.toLongs());
            assertEquals(DType.INT64, chosen.dtype());
            assertEquals(List.of(matrix, columns), chosen.dependencies());
            Expect.code(INVALID_ARGUMENT, () -> matrix.chooseElements(wrong));
            for (double none : new double[] {Double.NaN, -0.5, 0.5}) {
                try (NDArray noColumn = NDArray.full(Shape.of(3), none)) {
                    Expect.code(INVALID_ARGUMENT, () -> matrix.chooseElements(noColumn));
                }
            }
            Expect.code(INVALID_ARGUMENT, () -> chosen.chooseElements(columns));
            Expect.code(LENGTH_MISMATCH, () -> matrix.setOneHot(few));
            assertArrayEquals(
                    new float[] {0, 1, 1, 0, 0, 1}, matrix.setOneHot(columns).toFloats());
        }
    }

    @Test
    void arraysAreEqualIfTheirNumbersAre() {
        try (NDArray a = NDArray.of(new float[] {1, 2, 0}, Shape.of(3));
                NDArray same = NDArray.of(new double[] {1, 2, -0.0}, VECTOR, DType.FLOAT64, CPU);
                NDArray other = NDArray.of(new float[] {1, 2, 3}, Shape.of(3));
                NDArray column = a.reshape(3, 1);
                NDArray nan = NDArray.of(new float[] {Float.NaN}, Shape.of(1));
                NDArray nanToo = nan.copy()) {
            assertEquals(a, same);
            assertEquals(a.hashCode(), same.hashCode());
            assertNotEquals(a, other);
            assertNotEquals(a, column);
            assertNotEquals(a, null);
            assertEquals(nan, nan);
            assertNotEquals(nan, nanToo);
            NDArray closed = a.copy();
            closed.close();
            assertNotEquals(a, closed);
            assertEquals(closed, closed);
        }
        long[] large = {(1L << 60) + 1};
        try (NDArray one = NDArray.of(large, Shape.of(1), DType.INT64, CPU);
                NDArray next =
                        NDArray.of(new long[] {large[0] + 1}, Shape.of(1), DType.INT64, CPU)) {
            assertNotEquals(one, next);
        }
    }

    @Test
    void longRunsOfElementsAreReadFromAnyPosition() {
        int size = (9 << 20) + 5;
        int[] numbers = IntStream.range(0, size).toArray();
        try (NDArray ints = NDArray.of(numbers, Shape.of(size), DType.INT32, CPU);
                NDArray longs = ints.asType(DType.INT64);
                NDArray doubles = ints.asType(DType.FLOAT64);
                NDArray floats = ints.asType(DType.FLOAT32)) {
            // `assertArrayEquals` takes seconds for arrays of this size.
            assertTrue(Arrays.equals(numbers, ints.toInts()));
            assertTrue(Arrays.equals(numbers, floats.toInts()));
            assertTrue(Arrays.equals(
                    IntStream.of(numbers).asLongStream().toArray(), longs.toLongs()));
            assertTrue(Arrays.equals(
                    IntStream.of(numbers).asDoubleStream().toArray(), doubles.toDoubles()));
            float[] part = new float[size - 7];
            floats.read(3, part);
            float[] all = floats.toFloats();
            assertTrue(Arrays.equals(Arrays.copyOfRange(all, 3, size - 4), part));
            assertEquals(size - 1, all[size - 1]);
            Expect.code(INVALID_ARGUMENT, () -> floats.read(8, part));
            Expect.code(INVALID_ARGUMENT, () -> floats.read(-1, part));
        }
    }

    @Test
    void anEmptyRangeIsNotReportedAsOutOfMemory() {
        for (double step : new double[] {0, Double.NaN}) {
            Expect.code(INVALID_ARGUMENT,
                    () -> NDArray.arange(0, 1, step, 1, DType.FLOAT32, Context.cpu()));
        }
    }
}
