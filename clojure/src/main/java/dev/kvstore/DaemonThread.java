package dev.kvstore;

import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/**
 * A platform daemon thread that runs while there is work. It ends when idle, so that the class loader can
 * be unloaded.
 */
final class DaemonThread {
    private final String name;
    private final Runnable work;
    private final BooleanSupplier hasWork;

    /** The running thread, or null. */
    private final AtomicReference<Thread> thread = new AtomicReference<>();

    /** {@code work} returns when it is idle, and runs again if {@code hasWork} is true then. */
    DaemonThread(String name, Runnable work, BooleanSupplier hasWork) {
        this.name = name;
        this.work = work;
        this.hasWork = hasWork;
    }

    /**
     * Starts the thread unless it runs. Call this after adding work.
     *
     * @throws OutOfMemoryError if the operating system refuses a thread
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
                // The next call tries again.
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
            // A thread that added work before the line above saw this one running and started none.
        } while (hasWork.getAsBoolean() && thread.compareAndSet(null, Thread.currentThread()));
    }
}
