package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.CLOSED;
import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static dev.kvstore.KVStoreException.Code.KEY_NOT_FOUND;
import static dev.kvstore.KVStoreException.Code.SPEC_MISMATCH;
import static dev.kvstore.KVStoreTest.filled;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

class UpdaterTest {
    private static final Shape SHAPE = Shape.of(2, 3);

    private KVStore store;
    private NDArray one;

    @BeforeEach
    void create() {
        store = KVStore.create();
        one = NDArray.ones(SHAPE);
    }

    @AfterEach
    void close() {
        store.close();
        one.close();
    }

    private float[] valueOf(String key) {
        try (NDArray value = store.pull(key)) {
            return value.toFloats();
        }
    }

    @Test
    void anUpdaterRunsOncePerKeyInInitOrder() {
        List<String> calls = new ArrayList<>();
        store.init(List.of("b", "a"), List.of(one, one)).setUpdater((key, pushed, stored) -> {
            calls.add(key);
            assertEquals(SHAPE, pushed.shape());
            stored.addInPlace(pushed.multiply(2));
        });
        store.push(List.of("a", "b", "a"), List.of(one, one, one));
        assertEquals(List.of("b", "a"), calls);
        assertArrayEquals(filled(3), valueOf("b"));
        assertArrayEquals(filled(5), valueOf("a"));
    }

    @Test
    void anUpdaterRunsInTheThreadThatPushes() {
        List<Thread> threads = new ArrayList<>();
        store.init("a", one).setUpdater((key, pushed, stored) -> {
            threads.add(Thread.currentThread());
        });
        store.push("a", one);
        assertEquals(List.of(Thread.currentThread()), threads);
    }

    static Stream<Throwable> throwables() {
        return Stream.of(
                new IllegalStateException("unchecked"),
                new IOException("checked"),
                new StackOverflowError("an error"),
                new AssertionError("an assertion"),
                new KVStoreException(SPEC_MISMATCH, "our own"),
                new RuntimeException(null, null));
    }

    @ParameterizedTest
    @MethodSource("throwables")
    void pushThrowsTheSameObjectAsTheUpdater(Throwable thrown) {
        store.init("a", one).setUpdater((key, pushed, stored) -> {
            stored.set(9);
            sneakyThrow(thrown);
        });
        assertSame(thrown, assertThrows(Throwable.class, () -> store.push("a", one)));
        assertSame(thrown, assertThrows(Throwable.class, () -> store.pushpull("a", one)));
        assertArrayEquals(filled(1), valueOf("a"));
        if (thrown instanceof KVStoreException exception) {
            assertTrue(exception.isFromUpdater());
        }
        store.setUpdater(null).push("a", List.of(one, one));
        assertArrayEquals(filled(2), valueOf("a"));
        assertFalse(Expect.code(KEY_NOT_FOUND, () -> store.pull("b")).isFromUpdater());
    }

    @SuppressWarnings("unchecked")
    private static <T extends Throwable> void sneakyThrow(Throwable throwable) throws T {
        throw (T) throwable;
    }

    @Test
    void keysBeforeAFailureAreUpdatedAndKeysAfterItAreNot() {
        RuntimeException thrown = new RuntimeException("b");
        store.init(List.of("a", "b", "c"), List.of(one, one, one))
                .setUpdater((key, pushed, stored) -> {
                    stored.set(5);
                    if (key.equals("b")) {
                        throw thrown;
                    }
                });
        assertSame(thrown, assertThrows(RuntimeException.class,
                () -> store.push(List.of("c", "b", "a"), List.of(one, one, one))));
        assertArrayEquals(filled(5), valueOf("a"));
        assertArrayEquals(filled(1), valueOf("b"));
        assertArrayEquals(filled(1), valueOf("c"));
    }

    @Test
    void anArithmeticErrorInAnUpdaterReachesTheCaller() {
        store.init("a", one).setUpdater((key, pushed, stored) -> stored.addInPlace(
                pushed.reshape(3, 2)));
        KVStoreException exception = Expect.code(SPEC_MISMATCH, () -> store.push("a", one));
        assertEquals("[2, 3] f32", exception.expected());
    }

    @Test
    void arraysAreClosedWhenTheUpdaterReturns() {
        List<NDArray> kept = new ArrayList<>();
        store.init("a", one).setUpdater((key, pushed, stored) -> {
            kept.add(pushed);
            kept.add(stored);
            stored.set(4);
        });
        store.push("a", one);
        for (NDArray array : kept) {
            assertTrue(array.isClosed());
            Expect.code(CLOSED, array::toFloats);
            Expect.code(CLOSED, () -> array.set(7.0));
            array.close();
        }
        assertArrayEquals(filled(4), valueOf("a"));
    }

    @Test
    void arraysAreClosedWhenTheUpdaterThrows() {
        List<NDArray> kept = new ArrayList<>();
        store.init("a", one).setUpdater((key, pushed, stored) -> {
            kept.add(stored);
            throw new IllegalStateException();
        });
        assertThrows(IllegalStateException.class, () -> store.push("a", one));
        Expect.code(CLOSED, kept.get(0)::toFloats);
    }

