package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static dev.kvstore.KVStoreException.Code.IO;
import static dev.kvstore.KVStoreException.Code.KEY_EXISTS;
import static dev.kvstore.KVStoreException.Code.KEY_NOT_FOUND;
import static dev.kvstore.KVStoreException.Code.LENGTH_MISMATCH;
import static dev.kvstore.KVStoreException.Code.SPEC_MISMATCH;
import static dev.kvstore.KVStoreException.Code.UNSUPPORTED;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalDouble;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

class KVStoreTest {
    private static final Shape SHAPE = Shape.of(2, 3);

    @ParameterizedTest
    @CsvSource({
        "local, local",
        "LOCAL, local",
        "local_update_cpu, local_update_cpu",
        "local_allreduce_cpu, local_allreduce_cpu",
        "Device, device",
        "local_allreduce_device, local_allreduce_device"
    })
    void theTypeIsTheNameInLowerCase(String name, String type) {
        try (KVStore store = KVStore.create(name)) {
            assertEquals(type, store.type());
            assertEquals("KVStore[" + type + "]", store.toString());
            assertEquals(0, store.rank());
            assertEquals(1, store.numWorkers());
            assertSame(store, store.barrier().setBarrierBeforeExit(false));
            assertEquals(0, store.numDeadNode(4));
            assertSame(store, store.sendCommandToServers(1, "hello"));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "nonsense", "my_local", "local "})
    void unknownTypesAreRejected(String name) {
        KVStoreException exception = Expect.code(INVALID_ARGUMENT, () -> KVStore.create(name));
        assertTrue(exception.getMessage().contains("local_allreduce_device"),
                exception.getMessage());
    }

    @Test
    void typesThatThisVersionLacksAreUnsupported() {
        Expect.code(UNSUPPORTED, () -> KVStore.create("nccl"));
        Expect.nullParameter("name", () -> KVStore.create(null));
    }

    @Test
    void keysInEveryForm() {
        try (KVStore store = KVStore.create();
                NDArray one = NDArray.ones(SHAPE);
                NDArray two = NDArray.full(SHAPE, 2);
                NDArray out = NDArray.zeros(SHAPE);
                NDArray other = NDArray.zeros(SHAPE)) {
            Map<String, NDArray> map = new LinkedHashMap<>();
            map.put("c", one);
            map.put("d", two);
            store.init("a", one).init("b", List.of(two)).init(map)
                    .init(List.of("e", "f"), List.of(one, two));
            assertEquals(List.of("a", "b", "c", "d", "e", "f"), store.keys());

            assertArrayEquals(filled(1), store.pull("a", out).pull("a").toFloats());
            assertArrayEquals(filled(1), out.toFloats());

            store.push("a", List.of(one, two, two)).pull("a", List.of(out, out, other));
            assertArrayEquals(filled(5), out.toFloats());
            assertArrayEquals(filled(5), other.toFloats());

            store.push(List.of("b", "a", "b"), List.of(one, one, two))
                    .pull(List.of("b", "a"), List.of(out, other));
            assertArrayEquals(filled(3), out.toFloats());
            assertArrayEquals(filled(1), other.toFloats());

            store.push(map).pull(Map.of("d", out, "c", other), -1);
            assertArrayEquals(filled(2), out.toFloats());
            assertArrayEquals(filled(1), other.toFloats());

            List<NDArray> pulled = store.pull(List.of("d", "c", "d"));
            assertEquals(3, pulled.size());
            assertArrayEquals(filled(2), pulled.get(2).toFloats());

            store.push(new String[] {"e"}, new NDArray[] {two}, 7)
                    .pull(new String[] {"e"}, new NDArray[] {out}, 7);
            assertArrayEquals(filled(2), out.toFloats());

            store.push(List.of(), List.of()).pull("a", List.of()).remove();
            assertSame(store, store.remove("a", "c"));
            assertFalse(store.contains("a"));
            assertTrue(store.contains("b"));
            Expect.code(KEY_NOT_FOUND, () -> store.remove("b", "a"));
            assertTrue(store.contains("b"));
        }
    }

