package dev.kvstore;

import java.lang.ref.Cleaner;
import java.lang.ref.PhantomReference;
import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Runs an action when an object has become unreachable, like {@link Cleaner}, but without a monitor.
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

    /**
     * Runs {@code action} once: when {@code object} has become unreachable, or when the result is cleaned.
     * The action must not reach the object.
     */
    static Cleaner.Cleanable register(Object object, Runnable action) {
        EntryList list = LISTS[ThreadLocalRandom.current().nextInt(LISTS.length)];
        Entry entry = new Entry(object, action, list);
        list.add(entry);
        try {
            THREAD.ensureRunning();
        } catch (Throwable failure) {
            entry.forget();
            throw failure;
        }
        Reference.reachabilityFence(object);
        return entry;
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
            if (list.first != null) {
                return true;
            }
        }
        return false;
    }

    private static final class Entry extends PhantomReference<Object> implements Cleaner.Cleanable {
        private final Runnable action;
        private final EntryList list;
        private Entry previous;
        private Entry next;
        private boolean isListed;

        Entry(Object object, Runnable action, EntryList list) {
            super(object, UNREACHABLE);
            this.action = action;
            this.list = list;
        }

        @Override
        public void clean() {
            if (forget()) {
                action.run();
            }
        }

        /** Returns whether this is the first call. */
        boolean forget() {
            boolean isFirst = list.remove(this);
            clear();
            return isFirst;
        }
    }

    /** A doubly linked list with a spin lock. It keeps its entries reachable. */
    private static final class EntryList {
        private final AtomicBoolean isLocked = new AtomicBoolean();
        private volatile Entry first;

        void add(Entry entry) {
            lock();
            entry.isListed = true;
            entry.next = first;
            if (entry.next != null) {
                entry.next.previous = entry;
            }
            first = entry;
            isLocked.set(false);
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
            isLocked.set(false);
            return wasListed;
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
    }
}
