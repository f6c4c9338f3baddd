package dev.kvstore;

import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/**
 * A platform daemon thread that runs while there is work. It terminates when idle, so that the
 * class loader can be unloaded.
 */
final class DaemonThread {
    private final String name;
    private final Runnable work;
    private final BooleanSupplier hasWork;

    /** The running thread, or null. */
    private final AtomicReference<Thread> thread = new AtomicReference<>();

    /**
     * Creates the object; starts no thread yet.
     *
     * @param work returns when there is nothing to do; runs again if {@code hasWork} then returns
     *     true
     */
    DaemonThread(String name, Runnable work, BooleanSupplier hasWork) {
        this.name = name;
        this.work = work;
        this.hasWork = hasWork;
    }

    /**
     * Starts the thread if it is not running. Call this after adding work.
     *
     * @throws OutOfMemoryError if the operating system cannot start a thread
     */
    void ensureRunning() {
        if (thread.get() != null) {
            return;
        }
        Thread started = new Thread(null, this::run, name, 0, false);
        started.setDaemon(true);
        started.setContextClassLoader(null);
        if (thread.compareAndSet(null, started)) {
            try {
                started.start();
            } catch (Throwable failure) {
                // Lets the next call try again.
                thread.set(null);
                throw failure;
            }
        }
    }

    /** Wakes the thread if it is parked. */
    void unpark() {
        LockSupport.unpark(thread.get());
    }

    private void run() {
        do {
            work.run();
            thread.set(null);
            // Another thread may have added work before `thread` became null. It saw this thread
            // running and started none, so check once more.
        } while (hasWork.getAsBoolean() && thread.compareAndSet(null, Thread.currentThread()));
    }
}
