package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.CLOSED;
import static dev.kvstore.KVStoreException.Code.CORRUPT;
import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static dev.kvstore.KVStoreException.Code.IO;
import static dev.kvstore.KVStoreException.Code.KEY_NOT_FOUND;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests snapshots, checkpoints and optimizer state files in Java. */
class SnapshotTest {
    @TempDir
    Path folder;

    private static NDArray of(float... numbers) {
        return NDArray.of(numbers, Shape.of(numbers.length));
    }

    private static float[] pulled(KVStore store, String key) {
        return store.pull(key).toFloats();
    }

    private static KVStore adam() {
        KVStore store = KVStore.create().init("w", of(1, 2)).init("b", of(3));
        return store.setOptimizer(Optimizer.adam().learningRate(0.1));
    }

    /** Makes a step and returns the new weight. */
    private static float[] step(KVStore store, float gradient) {
        store.push(List.of("w", "b"), List.of(of(gradient, -gradient), of(2 * gradient)));
        return pulled(store, "w");
    }

    @Test
    void aSnapshotReturnsItsContents() {
        try (KVStore store = adam()) {
            store.push("w", of(1, 1));
            try (Snapshot snapshot = store.snapshot()) {
                List<KeyStats> expected = store.stats();
                Map<String, Double> rates = store.hyperParameters();
                step(store, 2);
                store.setHyperParameters(Map.of("learning_rate", 9.0));
                assertEquals(expected, snapshot.stats());
                assertEquals(rates, snapshot.hyperParameters());
                try (OptimizerState state = snapshot.optimizerState("w").orElseThrow()) {
                    assertEquals(1, state.numUpdates());
                    assertEquals(2, state.arrays().size());
                    // A step with this copy does not change the snapshot.
                    Optimizer.adam().update("w", of(1, 2), of(1, 1), state);
                }
                try (OptimizerState state = snapshot.optimizerState("w").orElseThrow()) {
                    assertEquals(1, state.numUpdates());
                }
                assertTrue(snapshot.optimizerState("b").isEmpty());
                Expect.code(KEY_NOT_FOUND, () -> snapshot.optimizerState("none"));
            }
        }
        try (KVStore store = KVStore.create(); Snapshot empty = store.snapshot()) {
            assertEquals(List.of(), empty.stats());
            Expect.code(INVALID_ARGUMENT, empty::hyperParameters);
        }
    }

    @Test
    void aRollbackRestoresTheEarlierResults() {
        try (KVStore store = adam(); Snapshot start = store.snapshot()) {
            step(store, 1);
            try (Snapshot before = store.snapshot()) {
                float[] expected = step(store, 2);
                store.init("new", of(1)).remove("b");
                store.setHyperParameters(Map.of("learning_rate", 9.0));
                store.rollback(before);
                assertEquals(List.of("w", "b"), store.keys());
                assertArrayEquals(expected, step(store, 2));
                assertArrayEquals(new float[] {1, 2}, start.get("w").toFloats());
                assertEquals(List.of("w", "b"), start.changedKeys(before));
                assertEquals(List.of(), before.changedKeys(before));
                assertFalse(start.isIdentical(before));
                try (Snapshot again = store.rollback(before).snapshot()) {
                    assertTrue(again.isIdentical(before));
                }
                Expect.code(KEY_NOT_FOUND, () -> before.get("new"));
                assertEquals("local", before.storeType());
            }
        }
    }

    @Test
    void aRestoredCheckpointContinuesWithTheSameBits() {
        Path file = folder.resolve("model.checkpoint");
        try (KVStore store = adam()) {
            step(store, 1);
            Checkpoint checkpoint = store.checkpoint(file);
            float[] expected = step(store, 2);
            checkpoint.join();
            assertTrue(checkpoint.isDone());
            assertEquals(file, checkpoint.file());
            assertEquals(checkpoint.numBytes(), checkpoint.numBytesWritten());
            assertEquals(checkpoint.numBytes(), file.toFile().length());
            assertTrue(checkpoint.toString().contains(checkpoint.numBytes() + " bytes"));
            try (KVStore other = KVStore.create("device").init("gone", of(1));
                    Snapshot read = Snapshot.read(file)) {
                other.restore(file);
                assertEquals(List.of("w", "b"), other.keys());
                assertEquals(store.keys(), read.keys());
                assertArrayEquals(expected, step(other, 2));
            }
        }
    }

    @Test
    void deltasHaveTheChangesSinceASnapshot() throws Exception {
        Path first = folder.resolve("1.checkpoint");
        Path second = folder.resolve("2.checkpoint");
        Path third = folder.resolve("3.checkpoint");
        try (KVStore store = adam().init("large", NDArray.zeros(Shape.of(10_000)));
                Snapshot base = store.snapshot()) {
            assertEquals(List.of(), base.files());
            Expect.code(INVALID_ARGUMENT, () -> store.checkpoint(second, base));
            base.checkpoint(first).join();
            step(store, 1);
            try (Snapshot now = store.snapshot()) {
                now.checkpoint(second, base).join();
                assertEquals(List.of(second.toRealPath(), first.toRealPath()), now.files());
                step(store, 2);
                Checkpoint checkpoint = store.checkpoint(third, now);
                checkpoint.join();
                assertEquals(third.toFile().length(), checkpoint.numBytes());
                assertEquals(checkpoint.numBytes(), checkpoint.numBytesWritten());
                Expect.code(INVALID_ARGUMENT, () -> store.checkpoint(first, now));
                Path elsewhere = folder.resolve("none").resolve("model");
                Expect.code(INVALID_ARGUMENT, () -> store.checkpoint(elsewhere, now));
            }
            assertTrue(first.toFile().length() > 40_000 && third.toFile().length() < 10_000);
            try (KVStore other = KVStore.create().restore(third);
                    Snapshot read = Snapshot.read(third);
                    Snapshot expected = store.snapshot()) {
                assertTrue(read.isIdentical(expected));
                assertEquals(3, read.files().size());
                assertArrayEquals(step(store, 3), step(other, 3));
            }
            Files.delete(second);
            KVStoreException failure = Expect.code(IO, () -> store.restore(third));
            String missing = folder.toRealPath().resolve("2.checkpoint") + ": ";
            assertTrue(failure.getMessage().contains(missing), failure.getMessage());
        }
    }

