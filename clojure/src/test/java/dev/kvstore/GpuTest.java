package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.DEVICE_UNAVAILABLE;
import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static dev.kvstore.KVStoreException.Code.OUT_OF_MEMORY;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Tests arrays and stores on GPUs and compares them with those of the host. Skipped if there is no
 * GPU.
 */
@Tag("host")
class GpuTest {
    private static final Context GPU = Context.gpu();
    private static final float[] NUMBERS = {1, -2, 3, 4.5f, 5, 6};
    private static final Shape MATRIX = Shape.of(2, 3);

    @TempDir
    Path folder;

    @BeforeAll
    static void printWhatIsSkipped() {
        if (Context.numGpus() == 0) {
            System.out.println("not run: tests of GPUs, " + reason());
        }
    }

    @BeforeEach
    void skipWithoutGpu() {
        assumeTrue(Context.numGpus() > 0, GpuTest::reason);
    }

    private static String reason() {
        return "backend gpu " + Doctor.report().get("backend gpu");
    }

    /** Returns the second GPU, or the first if there is only one. */
    private static Context last() {
        return Context.gpu(Math.min(1, Context.numGpus() - 1));
    }

    private static NDArray matrix() {
        return NDArray.of(NUMBERS, MATRIX, DType.FLOAT32, GPU);
    }

    private static NDArray of(Context context, float... numbers) {
        return NDArray.of(numbers, Shape.of(numbers.length), DType.FLOAT32, context);
    }

    private static float[] pulled(KVStore store, String key) {
        try (NDArray array = store.pull(key)) {
            return array.toFloats();
        }
    }

    // ---- arrays -----------------------------------------------------------------------------

    @Test
    void anArrayIsOnTheDeviceOfItsContext() {
        try (NDArray array = matrix(); NDArray other = array.add(1)) {
            assertEquals(GPU, array.context());
            assertEquals(GPU, other.context());
            assertSame(array, array.asContext(GPU));
            array.waitToRead();
            assertArrayEquals(NUMBERS, array.toFloats());
            assertArrayEquals(new float[] {2, -1, 4, 5.5f, 6, 7}, other.toFloats());
        }
    }

    @ParameterizedTest
    @EnumSource
    void everyDtypeIsCopiedToTheGpuAndBack(DType dtype) {
        try (NDArray host = NDArray.of(NUMBERS, MATRIX, dtype, Context.cpu());
                NDArray there = host.asContext(GPU);
                NDArray further = there.asContext(last());
                NDArray back = further.asContext(Context.cpu());
                NDArray made = NDArray.of(NUMBERS, MATRIX, dtype, GPU)) {
            for (NDArray array : List.of(there, further, back, made)) {
                assertArrayEquals(host.toBytes(), array.toBytes());
                assertArrayEquals(host.toFloats(), array.toFloats());
                assertArrayEquals(host.toDoubles(), array.toDoubles());
                assertArrayEquals(host.toInts(), array.toInts());
                assertArrayEquals(host.toLongs(), array.toLongs());
            }
        }
    }

    @Test
    void arraysAreCreatedFromAllInputs() {
        ByteBuffer bytes = ByteBuffer.allocateDirect(8).order(ByteOrder.nativeOrder());
        bytes.asFloatBuffer().put(new float[] {7, 8});
        Shape two = Shape.of(2);
        for (NDArray array : List.of(
                NDArray.of(new double[] {7, 8}, two, DType.FLOAT32, GPU),
                NDArray.of(new int[] {7, 8}, two, DType.FLOAT32, GPU),
                NDArray.of(new long[] {7, 8}, two, DType.FLOAT32, GPU),
                NDArray.of(new byte[] {7, 8}, two, DType.FLOAT32, GPU),
                NDArray.of(bytes, two, DType.FLOAT32, GPU),
                NDArray.of(FloatBuffer.wrap(new float[] {7, 8}), two, DType.FLOAT32, GPU),
                NDArray.arange(7, 9, 1, 1, DType.FLOAT32, GPU),
                NDArray.zeros(two, DType.FLOAT32, GPU).set(bytes),
                NDArray.zeros(two, DType.FLOAT32, GPU).set(new long[] {7, 8}),
                NDArray.zeros(two, DType.FLOAT32, GPU).set(new float[] {7, 8}),
                NDArray.zeros(two, DType.FLOAT32, GPU)
                        .set(DoubleBuffer.wrap(new double[] {7, 8})))) {
            assertEquals(GPU, array.context());
            assertArrayEquals(new float[] {7, 8}, array.toFloats());
            array.close();
        }
        try (NDArray full = NDArray.full(two, 2.5, DType.FLOAT64, GPU);
                NDArray exact = NDArray.fullLong(two, (1L << 60) + 1, DType.INT64, GPU)) {
            assertArrayEquals(new double[] {2.5, 2.5}, full.toDoubles());
            assertArrayEquals(new long[] {(1L << 60) + 1, (1L << 60) + 1}, exact.toLongs());
        }
    }

