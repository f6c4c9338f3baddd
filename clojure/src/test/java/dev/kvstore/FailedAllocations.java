package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * The program of {@link FailedAllocationsTest}. It repeats each call, and makes another long
 * allocation of the library fail each time. The argument is the path of the preloaded library.
 */
final class FailedAllocations {
    /** The number of handles or keys in a list that needs a long allocation, of 64 KiB or more. */
    private static final int NUM_KEYS = 9000;

    /** The number of elements in an array that needs a long allocation. */
    private static final int LONG = 40_000;

    /** An upper bound of the long allocations of a call. */
    private static final int MOST = 1000;

    /** Each allocation would take long, so only {@code make nightly} lets each fail. */
    private static final int STEP =
            Integer.parseInt(System.getenv().getOrDefault("KVSTORE_TEST_ALLOCATIONS", "3"));

    private static final List<String> KEYS =
            IntStream.range(0, NUM_KEYS).mapToObj(number -> "w" + number).toList();

    private FailedAllocations() {}

    /**
     * A call whose allocations fail. {@code checkUnchanged} runs after a failure. {@code undo} runs
     * after a success and restores the state before the call.
     */
    private record Call(Supplier<Object> run, Runnable checkUnchanged, Runnable undo) {}

    public static void main(String[] arguments) throws Exception {
        System.load(arguments[0]);
        for (Map.Entry<String, Call> entry : calls().entrySet()) {
            // Load the classes that a call needs before its allocations fail.
            close(entry.getValue().run.get());
            entry.getValue().undo.run();
            System.out.println(entry.getKey() + ": " + failEach(entry.getValue()) + " allocations");
        }
    }

    /**
     * Makes a call once for every {@code STEP} of its long allocations. In each call, one of them
     * and all later ones fail. Returns the number of long allocations, which is up to
     * {@code STEP} - 1 too large.
     */
    private static int failEach(Call call) throws Exception {
        for (int after = 0; after < MOST; after += STEP) {
            NativeMemory.trim();
            Attempt attempt = new Attempt(call.run, after);
            // Use a new thread, because it has no cached memory of earlier calls.
            Thread thread = new Thread(attempt);
            thread.start();
            thread.join();
            if (attempt.thrown == null) {
                close(attempt.result);
                call.undo.run();
                if (!attempt.hasFailed) {
                    return after;
                }
            } else if (attempt.hasFailed && isOutOfMemory(attempt.thrown)) {
                call.checkUnchanged.run();
            } else {
                throw new AssertionError("allocation " + after + " of " + call, attempt.thrown);
            }
        }
        throw new AssertionError("more than " + MOST + " long allocations");
    }

    private static boolean isOutOfMemory(Throwable thrown) {
        return thrown instanceof KVStoreException exception
                && exception.code() == KVStoreException.Code.OUT_OF_MEMORY;
    }

    private static void close(Object result) {
        if (result instanceof NativeResource resource) {
            resource.close();
        } else if (result instanceof List<?> list) {
            list.forEach(FailedAllocations::close);
        } else if (result instanceof Map<?, ?> map) {
            map.values().forEach(FailedAllocations::close);
        }
    }

    /** A call in a new thread. */
    private static final class Attempt implements Runnable {
        private final Supplier<Object> run;
        private final int after;
        private Object result;
        private Throwable thrown;
        private boolean hasFailed;

        Attempt(Supplier<Object> run, int after) {
            this.run = run;
            this.after = after;
        }

        @Override
        public void run() {
            FailingMalloc.fail(after);
            try {
                result = run.get();
            } catch (Throwable error) {
                thrown = error;
            } finally {
                hasFailed = FailingMalloc.stop();
            }
        }
    }

    private static List<NDArray> arrays(int count, double value) {
        return Stream.generate(() -> NDArray.full(Shape.of(1), value)).limit(count).toList();
    }

    private static KVStore store() {
        return KVStore.create().init(KEYS, arrays(NUM_KEYS, 1));
    }

