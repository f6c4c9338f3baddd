package dev.kvstore;

/** An object that owns native memory until it is closed. */
interface NativeResource extends AutoCloseable {
    /**
     * Returns whether this object was closed.
     *
     * @return true after {@link #close}
     */
    boolean isClosed();

    /**
     * Releases the memory. Closing a closed object does nothing; other methods then throw
     * {@code CLOSED}.
     */
    @Override
    void close();
}
