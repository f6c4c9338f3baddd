package dev.kvstore;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;

/**
 * One native object, released once: by {@link #close}, or by the cleaner when its owner was
 * forgotten, or by the end of the native call that lent it.
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

    /** A handle that belongs to {@code owner} and is released no later than the owner's collection. */
    static NativeHandle owned(Object owner, long handle, LongConsumer release) {
        try {
            NativeHandle owned = new NativeHandle(owner, handle, release);
            owned.register(owner);
            OPEN.incrementAndGet();
            return owned;
        } catch (Throwable failure) {
            // A full Java heap. Were the cleaner to come by as well, the number would be out of date.
            release.accept(handle);
            throw failure;
        }
    }

    /**
     * The memory of a pinned value, which is released when no buffer on it can be reached any more. It is not
     * counted: nobody can close a buffer.
     */
    static ByteBuffer buffer(long pin, long numBytes) {
        try {
            // What is handed out refers to this one, so it is collected last.
            ByteBuffer whole = NativeBuffer.view(pin, 0, numBytes);
            HandleCleaner.register(whole, () -> NativeBuffer.release(pin));
            return whole.asReadOnlyBuffer().order(ByteOrder.nativeOrder());
        } catch (Throwable failure) {
            NativeBuffer.release(pin);
            throw failure;
        }
    }

    /** A handle that the native library releases itself at the end of the call that lent it. */
    static NativeHandle lent(long handle) {
        return new NativeHandle(null, handle, lent -> {});
    }

    /**
     * The number for a native call. Another thread may close this handle right afterwards; the native
     * library then reports a closed object itself.
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

    /** How many objects have an owner and are not released. */
    static long open() {
        return OPEN.get();
    }

    /** How many objects the cleaner had to release because nobody closed them. */
    static long collected() {
        return COLLECTED.get();
    }

    /** Whether the cleaner is releasing an object at this moment. */
    static boolean isCleaning() {
        return RELEASED.get() != COLLECTED.get();
    }

    /** Runs {@code action} on the cleaner's thread once a collection has found what it may clean. */
    static void afterCollection(Runnable action) {
        HandleCleaner.register(new Object(), action);
    }

    /** Releasing again is harmless: the native library ignores a handle that it has released. */
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
