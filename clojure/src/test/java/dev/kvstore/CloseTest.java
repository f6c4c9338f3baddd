package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.CLOSED;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

class CloseTest {
    private static final Shape SHAPE = Shape.of(4);

    @Test
    void closingTwiceHasNoEffect() {
        NDArray array = NDArray.ones(SHAPE);
        assertFalse(array.isClosed());
        array.close();
        array.close();
        assertTrue(array.isClosed());

        KVStore store = KVStore.create();
        store.close();
        store.close();
        assertTrue(store.isClosed());
    }

    @Test
    void theErrorOfAClosedArrayNamesTheArray() {
        NDArray array = NDArray.ones(SHAPE);
        array.close();
        KVStoreException exception = Expect.code(CLOSED, array::toFloats);
        assertEquals("NDArray[float32 (4) cpu(0)] is closed", exception.getMessage());
        assertEquals("NDArray[float32 (4) cpu(0)]", array.toString());
        assertEquals(SHAPE, array.shape());
    }

    @Test
    void everyMethodOfAClosedArrayThrows() {
        NDArray closed = NDArray.ones(SHAPE);
        closed.close();
        try (NDArray open = NDArray.ones(SHAPE)) {
            Expect.code(CLOSED, () -> closed.add(open));
            Expect.code(CLOSED, () -> open.add(closed));
            Expect.code(CLOSED, () -> open.addInPlace(closed));
            Expect.code(CLOSED, () -> closed.addInPlace(1));
            Expect.code(CLOSED, () -> closed.apply(UnaryOp.EXP));
            Expect.code(CLOSED, () -> closed.reduce(Reduction.SUM));
            Expect.code(CLOSED, () -> closed.dot(open));
            Expect.code(CLOSED, closed::transpose);
            Expect.code(CLOSED, () -> closed.slice(0, 1));
            Expect.code(CLOSED, () -> closed.at(0));
            Expect.code(CLOSED, () -> closed.reshape(2, 2));
            Expect.code(CLOSED, closed::copy);
            Expect.code(CLOSED, () -> closed.copyTo(open));
            Expect.code(CLOSED, () -> open.copyTo(closed));
            Expect.code(CLOSED, () -> closed.asType(DType.INT8));
            Expect.code(CLOSED, () -> closed.asContext(Context.cpu()));
            Expect.code(CLOSED, () -> closed.set(1.0));
            Expect.code(CLOSED, () -> closed.set(new float[4]));
            Expect.code(CLOSED, closed::toDoubles);
            Expect.code(CLOSED, closed::toBytes);
            Expect.code(CLOSED, closed::waitToRead);
            Expect.code(CLOSED, () -> NDArray.concatenate(List.of(open, closed), 0));
        }
    }

    @Test
    void everyMethodOfAClosedStoreThrows() {
        KVStore store = KVStore.create();
        store.close();
        try (NDArray array = NDArray.ones(SHAPE)) {
            KVStoreException exception = Expect.code(CLOSED, () -> store.init("a", array));
            assertEquals("KVStore[local] is closed", exception.getMessage());
            Expect.code(CLOSED, () -> store.push("a", array));
            Expect.code(CLOSED, () -> store.pull("a", array));
            Expect.code(CLOSED, () -> store.pull("a"));
            Expect.code(CLOSED, () -> store.pushpull("a", array));
            Expect.code(CLOSED, () -> store.broadcast("a", array, array));
            Expect.code(CLOSED, () -> store.remove("a"));
            Expect.code(CLOSED, store::keys);
            Expect.code(CLOSED, () -> store.contains("a"));
            Expect.code(CLOSED, store::rank);
            Expect.code(CLOSED, store::numWorkers);
            Expect.code(CLOSED, store::barrier);
            Expect.code(CLOSED, () -> store.setUpdater(null));
            Expect.code(CLOSED, () -> store.setOptimizer(Optimizer.sgd()));
            Expect.code(CLOSED, () -> store.saveOptimizerStates("states"));
            Expect.code(CLOSED, store::snapshot);
            Expect.code(CLOSED, () -> store.checkpoint(Path.of("model")));
        }
        assertEquals("local", store.type());
    }

    @Test
    void aStoreStaysUsableAfterACallWithAClosedArray() {
        NDArray closed = NDArray.ones(SHAPE);
        closed.close();
        try (KVStore store = KVStore.create();
                NDArray array = NDArray.ones(SHAPE)) {
            store.init("a", array);
            Expect.code(CLOSED, () -> store.push("a", List.of(array, closed)));
            Expect.code(CLOSED, () -> store.pull("a", closed));
            assertArrayEquals(new float[] {1, 1, 1, 1}, store.pull("a").toFloats());
        }
    }

    @Test
    void theNativeLibraryRejectsOutdatedHandles() {
        NDArray array = NDArray.ones(SHAPE);
        long handle = array.handle();
        array.close();
        try (NDArray inTheSamePlace = NDArray.zeros(SHAPE)) {
            Expect.code(CLOSED, () -> NativeNDArray.toFloats(handle));
            NativeNDArray.release(handle);
            assertArrayEquals(new float[4], inTheSamePlace.toFloats());
        }
        Expect.code(CLOSED, () -> NativeNDArray.toFloats(0));
        Expect.code(CLOSED, () -> NativeKVStore.rank(0));
    }

    @Test
    @Timeout(60)
    void closingDuringCallsOfOtherThreadsIsHarmless() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        try {
            for (int round = 0; round < 100; round++) {
                NDArray array = NDArray.ones(Shape.of(10_000));
                KVStore store = KVStore.create().init("a", array);
                CyclicBarrier start = new CyclicBarrier(4);
                List<Future<?>> running = new ArrayList<>();
                running.add(threads.submit(after(start, () -> useUntilClosed(array::toFloats))));
                running.add(threads.submit(
                        after(start, () -> useUntilClosed(() -> store.push("a", array)))));
                running.add(threads.submit(after(start, array::close)));
                running.add(threads.submit(after(start, () -> {
                    store.close();
                    array.close();
                })));
                for (Future<?> thread : running) {
                    thread.get(30, TimeUnit.SECONDS);
                }
            }
        } finally {
            threads.shutdownNow();
        }
    }

    private static Callable<Void> after(CyclicBarrier start, Runnable action) {
        return () -> {
            start.await();
            action.run();
            return null;
        };
    }

    private static void useUntilClosed(Runnable use) {
        try {
            for (int i = 0; i < 1_000_000; i++) {
                use.run();
            }
        } catch (KVStoreException exception) {
            assertEquals(CLOSED, exception.code());
        }
    }

    @Test
    @Timeout(60)
    void unreachableArraysAreReleasedAndCounted() throws Exception {
        long collected = NativeMemory.collectedUnclosed();
        forget();
        while (NativeMemory.collectedUnclosed() < collected + 100) {
            System.gc();
            Thread.sleep(10);
        }
    }

    private static void forget() {
        for (int i = 0; i < 100; i++) {
            NDArray.ones(SHAPE);
        }
    }
}
