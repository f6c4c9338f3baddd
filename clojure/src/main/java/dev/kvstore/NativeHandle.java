package dev.kvstore;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;

/**
 * A handle to a native object. The object is released once: by {@link #close}, by the cleaner after
 * its owner became unreachable, or by the native library for a borrowed handle.
 */
final class NativeHandle extends HandleCleaner.Entry {
    private static final AtomicLong OPEN = new AtomicLong();
    private static final AtomicLong COLLECTED = new AtomicLong();
    private static final AtomicLong RELEASED = new AtomicLong();

    private final long handle;
    private final LongConsumer release;
    private volatile boolean closed;

    private NativeHandle(Object owner, long handle, LongConsumer release) {
        super(owner);
        this.handle = handle;
        this.release = release;
    }

    /**
     * Returns a handle that belongs to {@code owner}. It is released at the latest after the owner
     * has been garbage-collected.
     */
    static NativeHandle owned(Object owner, long handle, LongConsumer release) {
        try {
            NativeHandle owned = new NativeHandle(owner, handle, release);
            owned.register(owner);
            OPEN.incrementAndGet();
            return owned;
        } catch (Throwable failure) {
            // The Java heap is full. If the cleaner releases the handle too, that has no effect,
            // because the native library ignores released handles.
            release.accept(handle);
            throw failure;
        }
    }

    /**
     * Returns a read-only buffer over a pinned value. The value is released when neither this
     * buffer nor a buffer derived from it is reachable. It is not counted as open, because a buffer
     * cannot be closed.
     */
    static ByteBuffer buffer(long pin, long numBytes) {
        try {
            // The returned buffer and those derived from it refer to this one, so it becomes
            // unreachable last.
            ByteBuffer whole = NativeBuffer.view(pin, 0, numBytes);
            HandleCleaner.register(whole, () -> NativeBuffer.release(pin));
            return whole.asReadOnlyBuffer().order(ByteOrder.nativeOrder());
        } catch (Throwable failure) {
            NativeBuffer.release(pin);
            throw failure;
        }
    }

    /**
     * Returns a borrowed handle. The native library releases it at the end of the call that created
     * it.
     */
    static NativeHandle borrowed(long handle) {
        return new NativeHandle(null, handle, borrowed -> {});
    }

    /**
     * Returns the number for a native call. If another thread closes this handle after that, the
     * native library reports that the object is closed.
     */
    long value(Object what) {
        if (closed) {
            throw KVStoreException.closed(what.toString());
        }
        return handle;
    }

    boolean isClosed() {
        return closed;
    }

    void close() {
        closed = true;
        clean();
    }

    /** Returns the number of owned objects that are not released. */
    static long open() {
        return OPEN.get();
    }

    /**
     * Returns the number of objects that the cleaner released because the program had not closed
     * them.
     */
    static long collected() {
        return COLLECTED.get();
    }

    /** Returns whether the cleaner is releasing an object at this moment. */
    static boolean isCleaning() {
        return RELEASED.get() != COLLECTED.get();
    }

    /** Runs {@code action} on the cleaner's thread after the next garbage collection. */
    static void afterCollection(Runnable action) {
        HandleCleaner.register(new Object(), action);
    }

    /**
     * Releases the object. Releasing an object twice is harmless, because the native library
     * ignores released handles.
     */
    @Override
    void run() {
        OPEN.decrementAndGet();
        if (closed) {
            release.accept(handle);
            return;
        }
        COLLECTED.incrementAndGet();
        try {
            closed = true;
            release.accept(handle);
        } finally {
            RELEASED.incrementAndGet();
        }
    }
}