    /** The host cannot access the memory of a GPU, so the elements are copied. */
    @Test
    void aBufferIsASnapshotOnTheHost() {
        FloatBuffer before;
        try (NDArray array = matrix()) {
            before = array.asBuffer().asFloatBuffer();
            array.set(0);
            try (NDArray row = array.at(1)) {
                row.set(9);
                assertEquals(9, row.asBuffer().asFloatBuffer().get(2));
            }
        }
        float[] elements = new float[6];
        before.get(elements);
        assertArrayEquals(NUMBERS, elements);
    }

    @Test
    void elementsAreReadFromAnyPosition() {
        try (NDArray array = matrix()) {
            float[] floats = new float[3];
            array.read(2, floats);
            assertArrayEquals(new float[] {3, 4.5f, 5}, floats);
            int[] ints = new int[2];
            array.read(3, ints);
            assertArrayEquals(new int[] {4, 5}, ints);
            byte[] low = new byte[1];
            array.read(1, low);
            assertArrayEquals(new byte[] {-2}, low);
            FloatBuffer direct =
                    ByteBuffer.allocateDirect(16).order(ByteOrder.nativeOrder()).asFloatBuffer();
            array.read(1, direct.position(1));
            assertEquals(4.5f, direct.get(3));
            DoubleBuffer doubles = DoubleBuffer.allocate(2);
            array.read(4, doubles);
            assertEquals(6, doubles.get(1));
            ByteBuffer bytes = ByteBuffer.allocate(24).order(ByteOrder.nativeOrder());
            array.read(0, bytes);
            assertEquals(-2, bytes.getFloat(4));
            Expect.code(INVALID_ARGUMENT, () -> array.read(4, floats));
        }
    }

    /** Long runs of elements are copied in another way, which works only for host memory. */
    @Test
    void longArraysAreReadCompletely() {
        int length = (4 << 20) + 7;
        try (NDArray array = NDArray.arange(0, length, 1, 1, DType.INT32, GPU)) {
            int[] elements = array.toInts();
            assertEquals(length - 1, elements[length - 1]);
            int[] part = new int[length - 5];
            array.read(5, part);
            assertEquals(length - 1, part[length - 6]);
            NDArray copy = NDArray.of(elements, Shape.of(length), DType.INT32, last());
            assertArrayEquals(elements, copy.toInts());
            copy.close();
        }
    }

    @Test
    void viewsShareTheirElements() {
        try (NDArray array = matrix();
                NDArray rows = array.slice(1, 2);
                NDArray flat = array.reshape(6)) {
            rows.set(new float[] {7, 8, 9});
            flat.addInPlace(1);
            assertArrayEquals(new float[] {2, -1, 4, 8, 9, 10}, array.toFloats());
            assertArrayEquals(new float[] {8, 9, 10}, rows.toFloats());
            assertEquals(GPU, rows.context());
        }
    }

    @Test
    void everyOperationGivesTheResultOfTheHost() {
        try (NDArray host = NDArray.of(NUMBERS, MATRIX); NDArray there = matrix()) {
            // The bits of NaN depend on the processor.
            for (UnaryOp op : UnaryOp.values()) {
                assertArrayEquals(
                        host.apply(op).toFloats(), there.apply(op).toFloats(), op.toString());
            }
            for (BinaryOp op : BinaryOp.values()) {
                assertArrayEquals(host.apply(op, host).toFloats(),
                        there.apply(op, there).toFloats(), op.toString());
            }
            for (Reduction op : Reduction.values()) {
                assertArrayEquals(
                        host.reduce(op).toBytes(), there.reduce(op).toBytes(), op.toString());
            }
            assertArrayEquals(
                    host.dot(host.transpose()).toBytes(), there.dot(there.transpose()).toBytes());
            assertArrayEquals(host.argmaxChannel().toBytes(), there.argmaxChannel().toBytes());
            assertArrayEquals(host.clip(0, 4).toBytes(), there.clip(0, 4).toBytes());
            assertArrayEquals(
                    NDArray.concatenate(List.of(host, host), 1).toBytes(),
                    NDArray.concatenate(List.of(there, there), 1).toBytes());
            assertArrayEquals(
                    host.asType(DType.FLOAT16).toBytes(), there.asType(DType.FLOAT16).toBytes());
        }
    }

