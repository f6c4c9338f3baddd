package dev.kvstore;

/** What holds native memory until it is closed. */
interface NativeResource extends AutoCloseable {
    /** Whether it was closed. */
    boolean isClosed();

    /** Harmless when repeated. */
    @Override
    void close();
}
