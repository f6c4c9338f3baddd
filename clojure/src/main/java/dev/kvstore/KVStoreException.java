package dev.kvstore;

import java.util.Objects;

/**
 * The exception that this library throws. {@link #code()} returns the kind of failure. The message
 * names the key or device, what was expected and what was found.
 *
 * @serial exclude
 */
public final class KVStoreException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** The kinds of failure. */
    public enum Code {
        /** The key was never initialized, or was removed. */
        KEY_NOT_FOUND(0),
        /** The key already exists, or is twice in the list of one {@code init}. */
        KEY_EXISTS(1),
        /** Two lists, or data and a shape, have different lengths. */
        LENGTH_MISMATCH(2),
        /** An array has the wrong shape or data type. */
        SPEC_MISMATCH(3),
        /** An argument is not valid. */
        INVALID_ARGUMENT(4),
        /** This version, store type or backend does not support the operation. */
        UNSUPPORTED(5),
        /** The device does not exist on this machine or cannot be used. */
        DEVICE_UNAVAILABLE(6),
        /**
         * There is not enough memory on the device, or the native memory limit
         * {@link NativeMemory#softCap()} is reached.
         */
        OUT_OF_MEMORY(7),
        /** An updater failed with something other than a Java exception. */
        UPDATER(8),
        /** A file could not be read or written. */
        IO(9),
        /** A file is damaged. */
        CORRUPT(10),
        /** An operation did not finish in time. */
        TIMEOUT(11),
        /** A device or a library failed, or the native library cannot be loaded. */
        BACKEND(12),
        /** The array, store or other object has been closed. */
        CLOSED(13),
        /**
         * An earlier update of the key was interrupted by a failure, so its value is not reliable.
         * Remove the key and initialize it again.
         */
        POISONED(14),
        /** A bug in this library. */
        INTERNAL(15),
        /**
         * A push is late for its round. Pull, compute and push again. {@link #expected()} is the
         * current round, {@link #found()} that of the push.
         */
        LATE_PUSH(16);

        private static final Code[] VALUES = values();

        /** The code of this kind in the native library. */
        final int number;

        Code(int number) {
            this.number = number;
        }

        static Code of(int number) {
            for (Code code : VALUES) {
                if (code.number == number) {
                    return code;
                }
            }
            return INTERNAL;
        }
    }

    private final Code code;
    private final String key;
    private final String expected;
    private final String found;
    private volatile boolean fromUpdater;

    /**
     * Creates an exception without a key.
     *
     * @param code the kind of failure
     * @param message the message
     */
    public KVStoreException(Code code, String message) {
        this(code, message, null);
    }

    /**
     * Creates an exception with a cause and without a key.
     *
     * @param code the kind of failure
     * @param message the message
     * @param cause the cause, or null
     */
    public KVStoreException(Code code, String message, Throwable cause) {
        super(message, cause);
        this.code = Objects.requireNonNull(code, "code");
        this.key = null;
        this.expected = null;
        this.found = null;
    }

    /** Called by the native library. */
    KVStoreException(int code, String message, String key, String expected, String found) {
        super(message);
        this.code = Code.of(code);
        this.key = key;
        this.expected = expected;
        this.found = found;
    }

    /**
     * Returns the kind of failure.
     *
     * @return the code, never null
     */
    public Code code() {
        return code;
    }

    /**
     * Returns the key that caused the failure.
     *
     * @return the key, or null if no key caused the failure
     */
    public String key() {
        return key;
    }

    /**
     * Returns what was expected, for example {@code [2, 3] f32}.
     *
     * @return the expectation as a string, or null if there is none
     */
    public String expected() {
        return expected;
    }

    /**
     * Returns what was found instead of {@link #expected()}.
     *
     * @return what was found as a string, or null if there is none
     */
    public String found() {
        return found;
    }

    /**
     * Returns whether an {@link Updater} threw this exception.
     *
     * @return false if the library itself reports a failure
     */
    public boolean isFromUpdater() {
        return fromUpdater;
    }

    /** Marks an exception that an updater threw. */
    void markFromUpdater() {
        fromUpdater = true;
    }

    static KVStoreException invalidArgument(String message) {
        return new KVStoreException(Code.INVALID_ARGUMENT, message);
    }

    static KVStoreException lengthMismatch(String what, long expected, long found) {
        String text = what + ": expected " + expected + ", found " + found;
        return new KVStoreException(Code.LENGTH_MISMATCH.number, text, null,
                Long.toString(expected), Long.toString(found));
    }

    static KVStoreException closed(String what) {
        return new KVStoreException(Code.CLOSED, what + " is closed");
    }
}
