package dev.kvstore;

import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A checkpoint that is being written while the store goes on: a future that is complete when the file is in its
 * place and has reached the disk, or has failed with a {@link KVStoreException}. Then the old file, if there
 * was one, is unchanged, unless the message says that the new file is in place.
 *
 * <p>{@link KVStore#close} waits for the checkpoints of its store. The JVM waits for all
 * checkpoints when it ends by the end of {@code main}, {@code System.exit} or a signal such as
 * SIGTERM, but not by {@code Runtime.halt} or SIGKILL. {@code close} throws a failure that the
 * program has not seen; at the end of the JVM it is printed to standard error. Cancelling or
 * completing the future does not stop the writing.
 *
 * <p>The program has seen a failure that a method of the future has thrown, or that a dependent
 * stage has received. {@link CompletableFuture#allOf} and other combinations of futures count as
 * such stages if they are created before the checkpoint fails.
 *
 * @see KVStore#checkpoint
 */
public final class Checkpoint extends CompletableFuture<Void> {
    private final Path file;
    private final long numBytes;
    private final NativeHandle handle;
    private final CountDownLatch ended = new CountDownLatch(1);
    /** Set at the end, because the native checkpoint is then released. */
    private volatile long written;
    /** Set before {@link #ended}. */
    private volatile Throwable failure;
    /** The program has completed or cancelled the future itself. Set before {@link #ended}. */
    private volatile boolean isReplaced;
    /** A stage depends on this future, and receives its failure. */
    private volatile boolean hasStage;
    /** A method of the future, {@code close} or the shutdown hook has delivered the failure. */
    private final AtomicBoolean isReported = new AtomicBoolean();

    private Checkpoint(long checkpoint, Path file) {
        this.file = file;
        this.handle = NativeHandle.owned(this, checkpoint, NativeCheckpoint::release);
        this.numBytes = NativeCheckpoint.bytes(checkpoint);
    }

    /** Starts writing a snapshot. */
    static Checkpoint begin(long snapshot, String name, Path file) {
        PendingCheckpoints ofProcess = PendingCheckpoints.ofProcess();
        Checkpoint checkpoint = new Checkpoint(NativeCheckpoint.begin(snapshot, name), file);
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
        handle.close();
        failure = thrown;
        isReplaced = isDone();
        if (getNumberOfDependents() > 0) {
            hasStage = true;
        }
        // Before completing: a dependent stage may call System.exit, whose hook waits for this
        // latch.
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

    /** Returns whether it has ended and no failure is unreported. */
    boolean isSettled() {
        return hasEnded() && (failure == null || isKnown());
    }

    private boolean isKnown() {
        return isReported.get() || hasStage && !isReplaced;
    }

    /** Returns a failure that the program has not seen, once; otherwise null. */
    KVStoreException takeFailure() {
        Throwable thrown = failure;
        if (thrown == null || isKnown() || !isReported.compareAndSet(false, true)) {
            return null;
        }
        KVStoreException.Code code = thrown instanceof KVStoreException exception
                ? exception.code()
                : KVStoreException.Code.INTERNAL;
        String message = thrown instanceof KVStoreException ? thrown.getMessage() : thrown.toString();
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

    /** Called when a dependent stage is created, which receives the failure. */
    @Override
    public <U> CompletableFuture<U> newIncompleteFuture() {
        hasStage = true;
        return super.newIncompleteFuture();
    }

    /** Other exceptions, such as that of a cancelled future, say nothing about the failure. */
    private void report(Exception delivered) {
        if (failure != null && delivered.getCause() == failure) {
            isReported.set(true);
        }
    }

    /**
     * Returns where it is written to.
     *
     * @return the file
     */
    public Path file() {
        return file;
    }

    /**
     * Returns how long the file will be.
     *
     * @return its bytes
     */
    public long numBytes() {
        return numBytes;
    }

    /**
     * Returns how many bytes have been written. When it is all of them, the disk may still have to be waited for.
     *
     * @return from 0 to {@link #numBytes}
     */
    public long numBytesWritten() {
        try {
            return NativeCheckpoint.bytesWritten(handle.value("checkpoint"));
        } catch (KVStoreException closed) {
            return written;
        }
    }

    /**
     * Returns what is written, and how far it has come.
     *
     * @return for example {@code Checkpoint[model.checkpoint, 4096 of 65536 bytes]}
     */
    @Override
    public String toString() {
        return "Checkpoint[" + file + ", " + numBytesWritten() + " of " + numBytes + " bytes]";
    }
}
