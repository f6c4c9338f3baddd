package dev.kvstore;

import java.util.Objects;

/**
 * The name of a device: a type and a number. A context can be made for a device that this machine
 * does not have; using it is what fails.
 */
public final class Context {
    /** What the device is. */
    enum Kind {
        CPU(0, "cpu"),
        GPU(1, "gpu");

        private static final Kind[] VALUES = values();

        /** The number at the native border. */
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
     * Returns the first CPU context, the default everywhere.
     *
     * @return {@code cpu(0)}
     */
    public static Context cpu() {
        return CPU;
    }

    /**
     * Returns a CPU context. Every number is valid, and all of them are the host.
     *
     * @param deviceId the number, not negative
     * @return {@code cpu(deviceId)}
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when the number is negative
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
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when the number is negative
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
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when the type is unknown or the number is
     *     negative
     */
    public static Context of(String deviceType, int deviceId) {
        Objects.requireNonNull(deviceType, "deviceType");
        if (deviceId < 0) {
            throw KVStoreException.invalidArgument(
                    "device id is " + deviceId + ", expected 0 or more");
        }
        for (Kind kind : Kind.VALUES) {
            if (kind.typeName.equals(deviceType)) {
                return new Context(kind, deviceId);
            }
        }
        throw KVStoreException.invalidArgument(
                "device type `" + deviceType + "` is unknown, expected cpu or gpu");
    }

    /**
     * Returns how many GPUs there are, {@code gpu(0)} being the first. {@link Doctor#report} says why there is none.
     *
     * @return their number; 0 also when the native library cannot be loaded. This method never throws
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

    /** The number of the device type at the native border. */
    int kind() {
        return kind.code;
    }

    /** Whether the device is the host. */
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
     * Returns the context as it is written in messages.
     *
     * @return for example {@code cpu(0)}
     */
    @Override
    public String toString() {
        return deviceType() + "(" + deviceId + ")";
    }
}
