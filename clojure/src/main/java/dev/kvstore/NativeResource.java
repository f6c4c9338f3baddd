package dev.kvstore;

/** What holds native memory until it is closed. */
interface NativeResource extends AutoCloseable {
    /**
     * Returns whether it was closed.
     *
     * @return true after {@link #close}
     */
    boolean isClosed();

    /** Lets go of the memory. Harmless when repeated; any other use then throws {@code CLOSED}. */
    @Override
    void close();
}
