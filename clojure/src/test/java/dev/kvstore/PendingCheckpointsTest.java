package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.IO;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Tests checkpoints that a program starts and does not wait for. */
class PendingCheckpointsTest {
    /** 64 MiB, so that writing the file takes longer than ending the program. */
    private static final int NUM_ELEMENTS = 16 << 20;

    private static final String REPORT =
            "kvstore: a checkpoint failed, and the program did not wait for it: ";

    @TempDir
    Path folder;

    /**
     * Starts a checkpoint to the file in the first argument. The second argument selects how the
     * program ends.
     */
    static final class Program {
        public static void main(String[] arguments) throws Exception {
            KVStore store = KVStore.create()
                    .init("w", NDArray.full(Shape.of(NUM_ELEMENTS), 7));
            Path file = Path.of(arguments[0]);
            if (arguments[1].equals("daemon")) {
                CountDownLatch begun = new CountDownLatch(1);
                Thread thread = new Thread(() -> {
                    store.checkpoint(file);
                    begun.countDown();
                });
                thread.setDaemon(true);
                thread.start();
                begun.await();
                System.exit(0);
            }
            Checkpoint checkpoint = store.checkpoint(file);
            switch (arguments[1]) {
                case "return" -> { }
                case "exit" -> System.exit(3);
                case "throw" -> throw new IllegalStateException("over");
                case "close" -> {
                    store.close();
                    Runtime.getRuntime().halt(4);
                }
                case "cancel" -> {
                    checkpoint.cancel(true);
                    System.exit(5);
                }
                case "stage" -> {
                    checkpoint.whenComplete((nothing, failure) -> System.exit(6));
                    new CountDownLatch(1).await();
                }
                case "signal" -> {
                    long pid = ProcessHandle.current().pid();
                    new ProcessBuilder("sh", "-c", "kill -TERM " + pid).inheritIO().start();
                    new CountDownLatch(1).await();
                }
                default -> throw new IllegalArgumentException(arguments[1]);
            }
        }
    }

    private static ChildJvm.Result run(Path file, String end) throws Exception {
        return new ChildJvm().run(Program.class, file.toString(), end);
    }

    private static KVStore ones() {
        return KVStore.create().init("w", NDArray.ones(Shape.of(4)));
    }

    @Test
    void anUnawaitedCheckpointIsComplete() throws Exception {
        Path file = folder.resolve("model");
        ChildJvm.Result result = run(file, "exit");
        assertEquals(new ChildJvm.Result(3, ""), result);
        assertComplete(file);
        try (Stream<Path> files = Files.list(folder)) {
            assertEquals(List.of(file), files.toList());
        }
    }

    /**
     * At exit, the JVM waits about 300 ms for native threads, so the reader must be slower than
     * that.
     */
    @ParameterizedTest
    @CsvSource({
        "return,0", "exit,3", "throw,1", "close,4", "cancel,5", "stage,6", "signal,143", "daemon,0"
    })
    void theProgramEndsAfterASlowReaderHasReadEverything(String end, int status) throws Exception {
        Path pipe = folder.resolve("pipe");
        assertEquals(0,
                new ProcessBuilder("mkfifo", pipe.toString()).inheritIO().start().waitFor());
        CompletableFuture<byte[]> read = CompletableFuture.supplyAsync(() -> readSlowly(pipe));
        ChildJvm.Result result = run(pipe, end);
        // Unblocks the reader if no writer has opened the pipe.
        try (RandomAccessFile writer = new RandomAccessFile(pipe.toFile(), "rw")) {
            assertTrue(writer.getFD().valid());
        }
        assertEquals(status, result.status(), result.output());
        if (!end.equals("throw")) {
            assertEquals("", result.output());
        }
        assertComplete(Files.write(folder.resolve("model"), read.get(60, TimeUnit.SECONDS)));
    }

    private static byte[] readSlowly(Path pipe) {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        try (FileInputStream input = new FileInputStream(pipe.toFile())) {
            byte[] few = new byte[64];
            for (int count = input.read(few); count > 0; count = input.read(few)) {
                content.write(few, 0, count);
            }
        } catch (IOException exception) {
            throw new UncheckedIOException(exception);
        }
        return content.toByteArray();
    }

    private static void assertComplete(Path file) {
        try (KVStore store = KVStore.create().restore(file); NDArray found = store.pull("w")) {
            float[] expected = new float[NUM_ELEMENTS];
            Arrays.fill(expected, 7);
            assertArrayEquals(expected, found.toFloats());
        }
    }

    @ParameterizedTest
    @CsvSource({"return,0", "exit,3", "cancel,5", "signal,143", "daemon,0"})
    void aFailureThatNoCallReportsIsPrinted(String end, int status) throws Exception {
        Path file = folder.resolve("missing").resolve("model");
        ChildJvm.Result result = run(file, end);
        assertEquals(status, result.status(), result.output());
        String expected = REPORT + file + ": writing: No such file or directory";
        assertTrue(result.output().startsWith(expected), result.output());
        assertEquals(1, result.output().lines().count(), result.output());
    }

    @Test
    void aFailureThatADependentStageReceivesIsNotPrinted() throws Exception {
        ChildJvm.Result result = run(folder.resolve("missing").resolve("model"), "stage");
        assertEquals(6, result.status());
        assertEquals("", result.output());
    }