    @Test
    void loadedStatesContinueWithTheSameBits() {
        Path file = folder.resolve("adam.states");
        try (KVStore store = adam(); KVStore plain = KVStore.create()) {
            step(store, 1);
            store.saveOptimizerStates(file.toString());
            try (Snapshot weights = store.snapshot()) {
                plain.init(List.of("w", "b"), List.of(weights.get("w"), weights.get("b")));
            }
            Expect.code(INVALID_ARGUMENT, () -> plain.loadOptimizerStates(file.toString()));
            plain.setOptimizer(Optimizer.adam().learningRate(0.1));
            plain.loadOptimizerStates(file.toString());
            assertArrayEquals(step(store, 2), step(plain, 2));

            store.saveOptimizerStates(file.toString(), true);
            plain.setOptimizer(Optimizer.sgd());
            plain.loadOptimizerStates(file.toString());
            assertEquals(store.hyperParameters(), plain.hyperParameters());
            assertArrayEquals(step(store, 3), step(plain, 3));
        }
    }

    @Test
    void aSnapshotContainsTheUpdaterAndAFileDoesNot() {
        Path file = folder.resolve("model");
        try (KVStore store = KVStore.create().init("w", of(1))) {
            store.setUpdater((key, pushed, stored) -> stored.addInPlace(pushed));
            try (Snapshot before = store.snapshot()) {
                store.checkpoint(file).join();
                store.setUpdater(null);
                Expect.code(INVALID_ARGUMENT, () -> store.restore(file));
                store.rollback(before).push("w", of(2));
                assertArrayEquals(new float[] {3}, pulled(store, "w"));
                store.restore(file).push("w", of(4));
                assertArrayEquals(new float[] {5}, pulled(store, "w"));
            }
        }
    }

    @Test
    void failuresNameTheFile() throws Exception {
        Path file = folder.resolve("none").resolve("model");
        try (KVStore store = KVStore.create().init("w", of(1))) {
            Checkpoint checkpoint = store.checkpoint(file);
            Throwable thrown = assertThrows(CompletionException.class, checkpoint::join).getCause();
            KVStoreException failure = assertInstanceOf(KVStoreException.class, thrown);
            assertEquals(IO, failure.code());
            assertTrue(failure.getMessage().contains(file.toString()));
            KVStoreException missing = Expect.code(IO, () -> store.restore(file));
            String cause = file + ": reading a checkpoint: No such file or directory";
            assertTrue(missing.getMessage().startsWith(cause), missing.getMessage());

            Path damaged = folder.resolve("damaged");
            Files.write(damaged, new byte[100]);
            KVStoreException corrupt = Expect.code(CORRUPT, () -> store.restore(damaged));
            assertTrue(corrupt.getMessage().contains(damaged.toString()));
            assertArrayEquals(new float[] {1}, pulled(store, "w"));
        }
    }

    @Test
    void aClosedSnapshotThrows() {
        try (KVStore store = KVStore.create().init("w", of(1))) {
            Snapshot snapshot = store.snapshot();
            // The checkpoint does not need the snapshot once it has started.
            Checkpoint checkpoint = snapshot.checkpoint(folder.resolve("model"));
            snapshot.close();
            snapshot.close();
            assertTrue(snapshot.isClosed());
            checkpoint.join();
            Expect.code(CLOSED, () -> snapshot.get("w"));
            Expect.code(CLOSED, () -> store.rollback(snapshot));
            Expect.code(CLOSED, snapshot::keys);
            assertArrayEquals(new float[] {1}, pulled(store.restore(folder.resolve("model")), "w"));
        }
    }

    @Test
    void nothingIsLeftOpen() {
        long unclosed = unclosed();
        try (KVStore store = KVStore.create(); NDArray value = of(1)) {
            store.init("w", value);
            for (int i = 0; i < 100; i++) {
                try (Snapshot snapshot = store.snapshot()) {
                    store.rollback(snapshot);
                }
            }
            store.checkpoint(folder.resolve("model")).join();
            store.restore(folder.resolve("model"));
        }
        assertEquals(unclosed, unclosed());
    }

    /**
     * Returns the number of resources that are open or were collected without being closed. While
     * the cleaner releases arrays of other tests, it moves them from one number to the other, and
     * the sum may be wrong. So this method waits until two readings agree.
     */
    private static long unclosed() {
        long collected;
        long sum;
        do {
            collected = NativeMemory.collectedUnclosed();
            sum = NativeMemory.open() + collected;
        } while (NativeHandle.isCleaning() || NativeMemory.collectedUnclosed() != collected);
        return sum;
    }
}
