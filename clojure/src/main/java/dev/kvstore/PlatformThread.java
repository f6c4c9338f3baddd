package dev.kvstore;

import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;

/**
 * Runs work on one platform daemon thread.
 *
 * <p>A virtual thread under a native frame, such as an updater, keeps its carrier while it waits.
 * If such threads wait on every carrier for a lock whose owner is unmounted, the owner never runs
 * again. So work that sleeps or waits runs here: the queue is lock-free, and callers wait for a
 * future with a timeout. Executors of the JDK have locks in their queues.
 */
final class PlatformThread {
    /** An idle thread ends after this time. */
    private static final long IDLE_NANOS = TimeUnit.SECONDS.toNanos(10);

    private static final Queue<Runnable> WORK = new ConcurrentLinkedQueue<>();

    private static final DaemonThread THREAD =
            new DaemonThread("kvstore-worker", PlatformThread::runWork, () -> !WORK.isEmpty());

    private PlatformThread() {}

    /** Queues {@code work}. Exceptions of the work are dropped. */
    static void execute(Runnable work) {
        WORK.add(work);
        THREAD.ensureRunning();
        THREAD.unpark();
    }

    private static void runWork() {
        for (Runnable work = next(); work != null; work = next()) {
            try {
                work.run();
            } catch (Throwable failure) {
                // The work reports its own failures. An OutOfMemoryError must not end this thread.
            }
        }
    }

    /** Returns the next work, or null after an idle time. */
    private static Runnable next() {
        Runnable work = WORK.poll();
        if (work == null) {
            LockSupport.parkNanos(PlatformThread.class, IDLE_NANOS);
            work = WORK.poll();
        }
        return work;
    }

    /**
     * Waits for {@code future} at most {@code nanos}. Returns whether it is complete. The caller
     * must not hold a lock.
     */
    static boolean await(CompletableFuture<?> future, long nanos) {
        long deadline = System.nanoTime() + nanos;
        boolean interrupted = false;
        while (true) {
            try {
                future.get(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
                break;
            } catch (InterruptedException exception) {
                interrupted = true;
            } catch (ExecutionException | TimeoutException exception) {
                break;
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
        return future.isDone();
    }
}
