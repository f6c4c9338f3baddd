package dev.kvstore;

import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A checkpoint that is being written while the store goes on: a future that is complete when the file is in its
 * place and has reached the disk, or has failed with a {@link KVStoreException}. Then the old file, if there
 * was one, is as it was, unless the message says that the new one is in its place.
 *
 * <p>{@link KVStore#close} waits for the checkpoints of its store, and the virtual machine for all of them, however
 * it ends: by the end of {@code main}, {@code System.exit} or a signal such as SIGTERM, but not by {@code
 * Runtime.halt} or SIGKILL. A failure that the program has not asked for is thrown by {@code close}, or printed to the
 * standard error stream at the end. Cancelling or completing the future does not stop the writing.
 *
 * @see KVStore#checkpoint
 */
public final class Checkpoint extends CompletableFuture<Void> {
    private final Path file;
    private final long numBytes;
    private final NativeHandle handle;
    private final CountDownLatch ended = new CountDownLatch(1);
    /** In the end; nothing is there to ask then. */
    private volatile long written;
    /** Set before {@link #ended} is. */
    private volatile Throwable failure;
    /** The program has the failure, or a stage that gets it. */
    private volatile boolean isReported;

    private Checkpoint(long checkpoint, Path file) {
        this.file = file;
        this.handle = NativeHandle.owned(this, checkpoint, NativeCheckpoint::release);
        this.numBytes = NativeCheckpoint.bytes(checkpoint);
    }

    /** Begins to write a snapshot. */
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
        // First: what follows the future may end the machine, which waits for this.
        ended.countDown();
        if (thrown == null) {
            complete(null);
        } else {
            completeExceptionally(thrown);
        }
    }

    /** Waits until it is written, or has failed, whatever has become of the future. */
    void awaitEnd() throws InterruptedException {
        ended.await();
    }

    boolean hasEnded() {
        return ended.getCount() == 0;
    }

    /** Whether it has ended, and the program knows of a failure. */
    boolean isSettled() {
        return hasEnded() && (failure == null || isReported);
    }

    /** Returns a failure that the program does not know yet, once; otherwise null. */
    synchronized KVStoreException takeFailure() {
        Throwable thrown = failure;
        if (thrown == null || isReported) {
            return null;
        }
        isReported = true;
        KVStoreException.Code code = thrown instanceof KVStoreException exception
                ? exception.code()
                : KVStoreException.Code.INTERNAL;
        String message = thrown instanceof KVStoreException ? thrown.getMessage() : thrown.toString();
        return new KVStoreException(code, message, thrown);
    }

    // ---- where the program learns of a failure ------------------------------------------------

    @Override
    public Void get() throws InterruptedException, ExecutionException {
        try {
            return super.get();
        } finally {
            reported();
        }
    }

    @Override
    public Void get(long timeout, TimeUnit unit)
            throws InterruptedException, ExecutionException, TimeoutException {
        try {
            return super.get(timeout, unit);
        } finally {
            reported();
        }
    }

    @Override
    public Void join() {
        try {
            return super.join();
        } finally {
            reported();
        }
    }

    @Override
    public Void getNow(Void valueIfAbsent) {
        try {
            return super.getNow(valueIfAbsent);
        } finally {
            reported();
        }
    }

    /** Called for every stage that depends on this one, which then has the failure. */
    @Override
    public <U> CompletableFuture<U> newIncompleteFuture() {
        isReported = true;
        return super.newIncompleteFuture();
    }

    private void reported() {
        if (hasEnded()) {
            isReported = true;
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