    @Test
    void aSystemLimitIsPrinted() throws Exception {
        Path file = folder.resolve("model");
        ChildJvm.Result result = new ChildJvm()
                .prepared(List.of("sh", "-c"), "ulimit -f 2000")
                .run(Program.class, file.toString(), "exit");
        assertEquals(3, result.status(), result.output());
        assertTrue(result.output().startsWith(REPORT + file + ": writing: "), result.output());
        try (Stream<Path> files = Files.list(folder)) {
            assertEquals(List.of(), files.toList());
        }
    }

    @Test
    void closingAStoreWaitsForItsCheckpoints() {
        Path file = folder.resolve("model");
        KVStore store = ones();
        Checkpoint checkpoint = store.checkpoint(file);
        // The future's state does not affect the file.
        checkpoint.cancel(true);
        store.close();
        assertTrue(Files.exists(file));
    }

    @Test
    void closingAStoreThrowsAFailureThatNoCallHasReported() {
        Path file = folder.resolve("missing").resolve("model");
        KVStore store = ones();
        store.checkpoint(file);
        store.checkpoint(file);
        KVStoreException failure = Expect.code(IO, store::close);
        assertTrue(failure.getMessage().startsWith(file + ": writing: No such file"),
                failure.getMessage());
        assertEquals(1, failure.getSuppressed().length);
        assertTrue(store.isClosed());
        store.close();
    }

    @Test
    void closingAStoreDoesNotRepeatAFailure() {
        Path file = folder.resolve("missing").resolve("model");
        try (KVStore store = ones()) {
            assertThrows(CompletionException.class, store.checkpoint(file)::join);
            CompletableFuture<String> stage =
                    store.checkpoint(file).handle((nothing, failure) -> "handled");
            assertEquals("handled", stage.join());
        }
    }

    @Test
    void closingAStoreThrowsAFailureThatTheFutureDidNotDeliver() throws Exception {
        KVStore store = KVStore.create().init("w", NDArray.full(Shape.of(NUM_ELEMENTS), 7));
        Path pipe = pipe("cancelled");
        Checkpoint cancelled = store.checkpoint(pipe);
        cancelled.cancel(true);
        breakOff(pipe);
        cancelled.awaitEnd();
        assertThrows(CancellationException.class, cancelled::get);
        assertThrows(CancellationException.class, cancelled::join);
        assertThrows(CancellationException.class, () -> cancelled.getNow(null));
        pipe = pipe("completed");
        Checkpoint completed = store.checkpoint(pipe);
        completed.completeExceptionally(new IllegalStateException("of the program"));
        breakOff(pipe);
        completed.awaitEnd();
        assertThrows(ExecutionException.class, () -> completed.get(1, TimeUnit.SECONDS));
        assertEquals(1, Expect.code(IO, store::close).getSuppressed().length);
    }

    /**
     * The writer waits for a reader of the pipe, so the dependent stages exist before the failure.
     */
    @Test
    void closingAStoreDoesNotRepeatAFailureThatCombinedFuturesReceive() throws Exception {
        Path pipe = pipe("pipe");
        KVStore store = KVStore.create().init("w", NDArray.full(Shape.of(NUM_ELEMENTS), 7));
        Checkpoint checkpoint = store.checkpoint(pipe);
        CompletableFuture<Void> all = CompletableFuture.allOf(checkpoint);
        CompletableFuture<Object> any =
                CompletableFuture.anyOf(checkpoint, new CompletableFuture<>());
        breakOff(pipe);
        assertThrows(CompletionException.class, all::join);
        assertThrows(CompletionException.class, any::join);
        store.close();
    }

    private Path pipe(String name) throws Exception {
        Path pipe = folder.resolve(name);
        assertEquals(0,
                new ProcessBuilder("mkfifo", pipe.toString()).inheritIO().start().waitFor());
        return pipe;
    }

    /**
     * Reads the beginning of the pipe and closes it, so that the writer fails. The writer waits
     * until this reader opens the pipe.
     */
    private static void breakOff(Path pipe) throws IOException {
        try (FileInputStream reader = new FileInputStream(pipe.toFile())) {
            assertTrue(reader.read() >= 0);
        }
    }

    @Test
    void theProgramMayLockACheckpoint() throws Exception {
        KVStore store = ones();
        Checkpoint checkpoint = store.checkpoint(folder.resolve("missing").resolve("model"));
        synchronized (checkpoint) {
            CompletableFuture<Void> closed = CompletableFuture.runAsync(store::close);
            assertThrows(ExecutionException.class, () -> closed.get(60, TimeUnit.SECONDS));
        }
    }

    @Test
    void anInterruptedThreadDoesNotWaitAndStaysInterrupted() {
        KVStore store = ones();
        Checkpoint checkpoint = store.checkpoint(folder.resolve("model"));
        Thread.currentThread().interrupt();
        try {
            store.close();
        } finally {
            assertTrue(Thread.interrupted());
        }
        assertTrue(store.isClosed());
        checkpoint.join();
    }

    @Test
    void aScopeClosesTheOthersWhenAStoreFails() {
        KVStore[] stores = new KVStore[2];
        IllegalStateException thrown =
                assertThrows(IllegalStateException.class, () -> ResourceScope.using(() -> {
                    stores[0] = ones();
                    stores[1] = ones();
                    stores[1].checkpoint(folder.resolve("missing").resolve("model"));
                    throw new IllegalStateException("of the body");
                }));
        assertTrue(stores[0].isClosed() && stores[1].isClosed());
        assertEquals(1, thrown.getSuppressed().length);
        assertSame(IO, ((KVStoreException) thrown.getSuppressed()[0]).code());
    }
}
