package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.function.IntConsumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Tests that each action runs once, whether a thread or the cleaner runs it. */
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class HandleCleanerTest {
    private static final int THREADS = 4;
    private static final int ENTRIES = 20_000;

    /** An entry that counts how many times its action runs. */
    private static final class Counting extends HandleCleaner.Entry {
        private final AtomicIntegerArray runs;
        private final int index;

        Counting(Object object, AtomicIntegerArray runs, int index) {
            super(object);
            this.runs = runs;
            this.index = index;
        }

        @Override
        void run() {
            runs.incrementAndGet(index);
        }
    }

    private static Counting registered(Object object, AtomicIntegerArray runs, int index) {
        Counting entry = new Counting(object, runs, index);
        entry.register(object);
        return entry;
    }

    private static void inThreads(IntConsumer action) throws InterruptedException {
        AtomicInteger failures = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            int number = i;
            Thread thread = new Thread(() -> action.accept(number));
            thread.setUncaughtExceptionHandler((failed, failure) -> failures.incrementAndGet());
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(0, failures.get());
    }

    private static void awaitRuns(AtomicIntegerArray runs) {
        for (int i = 0; i < runs.length(); i++) {
            while (runs.get(i) == 0) {
                System.gc();
                Thread.yield();
            }
        }
    }

    @Test
    void threadsRegisterAndCleanAtTheSameTime() throws InterruptedException {
        AtomicIntegerArray runs = new AtomicIntegerArray(THREADS * ENTRIES);
        inThreads(number -> {
            Object object = new Object();
            Counting[] entries = new Counting[ENTRIES];
            for (int i = 0; i < ENTRIES; i++) {
                entries[i] = registered(object, runs, number * ENTRIES + i);
                if (i % 3 == 0) {
                    entries[i].clean();
                }
            }
            for (int i = 0; i < ENTRIES; i++) {
                entries[(i * 7919) % ENTRIES].clean();
            }
            Reference.reachabilityFence(object);
        });
        for (int i = 0; i < runs.length(); i++) {
            assertEquals(1, runs.get(i));
        }
    }

    @Test
    void threadsThatCleanOneEntryRunItOnce() throws InterruptedException {
        Object object = new Object();
        AtomicIntegerArray runs = new AtomicIntegerArray(ENTRIES);
        Counting[] entries = new Counting[ENTRIES];
        for (int i = 0; i < ENTRIES; i++) {
            entries[i] = registered(object, runs, i);
        }
        inThreads(number -> {
            for (Counting entry : entries) {
                entry.clean();
            }
        });
        for (int i = 0; i < ENTRIES; i++) {
            assertEquals(1, runs.get(i));
        }
        Reference.reachabilityFence(object);
    }

    @Test
    void theCleanerAndThreadsRunActionsAtTheSameTime() throws InterruptedException {
        AtomicIntegerArray runs = new AtomicIntegerArray(THREADS * ENTRIES);
        inThreads(number -> {
            for (int i = 0; i < ENTRIES; i++) {
                Counting entry = registered(new byte[64], runs, number * ENTRIES + i);
                if (i % 2 == 0) {
                    entry.clean();
                }
            }
        });
        awaitRuns(runs);
        for (int i = 0; i < runs.length(); i++) {
            assertEquals(1, runs.get(i));
        }
    }

    @Test
    void aFailingActionDoesNotStopTheCleaner() throws InterruptedException {
        AtomicInteger failed = new AtomicInteger();
        for (int i = 0; i < 10; i++) {
            HandleCleaner.register(new Object(), () -> {
                failed.incrementAndGet();
                throw new IllegalStateException("as planned");
            });
        }
        CountDownLatch ran = new CountDownLatch(1);
        HandleCleaner.register(new Object(), ran::countDown);
        while (failed.get() < 10 || ran.getCount() > 0) {
            System.gc();
            ran.await(1, TimeUnit.MILLISECONDS);
        }
        assertEquals(10, failed.get());
    }

    @Test
    void anEntryWithoutAnObjectHasNoAction() {
        AtomicIntegerArray runs = new AtomicIntegerArray(1);
        new Counting(null, runs, 0).clean();
        assertEquals(0, runs.get(0));
    }
}