    @Test
    void pushpullAndBroadcast() {
        try (KVStore store = KVStore.create();
                NDArray one = NDArray.ones(SHAPE);
                NDArray two = NDArray.full(SHAPE, 2);
                NDArray out = NDArray.zeros(SHAPE);
                NDArray other = NDArray.zeros(SHAPE)) {
            store.broadcast("a", one, out).broadcast("b", two, List.of(out, other));
            assertArrayEquals(filled(2), out.toFloats());
            store.broadcast(List.of("c", "d"), List.of(one, two), List.of(out, other));
            assertArrayEquals(filled(1), out.toFloats());

            store.pushpull("a", List.of(one, two), List.of(out));
            assertArrayEquals(filled(3), out.toFloats());
            store.pushpull("a", List.of(out, other));
            assertArrayEquals(filled(5), out.toFloats());
            assertArrayEquals(filled(5), other.toFloats());
            store.pushpull(List.of("a", "b"), List.of(one, two), List.of(out, other));
            assertArrayEquals(filled(1), out.toFloats());
            assertArrayEquals(filled(2), other.toFloats());
            store.pushpull(List.of("a", "b"), List.of(out, other)).pushpull("a", one, other)
                    .pushpull("b", out);
            assertArrayEquals(filled(1), other.toFloats());
        }
    }

    @ParameterizedTest
    @EnumSource(DType.class)
    void everyDTypeIsSummed(DType dtype) {
        try (KVStore store = KVStore.create();
                NDArray value = NDArray.full(SHAPE, 3, dtype, Context.cpu());
                NDArray doubles = NDArray.zeros(SHAPE, DType.FLOAT64, Context.cpu(1))) {
            store.init("a", value).push("a", List.of(value, value, value)).pull("a", doubles);
            assertEquals(9, doubles.reduce(Reduction.MAX).toScalar());
            try (NDArray pulled = store.pull("a")) {
                assertEquals(dtype, pulled.dtype());
            }
        }
    }

    @Test
    void laterChangesOfAnArrayDoNotChangeTheStore() {
        try (KVStore store = KVStore.create();
                NDArray value = NDArray.ones(SHAPE);
                NDArray out = NDArray.zeros(SHAPE)) {
            store.init("a", value);
            value.set(7);
            assertArrayEquals(filled(1), store.pull("a").toFloats());
            store.push("a", value);
            value.set(8);
            store.pull("a", out);
            out.set(9);
            assertArrayEquals(filled(7), store.pull("a").toFloats());
        }
    }

    @Test
    void invalidCallsThrowWithACodeAndChangeNothing() {
        try (KVStore store = KVStore.create();
                NDArray value = NDArray.ones(SHAPE);
                NDArray wide = NDArray.ones(Shape.of(3, 2));
                NDArray ints = NDArray.ones(SHAPE, DType.INT32, Context.cpu());
                NDArray empty = NDArray.zeros(Shape.of(0))) {
            KVStoreException unknown =
                    Expect.code(KEY_NOT_FOUND, () -> store.push("w", value));
            assertEquals("w", unknown.key());
            assertNull(unknown.expected());
            Expect.code(KEY_NOT_FOUND, () -> store.pull("w"));
            store.init("w", value);

            KVStoreException shape = Expect.code(SPEC_MISMATCH, () -> store.push("w", wide));
            assertEquals("w", shape.key());
            assertEquals("[2, 3] f32", shape.expected());
            assertEquals("[3, 2] f32", shape.found());
            Expect.code(SPEC_MISMATCH, () -> store.push("w", ints));
            Expect.code(SPEC_MISMATCH, () -> store.pull("w", wide));
            Expect.code(SPEC_MISMATCH, () -> store.push("w", List.of(value, wide)));
            Expect.code(KEY_EXISTS, () -> store.init("w", value));
            Expect.code(KEY_EXISTS, () -> store.init("v", List.of(value, value)));
            Expect.code(KEY_EXISTS,
                    () -> store.init(List.of("v", "w"), List.of(value, value)));
            Expect.code(INVALID_ARGUMENT, () -> store.init("v", empty));
            Expect.code(LENGTH_MISMATCH,
                    () -> store.push(List.of("w", "w"), List.of(value)));
            Expect.code(INVALID_ARGUMENT, () -> store.init("v\0", value));
            Expect.code(INVALID_ARGUMENT, () -> store.init("half \ud800", value));
            Expect.code(INVALID_ARGUMENT, () -> store.saveOptimizerStates("states"));
            Expect.code(IO, () -> store.loadOptimizerStates("states"));

            assertEquals(List.of("w"), store.keys());
            assertArrayEquals(filled(1), store.pull("w").toFloats());
        }
    }

    @Test
    void keysMayBeAnyString() {
        try (KVStore store = KVStore.create();
                NDArray value = NDArray.ones(SHAPE)) {
            List<String> keys = List.of("", " ", "ключ", "𝛼🎲", "a\nb", "\ufffd");
            store.init(keys, List.of(value, value, value, value, value, value));
            assertEquals(keys, store.keys());
            KVStoreException exception =
                    Expect.code(KEY_NOT_FOUND, () -> store.pull("🎲"));
            assertEquals("🎲", exception.key());
            assertTrue(exception.getMessage().contains("🎲"), exception.getMessage());
        }
    }

