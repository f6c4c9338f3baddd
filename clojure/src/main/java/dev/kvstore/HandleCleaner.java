package dev.kvstore;

import java.lang.ref.Cleaner;
import java.lang.ref.PhantomReference;
import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Runs the action of an {@link Entry} after its object has become unreachable, like
 * {@link Cleaner}, but without a monitor.
 *
 * <p>The JDK's cleaner has a monitor, which can deadlock with virtual threads. A virtual thread
 * with a native frame on its stack, such as an updater's, keeps its carrier while it waits. From
 * Java 24 on, other virtual threads release their carrier while they wait for a monitor, and a
 * released monitor wakes only one waiting thread. If the woken thread needs a carrier, and threads
 * with native frames occupy all carriers while they wait for the same monitor, none of them ever
 * runs again. The lists here have spin locks instead: no thread gives up its carrier while it holds
 * a spin lock.
 */
final class HandleCleaner {
    /** The thread terminates if there is no entry for this time. */
    private static final long IDLE_MILLIS = TimeUnit.SECONDS.toMillis(10);

    private static final ReferenceQueue<Object> UNREACHABLE = new ReferenceQueue<>();

    /** Several lists, so that threads rarely contend for the same lock. */
    private static final EntryList[] LISTS = new EntryList[16];

    static {
        for (int i = 0; i < LISTS.length; i++) {
            LISTS[i] = new EntryList();
        }
    }

    private static final DaemonThread THREAD = new DaemonThread(
            "kvstore-cleaner", HandleCleaner::runActions, HandleCleaner::hasEntries);

    private HandleCleaner() {}

    /**
     * Runs {@code action} after {@code object} has become unreachable. The action must not refer to
     * the object.
     */
    static void register(Object object, Runnable action) {
        new Entry(object) {
            @Override
            void run() {
                action.run();
            }
        }.register(object);
    }

    private static void runActions() {
        while (true) {
            try {
                Reference<?> found = UNREACHABLE.remove(IDLE_MILLIS);
                if (found != null) {
                    ((Entry) found).clean();
                } else if (!hasEntries()) {
                    return;
                }
            } catch (Throwable failure) {
                // Ignore the failure of an action, as the JDK's cleaner does, so that the others
                // run.
            }
        }
    }

    private static boolean hasEntries() {
        for (EntryList list : LISTS) {
            if (!list.isEmpty()) {
                return true;
            }
        }
        return false;
    }

    /** An object and an action. The action must not refer to the object. */
    abstract static class Entry extends PhantomReference<Object> {
        /** Null before the entry is registered. */
        private EntryList list;

        private Entry previous;
        private Entry next;
        private boolean isListed;

        /** Creates an entry for {@code object}. An entry for null must not be registered. */
        Entry(Object object) {
            super(object, object == null ? null : UNREACHABLE);
        }

        /** Runs the action. */
        abstract void run();

        /**
         * Registers the action. It runs once: when {@code object} has become unreachable or when
         * {@link #clean} is called.
         */
        final void register(Object object) {
            list = LISTS[ThreadLocalRandom.current().nextInt(LISTS.length)];
            list.add(this);
            try {
                THREAD.ensureRunning();
            } catch (Throwable failure) {
                forget();
                throw failure;
            }
            Reference.reachabilityFence(object);
        }

        /** Runs the action if it is registered and has not run. */
        final void clean() {
            if (forget()) {
                run();
            }
        }

        /**
         * Removes the entry. Returns whether the action had not run yet. Does not clear the
         * reference, because that is a slow native call.
         */
        private boolean forget() {
            return list != null && list.remove(this);
        }
    }

    /**
     * A doubly linked list with a spin lock. It keeps its entries reachable.
     *
     * <p>{@code lock} is a volatile read-modify-write, {@code unlock} a release store. This order
     * ensures that no entry is missed: if a thread adds an entry and then sees the cleaner's thread
     * running, its {@code lock} precedes that thread's last check of the list, which therefore
     * finds the entry.
     */
    private static final class EntryList {
        private final AtomicBoolean isLocked = new AtomicBoolean();
        private Entry first;

        void add(Entry entry) {
            lock();
            entry.isListed = true;
            entry.next = first;
            if (entry.next != null) {
                entry.next.previous = entry;
            }
            first = entry;
            unlock();
        }

        /** Returns whether the entry was in the list. */
        boolean remove(Entry entry) {
            lock();
            boolean wasListed = entry.isListed;
            if (wasListed) {
                entry.isListed = false;
                if (entry.next != null) {
                    entry.next.previous = entry.previous;
                }
                if (entry.previous != null) {
                    entry.previous.next = entry.next;
                } else {
                    first = entry.next;
                }
                entry.next = null;
                entry.previous = null;
            }
            unlock();
            return wasListed;
        }

        boolean isEmpty() {
            lock();
            boolean isEmpty = first == null;
            unlock();
            return isEmpty;
        }

        private void lock() {
            for (int i = 1; !isLocked.compareAndSet(false, true); i++) {
                if (i % 64 == 0) {
                    Thread.yield();
                } else {
                    Thread.onSpinWait();
                }
            }
        }

        private void unlock() {
            isLocked.setRelease(false);
        }
    }
}
