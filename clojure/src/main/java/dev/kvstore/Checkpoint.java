package dev.kvstore;

import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.LongSupplier;

/**
 * A checkpoint that is written in the background, while the program continues to use the store.
 * This future completes when the file is in place and has reached the disk. If writing fails, the
 * future completes with a {@link KVStoreException}, and an existing file at that path is unchanged,
 * unless the message says that the new file is in place.
 *
 * <p>{@link KVStore#close} waits for the checkpoints of its store and throws a failure that the
 * program has not seen. The JVM waits for all checkpoints at exit and prints such a failure to
 * standard error. It waits if it exits at the end of {@code main}, by {@code System.exit} or by a
 * signal such as SIGTERM, but not by {@code Runtime.halt} or SIGKILL. Cancelling or completing the
 * future does not stop the writing.
 *
 * <p>The program has seen a failure if a method of the future has thrown it or a dependent stage
 * has received it. {@link CompletableFuture#allOf} and other combinations of futures count as
 * dependent stages if they are created before the checkpoint fails.
 *
 * @see KVStore#checkpoint
 */
public final class Checkpoint extends CompletableFuture<Void> {
    private final Path file;
    private final NativeHandle handle;
    private final CountDownLatch ended = new CountDownLatch(1);
    /**
     * The bytes written. Set when the writing ends, because the native checkpoint is then released.
     */
    private volatile long written;
    /** The length of the file. Set like {@link #written}. */
    private volatile long length;
    /** Set before {@link #ended}. */
    private volatile Throwable failure;
    /**
     * Whether the program has completed or cancelled the future itself. Set before {@link #ended}.
     */
    private volatile boolean isReplaced;
    /** Whether a dependent stage receives the failure. */
    private volatile boolean hasStage;
    /**
     * Whether a method of the future, {@code close} or the shutdown hook has delivered the failure.
     */
    private final AtomicBoolean isReported = new AtomicBoolean();

    private Checkpoint(long checkpoint, Path file) {
        this.file = file;
        this.handle = NativeHandle.owned(this, checkpoint, NativeCheckpoint::release);
    }

    /** Starts a thread that writes the snapshot. */
    static Checkpoint begin(long snapshot, String name, Path file) {
        return begin(file, () -> NativeCheckpoint.begin(snapshot, name));
    }

    /** Starts a thread that writes a delta of the snapshot {@code base}. */
    static Checkpoint beginSince(long snapshot, String name, Path file, long base) {
        return begin(file, () -> NativeCheckpoint.beginSince(snapshot, name, base));
    }

    private static Checkpoint begin(Path file, LongSupplier start) {
        PendingCheckpoints ofProcess = PendingCheckpoints.ofProcess();
        Checkpoint checkpoint = new Checkpoint(start.getAsLong(), file);
        Thread thread = new Thread(checkpoint::await, "kvstore-checkpoint");
        thread.setDaemon(false);
        thread.start();
        ofProcess.add(checkpoint);
        return checkpoint;
    }

    private void await() {
        Throwable thrown = null;
        try {
            NativeCheckpoint.awaitEnd(handle.value("checkpoint"));
        } catch (Throwable caught) {
            thrown = caught;
        }
        written = numBytesWritten();
        length = numBytes();
        handle.close();
        failure = thrown;
        isReplaced = isDone();
        if (getNumberOfDependents() > 0) {
            hasStage = true;
        }
        // Count down before completing the future: a dependent stage may call System.exit, whose
        // hook waits for this latch.
        ended.countDown();
        if (thrown == null) {
            complete(null);
        } else {
            completeExceptionally(thrown);
        }
    }

    /** Waits until the writing has ended, even if the future was completed or cancelled. */
    void awaitEnd() throws InterruptedException {
        ended.await();
    }

    boolean hasEnded() {
        return ended.getCount() == 0;
    }

    /** Returns whether the writing has ended and the program has seen its failure, if any. */
    boolean isSettled() {
        return hasEnded() && (failure == null || isKnown());
    }

    private boolean isKnown() {
        return isReported.get() || hasStage && !isReplaced;
    }

    /** Returns the failure if the program has not seen it, and marks it as seen; otherwise null. */
    KVStoreException takeFailure() {
        Throwable thrown = failure;
        if (thrown == null || isKnown() || !isReported.compareAndSet(false, true)) {
            return null;
        }
        KVStoreException.Code code = thrown instanceof KVStoreException exception
                ? exception.code()
                : KVStoreException.Code.INTERNAL;
        String message =
                thrown instanceof KVStoreException ? thrown.getMessage() : thrown.toString();
        return new KVStoreException(code, message, thrown);
    }

    // ---- methods that deliver a failure to the program ----

    @Override
    public Void get() throws InterruptedException, ExecutionException {
        try {
            return super.get();
        } catch (ExecutionException delivered) {
            report(delivered);
            throw delivered;
        }
    }

    @Override
    public Void get(long timeout, TimeUnit unit)
            throws InterruptedException, ExecutionException, TimeoutException {
        try {
            return super.get(timeout, unit);
        } catch (ExecutionException delivered) {
            report(delivered);
            throw delivered;
        }
    }

    @Override
    public Void join() {
        try {
            return super.join();
        } catch (CompletionException delivered) {
            report(delivered);
            throw delivered;
        }
    }

    @Override
    public Void getNow(Void valueIfAbsent) {
        try {
            return super.getNow(valueIfAbsent);
        } catch (CompletionException delivered) {
            report(delivered);
            throw delivered;
        }
    }

    /** Called whenever a dependent stage is created. That stage receives the failure. */
    @Override
    public <U> CompletableFuture<U> newIncompleteFuture() {
        hasStage = true;
        return super.newIncompleteFuture();
    }

    /**
     * Marks the failure as seen if {@code delivered} contains it. The exception of a cancelled
     * future, for example, does not.
     */
    private void report(Exception delivered) {
        if (failure != null && delivered.getCause() == failure) {
            isReported.set(true);
        }
    }

    /**
     * Returns the path of the file.
     *
     * @return the path
     */
    public Path file() {
        return file;
    }

    /**
     * Returns the length of the complete file. For a delta, returns 0 until its changes are known.
     *
     * @return the length in bytes
     */
    public long numBytes() {
        try {
            return NativeCheckpoint.bytes(handle.value("checkpoint"));
        } catch (KVStoreException closed) {
            return length;
        }
    }

    /**
     * Returns the number of bytes written so far. Even when all bytes are written, the future may
     * not be complete, because the data may not have reached the disk.
     *
     * @return a number from 0 to {@link #numBytes}
     */
    public long numBytesWritten() {
        try {
            return NativeCheckpoint.bytesWritten(handle.value("checkpoint"));
        } catch (KVStoreException closed) {
            return written;
        }
    }

    /**
     * Returns the file name and the progress.
     *
     * @return for example {@code Checkpoint[model.checkpoint, 4096 of 65536 bytes]}
     */
    @Override
    public String toString() {
        return "Checkpoint[" + file + ", " + numBytesWritten() + " of " + numBytes() + " bytes]";
    }
}