    @Test
    void nullArgumentsAreRejectedByName() {
        try (KVStore store = KVStore.create();
                NDArray value = NDArray.ones(SHAPE)) {
            Expect.nullParameter("key", () -> store.init(null, value));
            Expect.nullParameter("value", () -> store.init("a", (NDArray) null));
            Expect.nullParameter("values", () -> store.init("a", (List<NDArray>) null));
            Expect.nullParameter("keys", () -> store.push((List<String>) null, List.of(value)));
            Expect.nullParameter("out", () -> store.pull("a", (NDArray) null));
            Expect.nullParameter("keys[1]",
                    () -> store.push(new String[] {"a", null}, new NDArray[] {value, value}, 0));
            Expect.nullParameter("values[1] for key `b`",
                    () -> store.push(new String[] {"a", "b"}, new NDArray[] {value, null}, 0));
            Expect.nullParameter("outs[0] for key `a`",
                    () -> store.pull(new String[] {"a"}, new NDArray[] {null}, 0));
            Expect.nullParameter("values[0] for key `a`",
                    () -> store.push(new String[] {"a"}, new NDArray[] {null}, 0));
            Expect.nullParameter("optimizer", () -> store.setOptimizer(null));
            Expect.nullParameter("body", () -> store.sendCommandToServers(0, null));
        }
    }

    @Test
    void theNativeLibraryRejectsNull() {
        NativeLibrary.load();
        long store = NativeKVStore.create("local", new String[0], new String[0]);
        long[] none = {};
        KVStoreException exception =
                Expect.code(INVALID_ARGUMENT, () -> NativeKVStore.push(store, null, none, 0));
        assertTrue(exception.getMessage().contains("keys"), exception.getMessage());
        exception = Expect.code(INVALID_ARGUMENT,
                () -> NativeKVStore.push(store, new String[] {null}, none, 0));
        assertTrue(exception.getMessage().contains("keys[0]"), exception.getMessage());
        Expect.code(INVALID_ARGUMENT, () -> NativeKVStore.pull(store, new String[0], null, 0));
        Expect.code(INVALID_ARGUMENT, () -> NativeKVStore.setUpdater(store, null));
        String[] empty = {};
        Expect.code(INVALID_ARGUMENT, () -> NativeKVStore.create(null, empty, empty));
        NativeKVStore.release(store);
    }

    @Test
    void manyKeysInOneCall() {
        String[] keys = new String[20_000];
        NDArray[] values = new NDArray[keys.length];
        try (KVStore store = KVStore.create();
                NDArray value = NDArray.ones(Shape.of(1))) {
            for (int i = 0; i < keys.length; i++) {
                keys[i] = "key " + i;
                values[i] = value;
            }
            store.init(keys, values).push(keys, values, 0);
            NDArray[] pulled = store.pull(keys);
            assertEquals(1, pulled[keys.length - 1].toScalar());
            assertEquals(keys.length, store.keys().size());
            for (NDArray array : pulled) {
                array.close();
            }
        }
    }

    @Test
    void theOptimizerRunsOnTheStore() {
        try (KVStore store = KVStore.create();
                NDArray weight = NDArray.ones(SHAPE);
                NDArray gradient = NDArray.full(SHAPE, 0.5)) {
            store.init("w", weight)
                    .setOptimizer(Optimizer.sgd().learningRate(0.1).momentum(0.5).weightDecay(0));
            store.push("w", gradient);
            assertEquals(0.95, store.pull("w").reduce(Reduction.MAX).toScalar(), 1e-6);
            store.push("w", gradient);
            assertEquals(0.875, store.pull("w").reduce(Reduction.MAX).toScalar(), 1e-6);
            store.setUpdater(null).push("w", gradient);
            assertArrayEquals(filled(0.5f), store.pull("w").toFloats());
        }
    }

    @Test
    void anInvalidOptimizerIsRejected() {
        try (KVStore store = KVStore.create()) {
            Expect.code(INVALID_ARGUMENT,
                    () -> store.setOptimizer(Optimizer.sgd().learningRate(-1)));
            Expect.code(INVALID_ARGUMENT, store::hyperParameters);
            store.setOptimizer(Optimizer.sgd());
            KVStoreException exception = Expect.code(INVALID_ARGUMENT,
                    () -> store.setHyperParameters(Map.of("learningrate", 1)));
            assertTrue(exception.getMessage().contains("learningrate"), exception.getMessage());
        }
    }

