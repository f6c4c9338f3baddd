package dev.kvstore;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** Checkpoints that are being written, and those that failed without the program knowing. */
final class PendingCheckpoints {
    /** At this number the oldest failure is forgotten: a program that never asks would keep all of them. */
    private static final int MAX_FAILURES = 100;

    /** Those of this virtual machine. */
    private static final PendingCheckpoints ALL = new PendingCheckpoints();

    private static boolean waitsAtExit;

    private final Set<Checkpoint> pending = new LinkedHashSet<>();

    /** Returns the checkpoints of this virtual machine, whose end waits for them from now on. */
    static PendingCheckpoints ofProcess() {
        synchronized (ALL) {
            if (!waitsAtExit) {
                waitsAtExit = true;
                try {
                    Thread hook = new Thread(PendingCheckpoints::atExit, "kvstore-checkpoints");
                    Runtime.getRuntime().addShutdownHook(hook);
                } catch (IllegalStateException ending) {
                    // Only a thread that the end of the machine waits for, or that it ends, comes here.
                }
            }
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
     * Waits for those that have begun, and returns the failures that the program does not know. Where the thread
     * is interrupted it does not wait, and stays interrupted.
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

    /** The shutdown hook. No program is there to catch anything. */
    private static void atExit() {
        for (KVStoreException failure : ALL.finish()) {
            System.err.println("kvstore: a checkpoint failed, and the program did not wait for it: "
                    + failure.getMessage());
        }
        // Those for which no thread of Java could be started.
        for (String failure : NativeCheckpoint.finish()) {
            System.err.println(
                    "kvstore: a checkpoint failed, and the program did not wait for it: " + failure);
        }
    }
}
