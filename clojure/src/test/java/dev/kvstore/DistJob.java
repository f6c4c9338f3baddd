package dev.kvstore;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

/** The programs of the ranks of a job. Their only dependency is the jar. */
final class DistJob {
    private static final Shape SHAPE = Shape.of(2, 3);

    private final KVStore store;
    private final int rank;

    private DistJob(KVStore store) {
        this.store = store;
        rank = store.rank();
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("create")) {
            create();
            return;
        }
        DistJob job = new DistJob(KVStore.create("dist_sync"));
        switch (arguments[0]) {
            case "verbs" -> job.useVerbs();
            case "state" -> job.keepState();
            case "unclosed" -> job.leavePushes();
            case "faults" -> job.makeFaults();
            case "exit" -> job.leaveWith(() -> System.exit(3));
            case "throw" -> job.leaveWith(() -> {
                throw new IllegalStateException("thrown by a rank");
            });
            case "signal" -> job.pushUntilSignalled();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.out.println("rank " + job.rank + " is done");
    }

    private static void create() {
        try (KVStore made = KVStore.create("dist_sync")) {
            System.out.println("made " + made);
        } catch (KVStoreException exception) {
            System.out.println(exception.code() + ": " + exception.getMessage());
        }
    }

    private void useVerbs() {
        try (store) {
            check(store.numWorkers() == 2, "two workers");
            store.init("w", full(rank));
            expect(0, "the value of rank 0");

            push("w", rank + 1);
            expect(1 + 2, "a sum over the ranks");
            try (NDArray one = full(1)) {
                store.push("w", List.of(one, one));
                expect(2 * 2, "a sum of lists");
            }

            store.setOptimizer(Optimizer.sgd().learningRate(0.5).weightDecay(0));
            push("w", rank + 1);
            expect(4 - 0.5f * 3, "a step of the optimizer");

            store.setUpdater((key, pushed, stored) -> {
                try (NDArray doubled = pushed.multiply(2)) {
                    stored.addInPlace(doubled);
                }
            });
            push("w", rank + 1);
            expect(2.5f + 2 * 3, "what the updater makes of it");
            throwInUpdater();
            store.barrier();
        }
    }

    /** Push throws the same object that the updater threw, and the store stays usable. */
    private void throwInUpdater() {
        IllegalStateException thrown = new IllegalStateException("mine");
        store.setUpdater((key, pushed, stored) -> {
            throw thrown;
        });
        try {
            push("w", 1);
            check(false, "a push that throws");
        } catch (IllegalStateException caught) {
            check(caught == thrown, "the object that was thrown");
        }
        expect(8.5f, "a value that nothing has changed");
        store.setUpdater(null);
        push("w", rank + 1);
        expect(1 + 2, "a sum again");
    }

    /** Tests row-sparse values, a checkpoint that only one rank has, and compression. */
    private void keepState() throws Exception {
        try (store; NDArray ones = full(1)) {
            store.init("w", ones);
            try (RowSparse row = RowSparse.of(new float[] {1, 2, 3}, new long[] {rank}, SHAPE)) {
                store.push("w", row);
            }
            check(Arrays.equals(new float[] {1, 2, 3, 1, 2, 3}, weights()), "a sum of rows");
            try (RowSparse row = store.rowSparsePull("w", new long[] {1})) {
                check(row.numRows() == 1, "a pull of rows");
            }

            store.setOptimizer(Optimizer.sgd().learningRate(0.1).momentum(0.9).weightDecay(0));
            push("w", rank + 1);
            Path file = Files.createTempFile("kvstore", ".checkpoint");
            try (Snapshot snapshot = store.snapshot()) {
                if (rank == 0) {
                    snapshot.checkpoint(file).join();
                } else {
                    Files.delete(file);
                }
            }
            float[] before = weights();
            push("w", rank + 1);
            float[] expected = weights();
            check(!Arrays.equals(before, expected), "a step");
            store.restore(file);
            check(Arrays.equals(before, weights()), "what the file of one rank has, on both");
            push("w", rank + 1);
            check(Arrays.equals(expected, weights()), "the next step, with its momentum");
            Files.deleteIfExists(file);

            store.setUpdater(null);
            store.setGradientCompression("2bit", 0.5);
            push("w", rank == 0 ? 0.75f : 0.25f);
            expect(0.5f, "what is above the threshold");
            push("w", 0.25f);
            expect(0.5f + 0.5f, "what was left before");
        }
    }

    private float[] weights() {
        try (NDArray value = store.pull("w")) {
            return value.toFloats();
        }
    }

    /**
     * Tests that the JVM's own signal handlers work. It uses signals for null pointers in compiled
     * code and for stack overflows.
     */
    private void makeFaults() {
        int[] array = {1, 2};
        for (int round = 0; round < 20; round++) {
            // Compiled code has no null check as long as no pointer has been null.
            long sum = 0;
            for (int i = 0; i < 100_000; i++) {
                sum += length(array) + first(array);
            }
            check(sum == 300_000, "compiled code");
            push("a", round);
            try {
                sum += round % 2 == 0 ? length(null) : first(null);
                check(false, "a null pointer with a length of " + sum);
            } catch (NullPointerException exception) {
                check(recurse(0) > 0, "a depth");
            }
            push("a", round);
        }
    }

    private static int length(int[] array) {
        return array.length;
    }

    private static int first(int[] array) {
        return array[0];
    }

    private static int recurse(int depth) {
        try {
            return recurse(depth + 1);
        } catch (StackOverflowError error) {
            return depth;
        }
    }

    /** Ends the program while the last push is still in progress. */
    private void leavePushes() {
        try (NDArray value = full(1)) {
            store.init("a", value);
            for (int round = 0; round < 50; round++) {
                store.push("a", value);
            }
        }
    }

    /** Makes one rank exit while the other rank waits for it. */
    private void leaveWith(Runnable exit) {
        push("a", 1);
        if (rank == 1) {
            exit.run();
        }
        store.barrier();
    }

    private void pushUntilSignalled() throws Exception {
        System.out.println("process " + ProcessHandle.current().pid());
        for (int round = 0; round < 1_000_000; round++) {
            push("a", 1);
            if (rank == 0 && round == 100) {
                String kill = "kill -s $SIGNAL -- -$LAUNCHER";
                new ProcessBuilder("sh", "-c", kill).inheritIO().start();
            }
        }
    }

    private void push(String key, float number) {
        try (NDArray value = full(number)) {
            if (!store.contains(key)) {
                store.init(key, value);
            }
            store.push(key, value).pull(key, value);
        }
    }

    private static NDArray full(float number) {
        return NDArray.full(SHAPE, number);
    }

    private void expect(float number, String what) {
        try (NDArray value = store.pull("w")) {
            float[] found = value.toFloats();
            float[] expected = new float[found.length];
            Arrays.fill(expected, number);
            check(Arrays.equals(expected, found), what + ": " + Arrays.toString(found));
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