    /** Returns a call that must not change the store or the outputs, which are 0, if it fails. */
    private static Call change(KVStore store, List<NDArray> outs, Runnable call) {
        Snapshot before = store.snapshot();
        Runnable checkUnchanged = () -> {
            assertTrue(store.snapshot().isIdentical(before));
            outs.forEach(out -> assertEquals(0, out.toScalar()));
        };
        Runnable undo = () -> {
            store.rollback(before);
            outs.forEach(out -> out.set(0));
        };
        return new Call(
                () -> {
                    call.run();
                    return null;
                },
                checkUnchanged,
                undo);
    }

    /** Returns a call that changes nothing. */
    private static Call read(Supplier<Object> call) {
        return new Call(call, () -> {}, () -> {});
    }

    private static Map<String, Call> calls() throws Exception {
        Map<String, Call> calls = new LinkedHashMap<>();
        addVerbs(calls);
        addSettings(calls);
        addArrays(calls);
        addFiles(calls);
        return calls;
    }

    private static void addVerbs(Map<String, Call> calls) {
        List<NDArray> values = arrays(NUM_KEYS, 2);
        List<NDArray> outs = arrays(NUM_KEYS, 0);
        List<NDArray> none = List.of();
        KVStore empty = KVStore.create();
        calls.put("init", change(empty, none, () -> empty.init(KEYS, values)));
        KVStore store = store();
        calls.put("push", change(store, none, () -> store.push(KEYS, values)));
        calls.put("push to one key", change(store, none, () -> store.push("w0", values)));
        calls.put("pull", change(store, outs, () -> store.pull(KEYS, outs)));
        calls.put("pull of new arrays", read(() -> store.pull(KEYS)));
        calls.put("pushpull", change(store, outs, () -> store.pushpull(KEYS, values, outs)));
        calls.put("broadcast", change(empty, outs, () -> empty.broadcast(KEYS, values, outs)));
        calls.put("remove", change(store, none, () -> store.remove(KEYS.toArray(String[]::new))));
        calls.put("keys", read(store::keys));
        calls.put("stats", read(store::stats));
        KVStore matrices = KVStore.create()
                .init(KEYS, Collections.nCopies(NUM_KEYS, NDArray.ones(Shape.of(2, 1))));
        RowSparse rows = RowSparse.of(new float[] {3}, new long[] {1}, Shape.of(2, 1));
        List<RowSparse> manyRows = Collections.nCopies(NUM_KEYS, rows);
        calls.put("push of rows", change(matrices, none, () -> matrices.push(KEYS, manyRows)));
        List<long[]> ids = Collections.nCopies(NUM_KEYS, new long[] {0});
        calls.put("pull of rows", read(() -> matrices.rowSparsePull(KEYS, ids)));
        calls.put(
                "pull of many rows",
                read(() -> matrices.rowSparsePull("w0", new long[LONG])));
    }

    private static void addSettings(Map<String, Call> calls) {
        List<NDArray> values = arrays(NUM_KEYS, 2);
        KVStore stepped = store().setOptimizer(Optimizer.sgd().with("momentum", 0.9));
        stepped.push(KEYS, values);
        calls.put("push to an optimizer",
                change(stepped, List.of(), () -> stepped.push(KEYS, values)));
        KVStore compressed = store().setGradientCompression("2bit", 0.5);
        calls.put("push with compression",
                change(compressed, List.of(), () -> compressed.push(KEYS, values)));
        KVStore clipped = store().setClipGlobalNorm(0.5);
        calls.put("push with a bound of the norm",
                change(clipped, List.of(), () -> clipped.push(KEYS, values)));
        KVStore layerwise = store().setOptimizer(Optimizer.lamb());
        layerwise.push(KEYS, values);
        calls.put("push to a layer-wise optimizer",
                change(layerwise, List.of(), () -> layerwise.push(KEYS, values)));
        calls.put("snapshot", read(stepped::snapshot));
        Snapshot before = stepped.snapshot();
        calls.put("rollback", change(stepped, List.of(), () -> stepped.rollback(before)));
        calls.put("stats of a snapshot", read(before::stats));
        Snapshot other = KVStore.create().snapshot();
        calls.put("changed keys of a snapshot", read(() -> before.changedKeys(other)));
    }