    @Test
    void hyperParametersOfAStoreCanBeChanged() {
        try (KVStore store = KVStore.create();
                NDArray weight = NDArray.ones(SHAPE);
                NDArray gradient = NDArray.ones(SHAPE)) {
            store.init("w", weight).setOptimizer(Optimizer.sgd().weightDecay(0));
            assertEquals(0.01, store.hyperParameters().get("learning_rate"));
            store.setHyperParameters(Map.of("learning_rate", 0.25)).push("w", gradient);
            assertEquals(0.25, store.hyperParameters().get("learning_rate"));
            assertArrayEquals(filled(0.75f), store.pull("w").toFloats());
            Expect.code(INVALID_ARGUMENT,
                    () -> store.setHyperParameters(
                            Map.of("learning_rate", 1, "wd", "x".length(), "no", 1)));
            assertEquals(0.25, store.hyperParameters().get("learning_rate"), "all or none");
        }
    }

    static float[] filled(float value) {
        return new float[] {value, value, value, value, value, value};
    }

    @Test
    @Tag("host")
    void mapsReplaceKeysAndValues() {
        try (KVStore store = KVStore.create();
                NDArray one = NDArray.ones(Shape.of(2));
                NDArray out = NDArray.zeros(Shape.of(2))) {
            store.broadcast(Map.of("a", one, "b", one), Map.of("b", out));
            assertEquals(1, out.toFloats()[0]);
            store.pushpull(Map.of("a", one.add(2)), Map.of("a", out));
            assertEquals(3, out.toFloats()[0]);
            assertEquals(List.of(1L, 0L),
                    store.stats().stream()
                            .sorted(Comparator.comparing(KeyStats::key))
                            .map(KeyStats::numPushes)
                            .toList());
            KeyStats first = store.stats().get(0);
            assertEquals(List.of(Shape.of(2), DType.FLOAT32, Context.cpu(), 8L, 0L),
                    List.of(first.shape(), first.dtype(), first.context(), first.numBytes(),
                            first.stateBytes()));
        }
    }

    @Test
    void compressionAppliesToPushedValues() {
        try (KVStore store = KVStore.create();
                NDArray zeros = NDArray.zeros(Shape.of(2));
                NDArray gradient = NDArray.of(new float[] {0.3f, -0.7f}, Shape.of(2));
                NDArray ints = NDArray.ones(Shape.of(2), DType.INT32, Context.cpu())) {
            store.init("w", zeros).init("n", ints).setGradientCompression("2bit", 0.5);
            store.push("w", gradient).pull("w", zeros);
            assertArrayEquals(new float[] {0, -0.5f}, zeros.toFloats());
            store.push("w", gradient).pull("w", zeros);
            assertArrayEquals(new float[] {0.5f, -0.5f}, zeros.toFloats());
            Expect.code(INVALID_ARGUMENT, () -> store.push("n", ints));
            store.clearGradientCompression().push("n", ints);
            store.setGradientCompression("1bit", 0.5).push("w", gradient).pull("w", zeros);
            assertArrayEquals(new float[] {-1, -1}, zeros.toFloats());
            Expect.code(INVALID_ARGUMENT, () -> store.setGradientCompression("2Bit", 0.5));
            Expect.code(INVALID_ARGUMENT, () -> store.setGradientCompression("2bit", 0));
            Expect.code(INVALID_ARGUMENT, () -> store.setGradientCompression("2bit", Double.NaN));
            Expect.nullParameter("type", () -> store.setGradientCompression(null, 0.5));
        }
    }

    @Test
    void sumsAreClippedByTheNormOfAllKeys() {
        try (KVStore store = KVStore.create();
                NDArray zero = NDArray.zeros(Shape.of(1));
                NDArray six = NDArray.of(new float[] {6}, Shape.of(1));
                NDArray eight = NDArray.of(new float[] {8}, Shape.of(1));
                NDArray ints = NDArray.ones(Shape.of(2), DType.INT32, Context.cpu())) {
            store.init(List.of("a", "b"), List.of(zero, zero)).init("n", ints);
            assertEquals(OptionalDouble.empty(), store.clipGlobalNorm());
            store.setClipGlobalNorm(5);
            assertEquals(OptionalDouble.of(5), store.clipGlobalNorm());
            store.push(List.of("a", "b"), List.of(six, eight)).pull("a", zero);
            assertArrayEquals(new float[] {3}, zero.toFloats());
            store.push("a", six).pull("a", zero);
            assertArrayEquals(new float[] {5}, zero.toFloats());
            Expect.code(INVALID_ARGUMENT, () -> store.push("n", ints));
            Expect.code(INVALID_ARGUMENT, () -> store.setClipGlobalNorm(0));
            Expect.code(INVALID_ARGUMENT, () -> store.setClipGlobalNorm(Double.NaN));
            Expect.code(INVALID_ARGUMENT, () -> store.setGradientCompression("2bit", 0.5));
            store.clearClipGlobalNorm().push("a", six).pull("a", zero);
            assertArrayEquals(new float[] {6}, zero.toFloats());
        }
    }
}
