package dev.kvstore;

import java.lang.ref.Cleaner;
import java.lang.ref.PhantomReference;
import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Runs the action of an {@link Entry} when its object has become unreachable, like {@link Cleaner}, but without a
 * monitor.
 *
 * <p>A virtual thread under a native frame, such as an updater, keeps its carrier while it waits. From
 * Java 24 on, other virtual threads that wait for a monitor have no carrier, and a released monitor wakes one
 * waiting thread only. If that one needs a carrier, and threads under native frames wait for the same monitor
 * on all carriers, none of them ever runs again. The JDK's cleaner has such a monitor. The lists here have
 * spin locks instead: no thread gives up its carrier while it holds one.
 */
final class HandleCleaner {
    /** The thread ends when there has been no entry for this time. */
    private static final long IDLE_MILLIS = TimeUnit.SECONDS.toMillis(10);

    private static final ReferenceQueue<Object> UNREACHABLE = new ReferenceQueue<>();

    /** Several lists, so that threads seldom wait for each other. */
    private static final EntryList[] LISTS = new EntryList[16];

    static {
        for (int i = 0; i < LISTS.length; i++) {
            LISTS[i] = new EntryList();
        }
    }

    private static final DaemonThread THREAD =
            new DaemonThread("kvstore-cleaner", HandleCleaner::runActions, HandleCleaner::hasEntries);

    private HandleCleaner() {}

    /** Runs {@code action} when {@code object} has become unreachable. The action must not reach the object. */
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
                // As in the JDK's cleaner, the failure of one action does not keep others from running.
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

    /** An object and an action, which must not reach the object. */
    abstract static class Entry extends PhantomReference<Object> {
        /** Null before the entry is registered. */
        private EntryList list;

        private Entry previous;
        private Entry next;
        private boolean isListed;

        /** An entry for {@code object}; one for null is never registered. */
        Entry(Object object) {
            super(object, object == null ? null : UNREACHABLE);
        }

        /** Runs the action. */
        abstract void run();

        /** Lets the action run once: when {@code object} has become unreachable, or by {@link #clean}. */
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

        /** Returns whether the action was still to run. The reference is not cleared, which is a slow native call. */
        private boolean forget() {
            return list != null && list.remove(this);
        }
    }

    /**
     * A doubly linked list with a spin lock. It keeps its entries reachable.
     *
     * <p>{@code lock} is a volatile read-modify-write, {@code unlock} a release store. If a thread adds an entry
     * and then sees the cleaner's thread running, its {@code lock} precedes that thread's last look into the list,
     * which therefore finds the entry.
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
