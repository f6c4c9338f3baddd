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
 * Threads push, pull, print and close the same arrays and stores for 5 seconds, or for the number
 * of seconds in the environment variable {@code KVSTORE_SOAK_SECONDS}. They run in their own
 * process, in which no array or store is left at the end.
 */
@Tag("memory")
class SoakTest {
    @Test
    void concurrentUseLosesAndLeaksNothing() throws Exception {
        String seconds = System.getenv().getOrDefault("KVSTORE_SOAK_SECONDS", "5");
        ChildJvm.Result result = new ChildJvm().run(Soak.class, seconds);
        System.out.print(result.output());
        assertEquals(0, result.status(), result.output());
        assertTrue(result.output().endsWith("0 open, 0 bytes\n"), result.output());
    }

    /** The program of the process. Its argument is the number of seconds. */
    static final class Soak {
        private static final int THREADS = 8;
        private static final int SHARED = 16;
        private static final int LENGTH = 257;
        private static final Shape SHAPE = Shape.of(LENGTH);

        private final AtomicReferenceArray<NDArray> shared = new AtomicReferenceArray<>(SHARED);
        private final AtomicReferenceArray<KVStore> victims = new AtomicReferenceArray<>(1);
        private final AtomicLong pushes = new AtomicLong();
        private final AtomicLong rejected = new AtomicLong();
        private final AtomicLong calls = new AtomicLong();
        private final AtomicLong keys = new AtomicLong();
        private final long deadline;

        private Soak(long seconds) {
            deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        }

        public static void main(String[] arguments) throws Exception {
            Clojure.var("clojure.core", "require")
                    .invoke(Clojure.read("dev.kvstore.impl.printing"));
            Soak soak = new Soak(Long.parseLong(arguments[0]));
            try (KVStore store = summing();
                    KVStore plain = KVStore.create();
                    NDArray zero = filled(0)) {
                store.init("sum", zero);
                plain.init("value", zero);
                soak.run(store, plain);
                try (NDArray sum = store.pull("sum")) {
                    check(sum.toLongs()[LENGTH - 1] == soak.pushes.get(), "an update was lost");
                }
            }
            soak.close();
            awaitCleaner();
            System.out.println("soak: " + soak.calls + " calls, " + soak.pushes + " pushes, "
                    + soak.rejected + " rejected because an array or store was closed; "
                    + NativeMemory.open() + " open, " + NativeMemory.liveBytes() + " bytes");
            check(soak.pushes.get() > 0 && soak.rejected.get() > 0, "the threads did not meet");
        }

        private static void check(boolean holds, String message) {
            if (!holds) {
                throw new AssertionError(message);
            }
        }

        private static NDArray filled(double value) {
            return NDArray.full(SHAPE, value, DType.INT64, Context.cpu());
        }

        private static KVStore summing() {
            return KVStore.create("device")
                    .setUpdater((key, pushed, stored) -> stored.addInPlace(pushed));
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

        /** Makes one random call. The only allowed failure is that an array or store is closed. */
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
                check(exception.code() == CLOSED, exception.toString());
                rejected.incrementAndGet();
            }
        }

        /**
         * All elements of a written value are equal, so different elements would mean a torn write.
         */
        private static void checkWhole(long[] values) {
            for (long value : values) {
                check(values[0] == value, "a torn value");
            }
        }

        private static void print(NDArray array, KVStore store) {
            IFn print = Clojure.var("clojure.core", "pr-str");
            check(print.invoke(array).toString().startsWith("#kv/NDArray ["), "an array");
            check(print.invoke(store).toString().startsWith("#kv/KVStore ["), "a store");
            check(array.toString().startsWith("NDArray["), "an array in Java");
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

        private void close() {
            for (int i = 0; i < SHARED; i++) {
                shared.get(i).close();
            }
            victims.get(0).close();
        }

        /**
         * Waits for the cleaner. A resource that was replaced in a race is not closed, so the
         * garbage collector releases it.
         */
        private static void awaitCleaner() {
            long latest = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
            while (NativeMemory.open() + NativeMemory.liveBytes() > 0
                    && System.nanoTime() - latest < 0) {
                System.gc();
                Thread.onSpinWait();
            }
        }
    }
}
