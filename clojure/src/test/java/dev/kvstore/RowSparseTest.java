package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.CLOSED;
import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static dev.kvstore.KVStoreException.Code.KEY_NOT_FOUND;
import static dev.kvstore.KVStoreException.Code.LENGTH_MISMATCH;
import static dev.kvstore.KVStoreException.Code.SPEC_MISMATCH;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class RowSparseTest {
    private static final Shape SHAPE = Shape.of(4, 2);

    private static RowSparse rows(float value, long... indices) {
        float[] elements = new float[2 * indices.length];
        Arrays.fill(elements, value);
        return RowSparse.of(elements, indices, SHAPE);
    }

    private static float[] pulled(KVStore store, String key) {
        try (NDArray array = store.pull(key)) {
            return array.toFloats();
        }
    }

    @Test
    void aValueConsistsOfItsRows() {
        try (RowSparse rows = RowSparse.of(new float[] {1, 2, 3, 4}, new long[] {1, 3}, SHAPE);
                NDArray data = rows.rows();
                NDArray dense = rows.toDense()) {
            assertEquals(SHAPE, rows.shape());
            assertEquals(DType.FLOAT32, rows.dtype());
            assertEquals(Context.cpu(), rows.context());
            assertEquals(2, rows.numRows());
            assertArrayEquals(new long[] {1, 3}, rows.indices());
            assertEquals(Shape.of(2, 2), data.shape());
            assertArrayEquals(new float[] {1, 2, 3, 4}, data.toFloats());
            assertArrayEquals(new float[] {0, 0, 1, 2, 0, 0, 3, 4}, dense.toFloats());
            assertTrue(rows.toString().startsWith("RowSparse[2 rows of float32 "), rows.toString());
        }
    }

    @Test
    void doublesAreConverted() {
        try (RowSparse rows = RowSparse.of(
                        new double[] {1.5, -2}, new long[] {2}, SHAPE, DType.INT32, Context.cpu(1));
                NDArray dense = rows.toDense()) {
            assertEquals(Context.cpu(1), rows.context());
            assertArrayEquals(new float[] {0, 0, 0, 0, 1, -2, 0, 0}, dense.toFloats());
        }
    }

    @Test
    void rowsWithTheSameIndexAreSummed() {
        try (NDArray array = NDArray.of(new float[] {1, 1, 2, 2, 4, 4}, Shape.of(3, 2));
                RowSparse rows = RowSparse.fromIds(array, new long[] {3, 0, 3}, SHAPE)) {
            array.set(9);
            assertArrayEquals(new long[] {0, 3}, rows.indices());
            try (NDArray dense = rows.toDense()) {
                assertArrayEquals(new float[] {2, 2, 0, 0, 0, 0, 5, 5}, dense.toFloats());
            }
        }
    }

    @Test
    void aValueMayHaveNoRows() {
        try (KVStore store = KVStore.create();
                RowSparse none = rows(1)) {
            store.init("w", none);
            assertArrayEquals(new float[8], pulled(store, "w"));
            try (RowSparse pulled = store.rowSparsePull("w", new long[0])) {
                assertEquals(0, pulled.numRows());
                assertEquals(SHAPE, pulled.shape());
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"local", "device"})
    void denseAndRowSparseValuesMixInOneCall(String type) {
        try (KVStore store = KVStore.create(type);
                NDArray ones = NDArray.ones(SHAPE);
                RowSparse one = rows(1, 0, 2);
                RowSparse two = rows(2, 2)) {
            store.init(List.of("a", "b"), List.of(ones, one));
            store.push("a", List.of(one, two));
            assertArrayEquals(new float[] {1, 1, 0, 0, 3, 3, 0, 0}, pulled(store, "a"));
            store.push(List.of("a", "b", "b"), List.of(two, ones, two));
            assertArrayEquals(new float[] {0, 0, 0, 0, 2, 2, 0, 0}, pulled(store, "a"));
            assertArrayEquals(new float[] {1, 1, 1, 1, 3, 3, 1, 1}, pulled(store, "b"));
            store.push(Map.of("a", one, "b", ones));
            store.push("a", one, 1).init(Map.of("c", two));
            try (NDArray out = NDArray.zeros(SHAPE)) {
                store.pushpull(new String[] {"c"}, new Value[] {one},
                        new String[] {"c"}, new NDArray[] {out}, 0);
                assertArrayEquals(new float[] {1, 1, 0, 0, 1, 1, 0, 0}, out.toFloats());
            }
            List<RowSparse> pulled =
                    store.rowSparsePull(
                            List.of("b", "a"), List.of(new long[] {3}, new long[] {2, 1, 1}));
            assertArrayEquals(new long[] {3}, pulled.get(0).indices());
            assertArrayEquals(new long[] {1, 2}, pulled.get(1).indices());
            try (NDArray data = pulled.get(1).rows()) {
                assertArrayEquals(new float[] {0, 0, 1, 1}, data.toFloats());
            }
            pulled.forEach(RowSparse::close);
        }
    }

    @Test
    void lazyUpdatesLeaveOtherRowsAlone() {
        for (double lazy : new double[] {1, 0}) {
            try (KVStore store = KVStore.create();
                    NDArray ones = NDArray.ones(SHAPE);
                    RowSparse gradient = rows(1, 1)) {
                store.init("w", ones).setOptimizer(
                        Optimizer.sgd()
                                .learningRate(0.5)
                                .weightDecay(0.5)
                                .with("lazy_update", lazy));
                assertEquals(lazy, store.hyperParameters().get("lazy_update"));
                store.push("w", gradient);
                float other = lazy == 1 ? 1 : 0.75f;
                assertArrayEquals(
                        new float[] {other, other, 0.25f, 0.25f, other, other, other, other},
                        pulled(store, "w"));
                assertEquals(1, store.stats().get(0).numPushes());
            }
        }
    }

    @Test
    void anUpdaterReceivesTheDenseSum() {
        try (KVStore store = KVStore.create();
                NDArray ones = NDArray.ones(SHAPE);
                RowSparse one = rows(1, 1)) {
            store.init("w", ones).setUpdater((key, pushed, stored) -> stored.addInPlace(pushed));
            store.push("w", List.of(one, one));
            assertArrayEquals(new float[] {1, 1, 3, 3, 1, 1, 1, 1}, pulled(store, "w"));
        }
    }

    @Test
    void invalidArgumentsAreNamed() {
        float[] row = {1, 2};
        Expect.code(INVALID_ARGUMENT, () -> RowSparse.of(row, new long[] {4}, SHAPE));
        Expect.code(INVALID_ARGUMENT, () -> RowSparse.of(row, new long[] {-1}, SHAPE));
        Expect.code(INVALID_ARGUMENT, () -> RowSparse.of(new float[4], new long[] {2, 1}, SHAPE));
        Expect.code(INVALID_ARGUMENT, () -> RowSparse.of(row, new long[] {0}, Shape.of()));
        Expect.code(LENGTH_MISMATCH, () -> RowSparse.of(row, new long[] {0, 1}, SHAPE));
        Expect.nullParameter("indices", () -> RowSparse.of(row, null, SHAPE));
        try (KVStore store = KVStore.create();
                NDArray ones = NDArray.ones(SHAPE);
                NDArray wide = NDArray.ones(Shape.of(1, 3));
                RowSparse one = rows(1, 1);
                RowSparse other = RowSparse.of(row, new long[] {1}, Shape.of(5, 2))) {
            Expect.code(SPEC_MISMATCH, () -> RowSparse.of(wide, new long[] {1}, SHAPE));
            store.init("w", ones);
            Expect.code(SPEC_MISMATCH, () -> store.push("w", other));
            Expect.code(KEY_NOT_FOUND, () -> store.push("v", one));
            Expect.code(KEY_NOT_FOUND, () -> store.rowSparsePull("v", new long[] {1}));
            KVStoreException outside = Expect.code(
                    INVALID_ARGUMENT, () -> store.rowSparsePull("w", new long[] {0, 4}));
            assertTrue(outside.getMessage().contains("key `w`: row index 4 is out of range"),
                    outside.getMessage());
            Expect.code(LENGTH_MISMATCH,
                    () -> store.rowSparsePull(List.of("w"), List.of(new long[0], new long[0])));
            store.setGradientCompression("2bit", 0.5);
            Expect.code(INVALID_ARGUMENT, () -> store.push("w", one));
        }
    }

    @Test
    void aClosedValueThrows() throws Exception {
        RowSparse rows = rows(1, 1);
        RowSparse kept = ResourceScope.using(() -> {
            RowSparse inner = rows(2, 1);
            inner.toDense();
            return inner;
        });
        assertFalse(kept.isClosed());
        kept.close();
        rows.close();
        rows.close();
        assertTrue(rows.isClosed());
        Expect.code(CLOSED, rows::indices);
        Expect.code(CLOSED, rows::rows);
        Expect.code(CLOSED, rows::toDense);
        try (KVStore store = KVStore.create()) {
            Expect.code(CLOSED, () -> store.init("w", rows));
        }
    }
}
