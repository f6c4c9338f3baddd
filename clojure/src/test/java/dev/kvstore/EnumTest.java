package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Arrays;
import java.util.Locale;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The lists that exist in both languages are the same, in the same order. */
class EnumTest {
    @BeforeAll
    static void load() {
        NativeLibrary.load();
    }

    @Test
    void errorCodes() {
        // KeyNotFound there is KEY_NOT_FOUND here.
        String[] names = Arrays.stream(NativeRuntime.errorCodes())
                .map(name -> name.replaceAll("(?<=[a-z])(?=[A-Z])", "_").toUpperCase(Locale.ROOT))
                .toArray(String[]::new);
        assertArrayEquals(namesOf(KVStoreException.Code.values()), names);
    }

    @Test
    void operations() {
        assertArrayEquals(namesOf(BinaryOp.values()), upperCase(NativeRuntime.binaryOps()));
        assertArrayEquals(namesOf(UnaryOp.values()), upperCase(NativeRuntime.unaryOps()));
        assertArrayEquals(namesOf(Reduction.values()), upperCase(NativeRuntime.reductions()));
    }

    @Test
    void dtypes() {
        String[] names = NativeRuntime.dtypeNames();
        int[] codes = NativeRuntime.dtypeCodes();
        assertEquals(DType.values().length, names.length);
        for (int i = 0; i < names.length; i++) {
            assertEquals(codes[i], DType.fromName(names[i]).code());
            assertEquals(DType.fromName(names[i]), DType.fromCode(codes[i]));
        }
    }

    private static String[] namesOf(Enum<?>[] constants) {
        return Arrays.stream(constants).map(Enum::name).toArray(String[]::new);
    }

    private static String[] upperCase(String[] names) {
        return Arrays.stream(names)
                .map(name -> name.toUpperCase(Locale.ROOT))
                .toArray(String[]::new);
    }
}
