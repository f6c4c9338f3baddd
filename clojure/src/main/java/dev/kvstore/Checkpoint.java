package dev.kvstore;

import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;

/**
 * A checkpoint that is being written while the store goes on: a future that is complete when the file is in its
 * place and has reached the disk, or has failed with a {@link KVStoreException}. Then the old file, if there
 * was one, is as it was.
 *
 * <p>The virtual machine waits for it when its programs end, unless they end it by {@code System.exit}.
 * Cancelling or completing the future does not stop the writing.
 *
 * @see KVStore#checkpoint
 */
public final class Checkpoint extends CompletableFuture<Void> {
    private final Path file;
    private final long numBytes;
    private final NativeHandle handle;
    /** In the end; nothing is there to ask then. */
    private volatile long written;

    Checkpoint(long checkpoint, Path file) {
        this.file = file;
        this.handle = NativeHandle.owned(this, checkpoint, NativeCheckpoint::release);
        this.numBytes = NativeCheckpoint.bytes(checkpoint);
        Thread thread = new Thread(this::await, "kvstore-checkpoint");
        thread.setDaemon(false);
        thread.start();
    }

    private void await() {
        Throwable failure = null;
        try {
            NativeCheckpoint.awaitEnd(handle.value("checkpoint"));
        } catch (Throwable thrown) {
            failure = thrown;
        }
        written = numBytesWritten();
        handle.close();
        if (failure == null) {
            complete(null);
        } else {
            completeExceptionally(failure);
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
