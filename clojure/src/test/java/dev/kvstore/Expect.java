package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
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

    /** The lists hold the same objects; arrays are also equal when their elements are. */
    static void theSame(List<?> expected, List<?> found) {
        assertEquals(expected.size(), found.size());
        for (int i = 0; i < expected.size(); i++) {
            assertSame(expected.get(i), found.get(i));
        }
    }

    /** The call throws a {@link NullPointerException} that names this parameter. */
    static void nullParameter(String name, Executable call) {
        NullPointerException exception = assertThrows(NullPointerException.class, call);
        assertEquals(name, exception.getMessage());
    }
}
