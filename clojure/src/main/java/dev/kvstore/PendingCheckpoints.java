package dev.kvstore;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** The running checkpoints and those whose failure the program has not seen. */
final class PendingCheckpoints {
    /**
     * The maximum number of checkpoints in the list, which limits the memory of failures that the
     * program never reads. The oldest failure is dropped.
     */
    private static final int MAX_FAILURES = 100;

    /** The checkpoints of this JVM. */
    private static final PendingCheckpoints ALL = new PendingCheckpoints();

    private static final Thread HOOK =
            new Thread(PendingCheckpoints::atExit, "kvstore-checkpoints");

    private static volatile boolean hasHook;

    private final Set<Checkpoint> pending = new LinkedHashSet<>();

    /**
     * Returns the checkpoints of this JVM. From the first call on, the JVM waits for them at exit.
     */
    static PendingCheckpoints ofProcess() {
        if (!hasHook) {
            try {
                Runtime.getRuntime().addShutdownHook(HOOK);
            } catch (IllegalArgumentException registered) {
                // Another thread has registered the hook.
            } catch (IllegalStateException ending) {
                // The JVM is shutting down. It either waits for this thread anyway or kills it.
            }
            hasHook = true;
        }
        return ALL;
    }

    synchronized void add(Checkpoint checkpoint) {
        pending.removeIf(Checkpoint::isSettled);
        if (pending.size() >= MAX_FAILURES) {
            removeOldestFailure();
        }
        pending.add(checkpoint);
    }

    private void removeOldestFailure() {
        for (Iterator<Checkpoint> all = pending.iterator(); all.hasNext(); ) {
            if (all.next().hasEnded()) {
                all.remove();
                return;
            }
        }
    }

    /**
     * Waits for the checkpoints that were started before this call, and returns the failures that
     * the program has not seen. If the thread is interrupted, this method does not wait and the
     * thread stays interrupted.
     */
    List<KVStoreException> finish() {
        List<Checkpoint> begun;
        synchronized (this) {
            begun = new ArrayList<>(pending);
        }
        try {
            for (Checkpoint checkpoint : begun) {
                checkpoint.awaitEnd();
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        List<KVStoreException> failures = new ArrayList<>();
        for (Checkpoint checkpoint : begun) {
            KVStoreException failure = checkpoint.takeFailure();
            if (failure != null) {
                failures.add(failure);
            }
        }
        return failures;
    }

    /** The shutdown hook. It prints failures, because there is no caller to throw them to. */
    private static void atExit() {
        for (KVStoreException failure : ALL.finish()) {
            System.err.println("kvstore: a checkpoint failed, and the program did not wait for it: "
                    + failure.getMessage());
        }
        // The native library reports checkpoints whose Java thread could not be started.
        for (String failure : NativeCheckpoint.finish()) {
            System.err.println(
                    "kvstore: a checkpoint failed, and the program did not wait for it: "
                            + failure);
        }
    }
}
