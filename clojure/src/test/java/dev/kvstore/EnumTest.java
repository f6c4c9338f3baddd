package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.ToIntFunction;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/**
 * Tests that the enumerations of Java and of the native library have the same constants, codes and
 * dtype properties.
 */
class EnumTest {
    private final Map<String, Integer> found = new TreeMap<>();

    private <E extends Enum<E>> void add(String name, E[] constants, ToIntFunction<E> code) {
        for (E constant : constants) {
            found.put(name + "." + constant.name(), code.applyAsInt(constant));
        }
    }

    /**
     * Returns the codes of the native library by Java names: {@code ErrorCode.KeyNotFound} becomes
     * {@code ErrorCode.KEY_NOT_FOUND}.
     */
    private static Map<String, Integer> ofTheNativeLibrary() {
        NativeLibrary.load();
        Object[] codes = NativeRuntime.codes();
        String[] names = (String[]) codes[0];
        int[] numbers = (int[]) codes[1];
        Map<String, Integer> expected = new TreeMap<>();
        for (int i = 0; i < names.length; i++) {
            String[] parts = names[i].split("\\.");
            String constant =
                    parts[1].replaceAll("(?<=[a-z])(?=[A-Z])", "_").toUpperCase(Locale.ROOT);
            expected.put(parts[0] + "." + constant, numbers[i]);
        }
        return expected;
    }

    @Test
    @Tag("host") // The tests of GPUs exchange the numbers of devices.
    void codesEqualThoseOfTheNativeLibrary() {
        add("BinaryOp", BinaryOp.values(), op -> op.code);
        add("UnaryOp", UnaryOp.values(), op -> op.code);
        add("Reduction", Reduction.values(), reduction -> reduction.code);
        add("DType", DType.values(), DType::code);
        for (DType dtype : DType.values()) {
            String shortName = dtype.shortName().toUpperCase(Locale.ROOT);
            found.put("DTypeCode." + shortName, dtype.code());
            found.put("DTypeSize." + shortName, dtype.numBytes());
            found.put("DTypeIsFloatingPoint." + shortName, dtype.isFloatingPoint() ? 1 : 0);
        }
        add("ErrorCode", KVStoreException.Code.values(), code -> code.number);
        add("OnExisting", OnExisting.values(), onExisting -> onExisting.code);
        add("BufferKind", HostBuffer.Kind.values(), kind -> kind.code);
        add("DeviceKind", Context.Kind.values(), kind -> kind.code);
        add("DistributionKind", NativeRandom.Distribution.values(),
                distribution -> distribution.code);
        add("ScheduleKind", LrScheduler.Kind.values(), kind -> kind.code);
        add("Warmup", LrScheduler.Warmup.values(), mode -> mode.code);
        assertEquals(ofTheNativeLibrary(), found);
    }

    @Test
    void constantsAreFoundByCode() {
        for (DType dtype : DType.values()) {
            assertEquals(dtype, DType.fromCode(dtype.code()));
            assertEquals(dtype, DType.fromName(dtype.toString()));
        }
        for (KVStoreException.Code code : KVStoreException.Code.values()) {
            assertEquals(code, KVStoreException.Code.of(code.number));
        }
        for (Context.Kind kind : Context.Kind.values()) {
            assertEquals(kind, Context.Kind.of(kind.code));
        }
    }
}