    @Test
    void theResultIsOnTheDeviceOfTheLeftOperand() {
        try (NDArray host = NDArray.of(NUMBERS, MATRIX); NDArray there = matrix()) {
            assertEquals(Context.cpu(), host.add(there).context());
            assertEquals(GPU, there.add(host).context());
            assertArrayEquals(host.add(host).toBytes(), there.add(host).toBytes());
            assertArrayEquals(host.add(host).toBytes(), host.add(there).toBytes());
            host.set(0).set(there);
            assertArrayEquals(NUMBERS, host.toFloats());
            there.set(0);
            host.copyTo(there);
            assertArrayEquals(NUMBERS, there.toFloats());
        }
    }

    @Test
    void randomNumbersEqualThoseOfTheHost() {
        RandomArrays.seed(7);
        NDArray host = RandomArrays.normal(0, 1, MATRIX, DType.FLOAT32, Context.cpu());
        RandomArrays.seed(7);
        NDArray there = RandomArrays.normal(0, 1, MATRIX, DType.FLOAT32, GPU);
        assertEquals(GPU, there.context());
        assertArrayEquals(host.toBytes(), there.toBytes());
    }

    @Test
    void filesContainTheElements() {
        Path file = folder.resolve("arrays");
        try (NDArray array = matrix()) {
            NDArrayFile.save(file, Map.of("w", array));
            try (NDArray loaded = NDArrayFile.loadMap(file).get("w");
                    NDArray record = NDArrayFile.deserialize(NDArrayFile.serialize(array))) {
                assertArrayEquals(NUMBERS, loaded.toFloats());
                assertArrayEquals(NUMBERS, record.toFloats());
                assertEquals(Context.cpu(), loaded.context());
            }
        }
    }

    // ---- stores -----------------------------------------------------------------------------

    @ParameterizedTest
    @ValueSource(strings = {"local", "device"})
    void valuesOfAllDevicesAreSummed(String kind) {
        try (KVStore store = KVStore.create(kind);
                NDArray out = NDArray.zeros(Shape.of(2), DType.FLOAT32, last())) {
            store.init("w", of(GPU, 0, 0));
            store.push("w",
                    List.of(of(GPU, 1, 2), of(last(), 10, 20), of(Context.cpu(), 100, 200)));
            NDArray host = NDArray.zeros(Shape.of(2));
            store.pull("w", List.of(out, host));
            assertArrayEquals(new float[] {111, 222}, out.toFloats());
            assertArrayEquals(new float[] {111, 222}, host.toFloats());
            assertEquals(last(), out.context());
            store.pushpull("w", List.of(of(last(), 1, 1), of(GPU, 2, 2)), List.of(host, out));
            assertArrayEquals(new float[] {3, 3}, host.toFloats());
            store.broadcast("b", of(GPU, 5, 6), List.of(out, host));
            assertArrayEquals(new float[] {5, 6}, out.toFloats());
            assertArrayEquals(new float[] {5, 6}, host.toFloats());
        }
    }

    /** Stores on the host and on GPUs give the same results, bit for bit. */
    @ParameterizedTest
    @ValueSource(strings = {"local", "device"})
    void everyOptimizerGivesTheResultOfTheHost(String kind) {
        for (Optimizer optimizer : List.of(
                Optimizer.sgd().learningRate(0.1).momentum(0.9), Optimizer.adam(),
                Optimizer.of("rmsprop"), Optimizer.of("ftrl"), Optimizer.of("sgld"))) {
            try (KVStore host = KVStore.create("local"); KVStore there = KVStore.create(kind)) {
                host.init("w", of(Context.cpu(), 1, 2, 3)).setOptimizer(optimizer);
                there.init("w", of(GPU, 1, 2, 3)).setOptimizer(optimizer);
                for (int step = 1; step <= 3; step++) {
                    host.push("w",
                            List.of(of(Context.cpu(), step, -1, 0.3f),
                                    of(Context.cpu(), 0.1f, step, 1)));
                    there.push("w", List.of(of(GPU, step, -1, 0.3f), of(last(), 0.1f, step, 1)));
                    assertArrayEquals(pulled(host, "w"), pulled(there, "w"), optimizer.toString());
                }
            }
        }
    }

