package dev.kvstore;

import java.util.Objects;

/**
 * The one exception of this library. {@link #code()} says what kind of failure it is; the message
 * names the key, the device, what was expected and what was found.
 *
 * @serial exclude
 */
public final class KVStoreException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** The kinds of failure. */
    public enum Code {
        /** A key that the store does not hold. */
        KEY_NOT_FOUND(0),
        /** A key that the store already holds, or that one {@code init} names twice. */
        KEY_EXISTS(1),
        /** Two lists, or data and a shape, whose lengths differ. */
        LENGTH_MISMATCH(2),
        /** A shape or data type other than the expected one. */
        SPEC_MISMATCH(3),
        /** An argument that cannot be right whatever the state of the store. */
        INVALID_ARGUMENT(4),
        /** Something that this version, store kind or backend cannot do. */
        UNSUPPORTED(5),
        /** A device that this machine does not have. */
        DEVICE_UNAVAILABLE(6),
        /** Not enough memory on the device, or more native memory than {@link NativeMemory#softCap()}. */
        OUT_OF_MEMORY(7),
        /** An updater failed with something other than a Java exception. */
        UPDATER(8),
        /** A file that could not be read or written. */
        IO(9),
        /** A file whose content is damaged. */
        CORRUPT(10),
        /** A wait that reached its deadline. */
        TIMEOUT(11),
        /** A device or a library that failed, the native library included when it cannot be loaded. */
        BACKEND(12),
        /** Use of an array or a store after its {@code close}. */
        CLOSED(13),
        /** A key whose last change broke off; remove it and put it in anew. */
        POISONED(14),
        /** A mistake in this library. */
        INTERNAL(15);

        private static final Code[] VALUES = values();

        /** The number at the native border. */
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
     * Creates an exception that concerns no key.
     *
     * @param code the kind of failure
     * @param message what happened, with the values in it
     */
    public KVStoreException(Code code, String message) {
        this(code, message, null);
    }

    /**
     * Creates an exception that concerns no key and has a cause.
     *
     * @param code the kind of failure
     * @param message what happened, with the values in it
     * @param cause what led to it, or null
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
     * Returns the key that the failure concerns.
     *
     * @return the key, or null when the failure concerns none
     */
    public String key() {
        return key;
    }

    /**
     * Returns what was expected, for example {@code [2, 3] f32}.
     *
     * @return the expectation in words, or null when there is none
     */
    public String expected() {
        return expected;
    }

    /**
     * Returns what was found instead of {@link #expected()}.
     *
     * @return the finding in words, or null when there is none
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
        return new KVStoreException(
                Code.LENGTH_MISMATCH.number, text, null, Long.toString(expected), Long.toString(found));
    }

    static KVStoreException closed(String what) {
        return new KVStoreException(Code.CLOSED, what + " is closed");
    }
}
