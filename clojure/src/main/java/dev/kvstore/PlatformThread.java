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
 * <p>A virtual thread with a native frame on its stack, such as an updater's, keeps its carrier
 * while it waits. If such threads occupy all carriers while they wait for a lock, and its owner is
 * a virtual thread without a carrier, the owner never runs again. So work that sleeps or waits runs
 * here. The queue is lock-free, and callers wait for a future with a timeout. The executors of the
 * JDK have locks in their queues.
 */
final class PlatformThread {
    /** An idle thread terminates after this time. */
    private static final long IDLE_NANOS = TimeUnit.SECONDS.toNanos(10);

    private static final Queue<Runnable> WORK = new ConcurrentLinkedQueue<>();

    private static final DaemonThread THREAD =
            new DaemonThread("kvstore-worker", PlatformThread::runWork, () -> !WORK.isEmpty());

    private PlatformThread() {}

    /** Queues {@code work}. Exceptions that it throws are ignored. */
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
                // Ignore the failure, because the work reports its own failures. An
                // OutOfMemoryError must not terminate this thread.
            }
        }
    }

    /** Returns the next work, or null after the idle time. */
    private static Runnable next() {
        Runnable work = WORK.poll();
        if (work == null) {
            LockSupport.parkNanos(PlatformThread.class, IDLE_NANOS);
            work = WORK.poll();
        }
        return work;
    }

    /**
     * Waits for {@code future}, but no longer than {@code nanos}. Returns whether it is complete.
     * The caller must not hold a lock.
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
