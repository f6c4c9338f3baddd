package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/**
 * Virtual threads push with an updater and do not close their arrays. A thread that runs an updater
 * has a native frame, so it keeps its carrier: if all carriers wait for a thread that needs a
 * carrier, the process hangs.
 */
@Tag("memory")
class VirtualThreadTest {
    private static final int FIRST_WITH_VIRTUAL_THREADS = 21;

    @Test
    void aHundredThreadsFinishAboveTheThreshold() throws Exception {
        run("100", "2", "5", "4194304");
    }

    @Test
    void tenThousandThreadsLoseNothing() throws Exception {
        run("10000", "2", "2", "32768");
    }

    /**
     * Runs a process for each number of carriers. They run at the same time, because a busy machine
     * reveals more hangs.
     */
    private static void run(String... arguments) throws Exception {
        Path home = Jdk.atLeast(FIRST_WITH_VIRTUAL_THREADS);
        ExecutorService processes = Executors.newCachedThreadPool();
        Map<Integer, Future<ChildJvm.Result>> results = new TreeMap<>();
        for (int parallelism : new int[] {2, 4, 16, 64}) {
            ChildJvm jvm = new ChildJvm(
                    home,
                    "-Xmx512m",
                    "-Djdk.virtualThreadScheduler.parallelism=" + parallelism,
                    "-Djdk.virtualThreadScheduler.maxPoolSize=" + parallelism);
            results.put(parallelism, processes.submit(() -> jvm.run(Pushes.class, arguments)));
        }
        processes.shutdown();
        for (Map.Entry<Integer, Future<ChildJvm.Result>> entry : results.entrySet()) {
            ChildJvm.Result result = entry.getValue().get();
            String carriers = entry.getKey() + " carriers";
            assertEquals("every update counted\n", result.output(), carriers);
            assertEquals(0, result.status(), carriers);
        }
    }

    /**
     * The program of the process. Its arguments are the number of threads, pushes per thread,
     * arrays per update and bytes per array.
     */
    static final class Pushes {
        private static final int KEYS = 64;
        private static final int TIMEOUT_SECONDS = 60;

        private final ConcurrentLinkedQueue<Throwable> failures = new ConcurrentLinkedQueue<>();
        private final int threads;
        private final int pushes;
        private final int arrays;
        private final Shape shape;

        private Pushes(int threads, int pushes, int arrays, long numBytes) {
            this.threads = threads;
            this.pushes = pushes;
            this.arrays = arrays;
            this.shape = Shape.of(numBytes / Float.BYTES);
        }

        public static void main(String[] arguments) throws Exception {
            new Pushes(
                            Integer.parseInt(arguments[0]),
                            Integer.parseInt(arguments[1]),
                            Integer.parseInt(arguments[2]),
                            Long.parseLong(arguments[3]))
                    .run();
            // Use `halt`, because hanging threads would keep the process alive.
            System.out.flush();
            Runtime.getRuntime().halt(0);
        }

        private void run() throws Exception {
            KVStore store = KVStore.create();
            for (int i = 0; i < KEYS; i++) {
                store.init("key " + i, NDArray.zeros(shape));
            }
            // The garbage collector releases the temporary arrays.
            store.setUpdater((key, pushed, stored) -> {
                for (int i = 1; i < arrays; i++) {
                    pushed = pushed.multiply(1);
                }
                stored.set(stored.add(pushed));
            });
            NDArray gradient = NDArray.ones(shape);
            CountDownLatch ended = new CountDownLatch(threads);
            for (int i = 0; i < threads; i++) {
                int number = i;
                start(() -> {
                    try {
                        work(store, gradient, number);
                    } catch (Throwable failure) {
                        failures.add(failure);
                    } finally {
                        ended.countDown();
                    }
                });
            }
            if (!ended.await(TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
                System.out.println(ended.getCount() + " of " + threads + " threads hang");
            } else if (!failures.isEmpty()) {
                failures.peek().printStackTrace(System.out);
            } else {
                System.out.println(sum(store) == (double) threads * pushes
                        ? "every update counted"
                        : "updates were lost");
            }
        }

        /**
         * Most threads allocate in an updater, below the native frame of a push. Some allocate
         * outside.
         */
        private void work(KVStore store, NDArray gradient, int number) {
            String key = "key " + number % KEYS;
            for (int i = 0; i < pushes; i++) {
                store.push(key, gradient);
                for (int j = 0; number % 4 == 0 && j < arrays; j++) {
                    NDArray pulled = store.pull(key);
                    NDArray closedByAnother = pulled.add(1);
                    start(closedByAnother::close);
                }
            }
        }

        private static double sum(KVStore store) {
            double sum = 0;
            for (String key : store.keys()) {
                sum += store.pull(key).slice(0, 1).toScalar();
            }
            return sum;
        }

        /** Uses reflection, because the tests are compiled for Java 17. */
        private static void start(Runnable body) {
            try {
                Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, body);
            } catch (ReflectiveOperationException exception) {
                throw new AssertionError(exception);
            }
        }
    }
}
