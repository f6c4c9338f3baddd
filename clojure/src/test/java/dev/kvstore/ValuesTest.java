package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

/** Tests the value classes: contexts, shapes, dtypes, optimizers. */
class ValuesTest {
    @Test
    void contextsAreEqualByTypeAndNumber() {
        assertEquals(Context.cpu(), Context.of("cpu", 0));
        assertEquals(Context.gpu(2).hashCode(), Context.of("gpu", 2).hashCode());
        assertNotEquals(Context.cpu(1), Context.gpu(1));
        assertEquals("gpu(3)", Context.gpu(3).toString());
        assertEquals("gpu", Context.gpu().deviceType());
        assertEquals(3, Context.cpu(3).deviceId());
    }

    @Test
    void invalidContextsAreRejected() {
        Expect.code(INVALID_ARGUMENT, () -> Context.of("tpu", 0));
        Expect.code(INVALID_ARGUMENT, () -> Context.cpu(-1));
        Expect.nullParameter("deviceType", () -> Context.of(null, 0));
    }

    @Test
    void shapesAreValues() {
        Shape shape = Shape.of(1, 2, 3);
        assertEquals(Shape.of(new int[] {1, 2, 3}), shape);
        assertEquals("(1,2,3)", shape.toString());
        assertEquals(6, shape.product());
        assertEquals(3, shape.length());
        assertEquals(2, shape.get(1));
        shape.toArray()[0] = 9;
        assertArrayEquals(new long[] {1, 2, 3}, shape.toArray());
        assertEquals(1, Shape.of().product());
        assertEquals(0, Shape.of(Long.MAX_VALUE, 0, 3).product());
    }

    @Test
    void invalidShapesAreRejected() {
        Expect.code(INVALID_ARGUMENT, () -> Shape.of(2, -1));
        Expect.code(INVALID_ARGUMENT, () -> Shape.of(1L << 32, 1L << 32));
        Expect.code(INVALID_ARGUMENT, () -> Shape.of(1L << 32, 1L << 31));
        Expect.code(INVALID_ARGUMENT, () -> Shape.of(2).get(1));
        Expect.nullParameter("dimensions", () -> Shape.of((long[]) null));
    }

    @Test
    void dtypesHaveNamesAndSizes() {
        assertEquals("bfloat16", DType.BFLOAT16.toString());
        assertEquals(2, DType.fromName("float16").numBytes());
        Expect.code(INVALID_ARGUMENT, () -> DType.fromName("float8"));
        Expect.code(INVALID_ARGUMENT, () -> DType.fromCode(7));
    }

    @Test
    void optimizersAreImmutable() {
        Optimizer defaults = Optimizer.sgd();
        Optimizer changed = defaults.learningRate(0.5).with("momentum", 0.9);
        assertEquals(Optimizer.sgd(), defaults);
        assertEquals(0.5, changed.hyperParameters().get("learning_rate"));
        assertEquals(0.9, changed.hyperParameters().get("momentum"));
        assertEquals("sgd", changed.name());
        assertThrows(
                UnsupportedOperationException.class, () -> changed.hyperParameters().clear());
        KVStoreException unknown =
                Expect.code(INVALID_ARGUMENT, () -> defaults.with("learning-rate", 1));
        assertTrue(unknown.getMessage().contains("learning_rate"), unknown.getMessage());
    }
}