    @Test
    void updatersGetArraysOnTheGpu() {
        try (KVStore store = KVStore.create("device")) {
            store.init("w", of(GPU, 1, 2));
            Context[] seen = new Context[2];
            store.setUpdater((key, pushed, stored) -> {
                seen[0] = pushed.context();
                seen[1] = stored.context();
                try (NDArray step = pushed.multiply(0.5)) {
                    stored.addInPlace(step);
                }
            });
            store.push("w", List.of(of(GPU, 2, 4), of(last(), 2, 4)));
            assertArrayEquals(new float[] {3, 6}, pulled(store, "w"));
            assertArrayEquals(new Context[] {GPU, GPU}, seen);
            RuntimeException thrown = new IllegalStateException("no");
            store.setUpdater((key, pushed, stored) -> {
                stored.set(0);
                throw thrown;
            });
            assertSame(thrown,
                    assertThrows(RuntimeException.class, () -> store.push("w", of(GPU, 1, 1))));
            assertArrayEquals(new float[] {3, 6}, pulled(store, "w"));
        }
    }

    @Test
    void rowSparseValuesAreOnTheGpu() {
        Shape shape = Shape.of(4, 2);
        try (RowSparse rows = RowSparse.of(
                        new double[] {1, 2, 3, 4}, new long[] {1, 3}, shape, DType.FLOAT32, GPU);
                NDArray dense = rows.toDense();
                KVStore store = KVStore.create("device")) {
            assertEquals(GPU, rows.context());
            assertEquals(GPU, rows.rows().context());
            assertArrayEquals(new float[] {0, 0, 1, 2, 0, 0, 3, 4}, dense.toFloats());
            store.init("w", NDArray.ones(shape, DType.FLOAT32, GPU));
            store.setOptimizer(Optimizer.sgd().learningRate(1).weightDecay(0));
            store.push("w", List.of(rows, rows));
            assertArrayEquals(new float[] {1, 1, -1, -3, 1, 1, -5, -7}, pulled(store, "w"));
            try (RowSparse found = store.rowSparsePull("w", new long[] {3, 0, 3})) {
                assertArrayEquals(new long[] {0, 3}, found.indices());
                assertArrayEquals(new float[] {1, 1, -5, -7}, found.rows().toFloats());
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"2bit", "1bit"})
    void compressionGivesTheResultOfTheHost(String type) {
        try (KVStore host = KVStore.create("device"); KVStore there = KVStore.create("device")) {
            host.init("w", of(Context.cpu(), 0, 0, 0)).setGradientCompression(type, 0.5);
            there.init("w", of(GPU, 0, 0, 0)).setGradientCompression(type, 0.5);
            for (int step = 0; step < 3; step++) {
                float[] one = {0.3f, -0.6f, 0.1f * step};
                float[] other = {-0.2f, 0.4f, 0.7f};
                host.push("w", List.of(of(Context.cpu(), one), of(Context.cpu(1), other)));
                there.push("w", List.of(of(GPU, one), of(last(), other)));
                assertArrayEquals(pulled(host, "w"), pulled(there, "w"));
            }
        }
    }

    @Test
    void aStoreOnTheGpuIsRolledBackAndRestored() {
        Path file = folder.resolve("checkpoint");
        Path states = folder.resolve("states");
        NDArray gradient = of(GPU, 0.5f, -1);
        try (KVStore store = KVStore.create("device")) {
            store.init("w", of(GPU, 1, 2)).setOptimizer(Optimizer.adam());
            store.push("w", gradient);
            store.checkpoint(file).join();
            store.saveOptimizerStates(states.toString());
            float[] expected;
            try (Snapshot before = store.snapshot()) {
                expected = pulled(store.push("w", gradient), "w");
                assertEquals(GPU, before.stats().get(0).context());
                assertEquals(GPU, before.get("w").context());
                store.rollback(before);
                assertArrayEquals(expected, pulled(store.push("w", gradient), "w"));
                store.rollback(before).loadOptimizerStates(states.toString());
                assertArrayEquals(expected, pulled(store.push("w", gradient), "w"));
                try (Snapshot read = Snapshot.read(file)) {
                    assertTrue(read.isIdentical(before));
                }
            }
            try (KVStore other = KVStore.create("device")) {
                other.restore(file);
                assertArrayEquals(expected, pulled(other.push("w", gradient), "w"));
                // Reading a file creates values on the host. A push moves the key to the device of
                // its values.
                assertEquals(GPU, other.stats().get(0).context());
            }
        }
    }

    @Test
    void aStepWithoutAStoreRunsOnTheGpu() {
        NDArray host = of(Context.cpu(), 1, 2);
        NDArray there = of(GPU, 1, 2);
        Optimizer adam = Optimizer.adam();
        try (OptimizerState hostState = adam.createState(host);
                OptimizerState state = adam.createState(there)) {
            adam.update("w", host, of(Context.cpu(), 3, 4), hostState);
            adam.update("w", there, of(GPU, 3, 4), state);
            assertArrayEquals(host.toFloats(), there.toFloats());
            assertEquals(GPU, state.arrays().get(0).context());
            // Gradient and state are moved to the device of the weight.
            adam.update("w", host, of(last(), 5, 6), state);
            adam.update("w", there, of(Context.cpu(), 5, 6), hostState);
            assertArrayEquals(host.toFloats(), there.toFloats());
            assertEquals(GPU, hostState.arrays().get(0).context());
        }
    }

    // ---- the machine ------------------------------------------------------------------------

    @Test
    void memoryIsCountedPerDevice() {
        int length = 1 << 20;
        DeviceMemory before = NativeMemory.device(GPU);
        long host = NativeMemory.device(Context.cpu(3)).liveBytes();
        try (NDArray array = NDArray.zeros(Shape.of(length), DType.UINT8, GPU)) {
            assertEquals(before.liveBytes() + array.size(), NativeMemory.device(GPU).liveBytes());
            assertTrue(NativeMemory.device(Context.cpu()).liveBytes() < host + length);
            assertTrue(Doctor.report().get("memory of gpu 0").contains(" in use, "),
                    Doctor.report().toString());
        }
        NativeMemory.trim();
        assertEquals(0, NativeMemory.device(GPU).pooledBytes());
        List<DeviceMemory> devices = NativeMemory.devices();
        assertEquals(1 + Context.numGpus(), devices.size());
        assertEquals(Context.cpu(), devices.get(0).context());
        assertEquals(-1, devices.get(0).totalBytes());
        assertEquals(GPU, devices.get(1).context());
        assertTrue(devices.get(1).totalBytes() > length);
        assertEquals(
                NativeMemory.liveBytes(),
                NativeMemory.devices().stream().mapToLong(DeviceMemory::liveBytes).sum(),
                (double) length);
    }

    @Test
    void aGpuThatDoesNotExistThrows() {
        Context none = Context.gpu(Context.numGpus());
        Expect.code(DEVICE_UNAVAILABLE, () -> NDArray.zeros(MATRIX, DType.FLOAT32, none));
        KVStoreException exception =
                Expect.code(DEVICE_UNAVAILABLE, () -> NativeMemory.device(none));
        assertTrue(exception.getMessage().contains(none.toString()), exception.getMessage());
        try (NDArray array = matrix()) {
            Expect.code(DEVICE_UNAVAILABLE, () -> array.asContext(none));
            assertArrayEquals(NUMBERS, array.toFloats());
        }
    }

    /**
     * The memory of a GPU does not count towards the soft cap of the host, which may be smaller.
     */
    @Test
    void theSoftCapLimitsHostMemoryOnly() {
        long softCap = NativeMemory.softCap();
        Shape shape = Shape.of(1 << 20);
        List<NDArray> arrays = new ArrayList<>();
        try {
            NativeMemory.setSoftCap(NativeMemory.device(Context.cpu()).liveBytes() + (4 << 20));
            for (int i = 0; i < 10; i++) {
                arrays.add(NDArray.zeros(shape, DType.UINT8, GPU));
            }
            Expect.code(OUT_OF_MEMORY,
                    () -> NDArray.zeros(Shape.of(5 << 20), DType.UINT8, Context.cpu()));
            NDArray.zeros(shape, DType.UINT8, Context.cpu()).close();
        } finally {
            arrays.forEach(NDArray::close);
            NativeMemory.setSoftCap(softCap);
        }
    }

    /**
     * The limit of a GPU is its own memory. Unreachable arrays are collected before an allocation
     * fails.
     */
    @Test
    void unreachableArraysAreCollectedWhenAGpuIsFull() {
        long total = NativeMemory.device(GPU).totalBytes();
        assumeTrue(total <= 2L << 30, "a GPU of many gigabytes");
        Expect.code(OUT_OF_MEMORY,
                () -> NDArray.zeros(Shape.of(2 * total), DType.UINT8, GPU));
        for (int i = 0; i < 10; i++) {
            NDArray.zeros(Shape.of(total / 4), DType.UINT8, GPU);
        }
    }
}
