package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.function.Executable;

/** Assertions of several tests. */
final class Expect {
    private Expect() {}

    /** Asserts that the call throws a {@link KVStoreException} with this code, and returns it. */
    static KVStoreException code(KVStoreException.Code code, Executable call) {
        KVStoreException exception = assertThrows(KVStoreException.class, call);
        assertEquals(code, exception.code(), exception.getMessage());
        return exception;
    }

    /** Asserts that the lists contain the same objects. Arrays are compared by their elements. */
    static void theSame(List<?> expected, List<?> found) {
        assertEquals(expected.size(), found.size());
        for (int i = 0; i < expected.size(); i++) {
            assertSame(expected.get(i), found.get(i));
        }
    }

    /** Asserts that the call throws a {@link NullPointerException} that names this parameter. */
    static void nullParameter(String name, Executable call) {
        NullPointerException exception = assertThrows(NullPointerException.class, call);
        assertEquals(name, exception.getMessage());
    }
}
