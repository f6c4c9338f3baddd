package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.CLOSED;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import clojure.java.api.Clojure;
import clojure.lang.IFn;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/**
 * Threads that push, pull, print and close the same arrays and stores, for half a minute or as many seconds
 * as the system property {@code kvstore.soak.seconds} says.
 */
@Tag("memory")
class SoakTest {
    private static final int THREADS = 8;
    private static final int SHARED = 16;
    private static final int LENGTH = 257;
    private static final Shape SHAPE = Shape.of(LENGTH);

    private final long deadline = System.nanoTime()
            + TimeUnit.SECONDS.toNanos(Long.getLong("kvstore.soak.seconds", 30));
    private final AtomicReferenceArray<NDArray> shared = new AtomicReferenceArray<>(SHARED);
    private final AtomicReferenceArray<KVStore> victims = new AtomicReferenceArray<>(1);
    private final AtomicLong pushes = new AtomicLong();
    private final AtomicLong refused = new AtomicLong();
    private final AtomicLong calls = new AtomicLong();
    private final AtomicLong keys = new AtomicLong();

    private static NDArray filled(double value) {
        return NDArray.full(SHAPE, value, DType.INT64, Context.cpu());
    }

    private static KVStore summing() {
        return KVStore.create("device").setUpdater((key, pushed, stored) -> stored.addInPlace(pushed));
    }

    @Test
    void nothingIsLostAndNothingLeaks() throws Exception {
        Clojure.var("clojure.core", "require").invoke(Clojure.read("dev.kvstore.impl.printing"));
        System.gc();
        long open = NativeMemory.open();
        long live = NativeMemory.liveBytes();
        try (KVStore store = summing();
                KVStore plain = KVStore.create();
                NDArray zero = filled(0)) {
            store.init("sum", zero);
            plain.init("value", zero);
            run(store, plain);
            try (NDArray sum = store.pull("sum")) {
                assertEquals(pushes.get(), sum.toLongs()[LENGTH - 1], "an update was lost");
            }
        }
        for (int i = 0; i < SHARED; i++) {
            shared.get(i).close();
        }
        victims.get(0).close();
        System.out.println("soak: " + calls + " calls, " + pushes + " pushes, " + refused
                + " refused because an array or store was closed");
        assertTrue(pushes.get() > 0 && refused.get() > 0, "the threads did not meet");
        awaitCollected(open);
        // Less, when something that an earlier test had forgotten was collected meanwhile.
        assertTrue(NativeMemory.open() <= open, () -> NativeMemory.open() - open + " are left");
        assertTrue(NativeMemory.liveBytes() <= live, () -> NativeMemory.liveBytes() - live + " bytes");
    }

    private void run(KVStore store, KVStore plain) throws Exception {
        for (int i = 0; i < SHARED; i++) {
            shared.set(i, filled(1));
        }
        victims.set(0, summing());
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        try {
            List<Callable<Void>> work = new ArrayList<>();
            for (int i = 0; i < THREADS; i++) {
                Random random = new Random(i);
                work.add(() -> {
                    while (System.nanoTime() - deadline < 0) {
                        step(store, plain, random);
                        calls.incrementAndGet();
                    }
                    return null;
                });
            }
            for (Future<Void> done : threads.invokeAll(work)) {
                done.get();
            }
        } finally {
            threads.shutdownNow();
        }
    }

    /** One random call. Only that something is closed may be wrong with it. */
    private void step(KVStore store, KVStore plain, Random random) {
        int slot = random.nextInt(SHARED);
        NDArray array = shared.get(slot);
        try {
            switch (random.nextInt(8)) {
                case 0, 1 -> {
                    try (NDArray one = filled(1)) {
                        store.push("sum", one);
                        pushes.incrementAndGet();
                    }
                }
                case 2 -> plain.push("value", array);
                case 3 -> plain.pull("value", array);
                case 4 -> checkWhole(array.toLongs());
                case 5 -> print(array, store);
                case 6 -> {
                    array.close();
                    shared.compareAndSet(slot, array, filled(random.nextInt(100)));
                }
                default -> closeAStore(array);
            }
        } catch (KVStoreException exception) {
            assertEquals(CLOSED, exception.code(), exception::toString);
            refused.incrementAndGet();
        }
    }

    /** Every value that is written is the same everywhere: a mixture would be half of a write. */
    private static void checkWhole(long[] values) {
        for (long value : values) {
            assertEquals(values[0], value, "a torn value");
        }
    }

    private static void print(NDArray array, KVStore store) {
        IFn print = Clojure.var("clojure.core", "pr-str");
        assertTrue(print.invoke(array).toString().startsWith("#kv/NDArray ["));
        assertTrue(print.invoke(store).toString().startsWith("#kv/KVStore ["));
        assertTrue(array.toString().startsWith("NDArray["));
    }

    private void closeAStore(NDArray array) {
        KVStore victim = victims.get(0);
        victim.init(List.of("key " + keys.incrementAndGet()), List.of(array));
        for (String key : victim.keys()) {
            victim.push(key, array);
        }
        if (victim.keys().size() > 4) {
            victim.close();
            KVStore next = summing();
            if (!victims.compareAndSet(0, victim, next)) {
                next.close();
            }
        }
    }

    /** An array that lost its place in a race was forgotten, and is left to the collector. */
    private static void awaitCollected(long open) {
        long latest = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (NativeMemory.open() > open && System.nanoTime() - latest < 0) {
            System.gc();
            Thread.onSpinWait();
        }
    }
}
