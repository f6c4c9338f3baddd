package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import org.junit.jupiter.api.function.Executable;

/** What several tests expect. */
final class Expect {
    private Expect() {}

    /** The call throws a {@link KVStoreException} with this code, which is returned. */
    static KVStoreException code(KVStoreException.Code code, Executable call) {
        KVStoreException exception = assertThrows(KVStoreException.class, call);
        assertEquals(code, exception.code(), exception.getMessage());
        return exception;
    }

    /** The call throws a {@link NullPointerException} that names this parameter. */
    static void nullParameter(String name, Executable call) {
        NullPointerException exception = assertThrows(NullPointerException.class, call);
        assertEquals(name, exception.getMessage());
    }
}