    private static void addArrays(Map<String, Call> calls) {
        float[] floats = new float[LONG];
        double[] doubles = new double[LONG];
        NDArray array = NDArray.zeros(Shape.of(LONG));
        List<NDArray> many = arrays(NUM_KEYS, 2);
        calls.put("an array of floats", read(() -> NDArray.of(floats, Shape.of(LONG))));
        calls.put("an array of converted numbers",
                read(() -> NDArray.of(doubles, Shape.of(LONG), DType.FLOAT32, Context.cpu())));
        calls.put("doubles of an array", read(array::toDoubles));
        calls.put("sum of arrays", read(() -> array.add(array)));
        calls.put("another dtype", read(() -> array.asType(DType.FLOAT64)));
        calls.put("concatenation", read(() -> NDArray.concatenate(many, 0)));
        calls.put("random numbers", read(() -> RandomArrays.uniform(0, 1, Shape.of(LONG))));
        Runnable isZero = () -> assertArrayEquals(floats, array.toFloats());
        float[] ones = new float[LONG];
        Arrays.fill(ones, 1);
        double[] twos = new double[LONG];
        Arrays.fill(twos, 2);
        calls.put("new floats",
                new Call(() -> array.set(ones) == null, isZero, () -> array.set(0)));
        calls.put("new converted numbers",
                new Call(() -> array.set(twos) == null, isZero, () -> array.set(0)));
        long[] indices = IntStream.range(0, LONG).asLongStream().toArray();
        NDArray column = array.reshape(LONG, 1);
        calls.put("rows", read(() -> RowSparse.of(column, indices, Shape.of(LONG, 1))));
        calls.put("rows in any order",
                read(() -> RowSparse.fromIds(column, indices, Shape.of(LONG, 1))));
        RowSparse rows = RowSparse.of(column, indices, Shape.of(LONG, 1));
        calls.put("a row-sparse value", read(rows::toDense));
    }

    private static void addFiles(Map<String, Call> calls) throws Exception {
        Path folder = Files.createTempDirectory("failed-allocations");
        NDArray array = NDArray.zeros(Shape.of(LONG));
        List<NDArray> many = arrays(NUM_KEYS, 2);
        Map<String, NDArray> named = new LinkedHashMap<>();
        KEYS.forEach(key -> named.put(key, many.get(named.size())));
        byte[] bytes = NDArrayFile.serialize(array);
        calls.put("bytes of a file", read(() -> NDArrayFile.serialize(array)));
        calls.put("an array of bytes of a file", read(() -> NDArrayFile.deserialize(bytes)));
        Path list = folder.resolve("list");
        Path map = folder.resolve("map");
        calls.put("a file of a list", read(() -> {
            NDArrayFile.save(list, many);
            return null;
        }));
        calls.put("a file of names", read(() -> {
            NDArrayFile.save(map, named);
            return null;
        }));
        calls.put("a list of a file", read(() -> new ArrayList<>(NDArrayFile.loadList(list))));
        calls.put("names of a file", read(() -> NDArrayFile.loadMap(map)));
        KVStore store = store().setOptimizer(Optimizer.sgd().with("momentum", 0.9));
        store.push(KEYS, many);
        String states = folder.resolve("states").toString();
        Path checkpoint = folder.resolve("checkpoint");
        store.checkpoint(checkpoint).join();
        calls.put("a file of states", read(() -> {
            store.saveOptimizerStates(states);
            return null;
        }));
        calls.put("states of a file",
                change(store, List.of(), () -> store.loadOptimizerStates(states)));
        calls.put("restore", change(store, List.of(), () -> store.restore(checkpoint)));
        calls.put("a snapshot of a file", read(() -> Snapshot.read(checkpoint)));
        // Files are deleted in reverse order, so the folder is first.
        for (Path file : List.of(folder, list, map, checkpoint, Path.of(states))) {
            file.toFile().deleteOnExit();
        }
    }
}
