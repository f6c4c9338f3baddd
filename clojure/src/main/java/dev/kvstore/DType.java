package dev.kvstore;

import java.util.Arrays;
import java.util.Objects;
import java.util.stream.Collectors;

/** The type of the elements of an {@link NDArray}. */
public enum DType {
    /** IEEE 754 single precision. This is the default. */
    FLOAT32(0, 4, "f32"),
    /** IEEE 754 double precision. */
    FLOAT64(1, 8, "f64"),
    /** IEEE 754 half precision. */
    FLOAT16(2, 2, "f16"),
    /** Unsigned bytes, 0 to 255. */
    UINT8(3, 1, "u8"),
    /** Signed 32-bit integers. */
    INT32(4, 4, "i32"),
    /** Signed bytes, -128 to 127. */
    INT8(5, 1, "i8"),
    /** Signed 64-bit integers. */
    INT64(6, 8, "i64"),
    /** Brain floating point: the upper half of a single precision number. */
    BFLOAT16(12, 2, "bf16");

    private static final DType[] VALUES = values();

    private final int code;
    private final int numBytes;
    private final String shortName;
    private final String typeName;

    DType(int code, int numBytes, String shortName) {
        this.code = code;
        this.numBytes = numBytes;
        this.shortName = shortName;
        // Not toLowerCase(): its result depends on the locale.
        this.typeName = name().toLowerCase(java.util.Locale.ROOT);
    }

    /**
     * Returns the code of this type in files and in the native library.
     *
     * @return the code
     */
    public int code() {
        return code;
    }

    /**
     * Returns the size of one element.
     *
     * @return the size in bytes
     */
    public int numBytes() {
        return numBytes;
    }

    /**
     * Returns the short name, for example {@code f32}, which error messages contain.
     *
     * @return the short name
     */
    public String shortName() {
        return shortName;
    }

    /**
     * Returns whether the elements are floating-point numbers.
     *
     * @return {@code false} for integers
     */
    public boolean isFloatingPoint() {
        // All names of floating-point types contain an f, and no others do.
        return shortName.contains("f");
    }

    /**
     * Returns the size of {@code size} elements in bytes, or {@code Long.MAX_VALUE} on overflow.
     */
    long inBytes(long size) {
        return Math.multiplyHigh(size, numBytes) == 0 && size * numBytes >= 0
                ? size * numBytes
                : Long.MAX_VALUE;
    }

    /**
     * Returns the name in lower case, for example {@code float32}.
     *
     * @return the name that {@link #fromName} accepts
     */
    @Override
    public String toString() {
        return typeName;
    }

    /**
     * Returns the type with the given code.
     *
     * @param code a number that {@link #code()} returned
     * @return the type
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if no type has this code
     */
    public static DType fromCode(int code) {
        for (DType dtype : VALUES) {
            if (dtype.code == code) {
                return dtype;
            }
        }
        throw KVStoreException.invalidArgument("unknown dtype code " + code);
    }

    /**
     * Returns the type with the given name.
     *
     * @param name a name such as {@code float32}, in lower case
     * @return the type
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if no type has this name
     */
    public static DType fromName(String name) {
        Objects.requireNonNull(name, "name");
        for (DType dtype : VALUES) {
            if (dtype.typeName.equals(name)) {
                return dtype;
            }
        }
        throw KVStoreException.invalidArgument(
                "unknown dtype `" + name + "`: expected one of "
                        + Arrays.stream(VALUES)
                                .map(DType::toString)
                                .collect(Collectors.joining(", ")));
    }
}