    @Test
    void viewsAndCopiesThatAnUpdaterKeepsDoNotChangeTheStore() {
        List<NDArray> kept = new ArrayList<>();
        store.init("a", one).setUpdater((key, pushed, stored) -> {
            kept.add(stored.reshape(6));
            kept.add(pushed.slice(0, 1));
            stored.set(4);
        });
        store.push("a", one);
        for (NDArray view : kept) {
            view.set(9);
            view.close();
        }
        assertArrayEquals(filled(4), valueOf("a"));
        assertArrayEquals(filled(1), one.toFloats());
    }

    @Test
    void anUpdaterMayCloseItsArrays() {
        store.init("a", one).setUpdater((key, pushed, stored) -> {
            stored.addInPlace(pushed);
            pushed.close();
            stored.close();
            stored.close();
        });
        store.push("a", one).push("a", one);
        assertArrayEquals(filled(3), valueOf("a"));
    }

    @Test
    void anUpdaterMayPushToAnotherStore() {
        try (KVStore other = KVStore.create()) {
            other.init("b", one);
            store.init("a", one).setUpdater((key, pushed, stored) -> {
                other.push("b", pushed);
                stored.set(2);
            });
            store.push("a", List.of(one, one, one));
            try (NDArray value = other.pull("b")) {
                assertArrayEquals(filled(3), value.toFloats());
            }
        }
    }

    @Test
    void anUpdaterInsideAnUpdaterThrowsThroughBoth() {
        RuntimeException thrown = new RuntimeException("inner");
        try (KVStore other = KVStore.create()) {
            other.init("b", one).setUpdater((key, pushed, stored) -> {
                throw thrown;
            });
            store.init("a", one).setUpdater((key, pushed, stored) -> other.push("b", pushed));
            assertSame(thrown,
                    assertThrows(RuntimeException.class, () -> store.push("a", one)));
        }
    }

    @Test
    void pullInAnUpdaterReturnsTheLastCommittedValue() {
        List<float[]> seen = new ArrayList<>();
        store.init(List.of("a", "b"), List.of(one, one)).setUpdater((key, pushed, stored) -> {
            stored.set(5);
            seen.add(valueOf(key));
            seen.add(valueOf("b"));
        });
        store.push("a", one);
        assertArrayEquals(filled(1), seen.get(0));
        assertArrayEquals(filled(1), seen.get(1));
        assertArrayEquals(filled(5), valueOf("a"));
    }

    @Test
    void changingItsOwnStoreIsRejected() {
        List<Runnable> changes = List.of(
                () -> store.push("a", one),
                () -> store.pushpull("a", one),
                () -> store.init("c", one),
                () -> store.broadcast("c", one, one),
                () -> store.remove("a"),
                () -> store.setUpdater(null),
                () -> store.setUpdater((key, pushed, stored) -> {}),
                () -> store.setOptimizer(Optimizer.sgd()));
        store.init("a", one).setUpdater((key, pushed, stored) -> {
            for (Runnable change : changes) {
                Expect.code(INVALID_ARGUMENT, change::run);
            }
            stored.set(3);
        });
        store.push("a", one);
        assertArrayEquals(filled(3), valueOf("a"));
        assertEquals(List.of("a"), store.keys());
    }

    @Test
    @Timeout(60)
    void updatersThatPullEachOthersKeysDoNotDeadlock() throws Exception {
        CountDownLatch bothInside = new CountDownLatch(2);
        store.init(List.of("a", "b"), List.of(one, one)).setUpdater((key, pushed, stored) -> {
            bothInside.countDown();
            assertTrue(bothInside.await(20, TimeUnit.SECONDS));
            try (NDArray other = store.pull(key.equals("a") ? "b" : "a")) {
                stored.addInPlace(other);
            }
        });
        ExecutorService threads = Executors.newFixedThreadPool(2);
        try {
            Future<?> a = threads.submit(() -> store.push("a", one));
            Future<?> b = threads.submit(() -> store.push("b", one));
            a.get(30, TimeUnit.SECONDS);
            b.get(30, TimeUnit.SECONDS);
            for (int round = 0; round < 200; round++) {
                Future<?> first = threads.submit(() -> store.push("a", one));
                Future<?> second = threads.submit(() -> store.push("b", one));
                first.get(30, TimeUnit.SECONDS);
                second.get(30, TimeUnit.SECONDS);
            }
        } finally {
            threads.shutdownNow();
        }
    }

    @Test
    @Timeout(60)
    void closingTheStoreInAnUpdaterIsHarmless() {
        store.init("a", one).setUpdater((key, pushed, stored) -> {
            store.close();
            stored.addInPlace(pushed);
        });
        store.push("a", one);
        Expect.code(CLOSED, () -> store.pull("a"));
    }

    @Test
    void aGarbageCollectionInAnUpdaterIsHarmless() {
        store.init("a", one).setUpdater((key, pushed, stored) -> {
            System.gc();
            assertNotNull(stored.addInPlace(pushed));
            System.gc();
        });
        for (int i = 0; i < 3; i++) {
            store.push("a", one);
        }
        assertArrayEquals(filled(4), valueOf("a"));
    }
}
