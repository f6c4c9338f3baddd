package dev.kvstore;

import java.util.Objects;

/**
 * The name of a device: a type and a number. A context can be created for a device that this
 * machine does not have. Only using that device fails.
 */
public final class Context {
    /** The type of a device. */
    enum Kind {
        CPU(0, "cpu"),
        GPU(1, "gpu");

        private static final Kind[] VALUES = values();

        /** The code of this type in the native library. */
        final int code;

        private final String typeName;

        Kind(int code, String typeName) {
            this.code = code;
            this.typeName = typeName;
        }

        static Kind of(long code) {
            for (Kind kind : VALUES) {
                if (kind.code == code) {
                    return kind;
                }
            }
            throw new AssertionError("device kind " + code);
        }
    }

    private static final Context CPU = new Context(Kind.CPU, 0);

    private final Kind kind;
    private final int deviceId;

    private Context(Kind kind, int deviceId) {
        this.kind = kind;
        this.deviceId = deviceId;
    }

    /**
     * Returns the first CPU context, which is the default of all methods.
     *
     * @return {@code cpu(0)}
     */
    public static Context cpu() {
        return CPU;
    }

    /**
     * Returns a CPU context. Every number is valid, and all CPU contexts are the same device: the
     * host.
     *
     * @param deviceId the number, not negative
     * @return {@code cpu(deviceId)}
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the number is negative
     */
    public static Context cpu(int deviceId) {
        return of("cpu", deviceId);
    }

    /**
     * Returns the first GPU context.
     *
     * @return {@code gpu(0)}
     */
    public static Context gpu() {
        return of("gpu", 0);
    }

    /**
     * Returns a GPU context.
     *
     * @param deviceId the number, not negative
     * @return {@code gpu(deviceId)}
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the number is negative
     */
    public static Context gpu(int deviceId) {
        return of("gpu", deviceId);
    }

    /**
     * Returns the context with the given type and number.
     *
     * @param deviceType {@code cpu} or {@code gpu}
     * @param deviceId the number, not negative
     * @return the context
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the type is unknown or the number
     *     is negative
     */
    public static Context of(String deviceType, int deviceId) {
        Objects.requireNonNull(deviceType, "deviceType");
        if (deviceId < 0) {
            throw KVStoreException.invalidArgument(
                    "device id: expected 0 or more, found " + deviceId);
        }
        for (Kind kind : Kind.VALUES) {
            if (kind.typeName.equals(deviceType)) {
                return new Context(kind, deviceId);
            }
        }
        throw KVStoreException.invalidArgument(
                "unknown device type `" + deviceType + "`: expected `cpu` or `gpu`");
    }

    /**
     * Returns the number of available GPUs; the first is {@code gpu(0)}. If there are none,
     * {@link Doctor#report} gives the reason. This method never throws.
     *
     * @return the number, which is also 0 if the native library cannot be loaded
     */
    public static int numGpus() {
        try {
            NativeLibrary.load();
            return NativeRuntime.numGpus();
        } catch (KVStoreException | LinkageError absent) {
            return 0;
        }
    }

    static Context ofKind(long kind, long deviceId) {
        return kind == Kind.CPU.code && deviceId == 0
                ? CPU
                : new Context(Kind.of(kind), Math.toIntExact(deviceId));
    }

    /** Returns the code of the device type in the native library. */
    int kind() {
        return kind.code;
    }

    /** Returns whether the device is the host. */
    boolean isHost() {
        return kind == Kind.CPU;
    }

    /**
     * Returns the type of the device.
     *
     * @return {@code cpu} or {@code gpu}
     */
    public String deviceType() {
        return kind.typeName;
    }

    /**
     * Returns the number of the device among those of its type.
     *
     * @return the number, not negative
     */
    public int deviceId() {
        return deviceId;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Context that && kind == that.kind && deviceId == that.deviceId;
    }

    @Override
    public int hashCode() {
        return 31 * kind.code + deviceId;
    }

    /**
     * Returns the context as it appears in messages.
     *
     * @return for example {@code cpu(0)}
     */
    @Override
    public String toString() {
        return deviceType() + "(" + deviceId + ")";
    }
}
