package dev.kvstore;

import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;

/**
 * The native memory of arrays and stores, which the garbage collector does not see.
 *
 * <p>An array that is dropped without {@code close} keeps its native memory until the collector finds
 * it, and the collector has no reason to look as long as the Java heap has room. Therefore the
 * methods that make arrays ask for a collection when the native memory in use has doubled since the
 * last one (but not below 256 MiB), and when it would exceed the soft cap. Only when that does not
 * help they throw {@code OUT_OF_MEMORY}: nothing in the library takes memory beyond the cap. (A push that
 * may not run twice, with an updater or with a pull after it, asks for a collection before it runs and not
 * again.) Programs that close their arrays never notice any of this.
 *
 * <p>Collections run on the daemon thread {@code kvstore-worker}. Callers hold no lock while they
 * wait, and wait for one minute at most, so virtual threads that share few carriers cannot block
 * each other.
 *
 * <p>Where a JVM does not collect on request ({@code -XX:+DisableExplicitGC}, Epsilon), only closing helps.
 *
 * <p>The soft cap is one of the host's memory. A GPU has the limit of its own memory; there, too, forgotten
 * arrays are collected before it is {@code OUT_OF_MEMORY}.
 *
 * <p>The soft cap is the system property {@code dev.kvstore.softCap} (a number of bytes, also with the
 * suffix k, m or g), otherwise 80 percent of the memory of the machine or container. Memory kept for
 * reuse is included, and is freed before an allocation fails.
 */
public final class NativeMemory {
    private static final String PROPERTY = "dev.kvstore.softCap";

    /** As much as the native library keeps for reuse: a loop that drops its arrays then recycles them. */
    private static final long LEAST_THRESHOLD = 256L << 20;

    /** What an array costs besides its elements, in the native library and for the cleaner, roughly. */
    private static final long BYTES_PER_HANDLE = 1 << 10;

    private static final long LONGEST_CLEANING_NANOS = TimeUnit.SECONDS.toNanos(2);

    /** The longest wait for a collection. Collecting a large heap takes many seconds. */
    private static final long LONGEST_COLLECTION_NANOS = TimeUnit.SECONDS.toNanos(60);

    private static final int QUIET_PAUSES = 3;
    private static final int ATTEMPTS = 3;
    private static final boolean CONFIGURED = System.getProperty(PROPERTY) != null;

    /** Zero until the first use. */
    private static final AtomicLong SOFT_CAP = new AtomicLong();

    /** The collection that has not started yet, or null. */
    private static final AtomicReference<CompletableFuture<Void>> REQUESTED = new AtomicReference<>();

    /** The collection that is running, or null. */
    private static final AtomicReference<CompletableFuture<Void>> RUNNING = new AtomicReference<>();

    /** The used bytes at which the next collection is due. Only the platform thread writes it. */
    private static volatile long threshold = LEAST_THRESHOLD;

    private NativeMemory() {}

    /** A native call that makes arrays and returns their descriptions. */
    @FunctionalInterface
    interface Allocation {
        long[] run();
    }

    /**
     * Returns the native memory that arrays and stores use on all devices.
     *
     * @return the size in bytes
     * @throws KVStoreException with {@code BACKEND} when the native library cannot be loaded
     */
    public static long liveBytes() {
        NativeLibrary.load();
        return NativeRuntime.liveBytes();
    }

    /**
     * Returns the native memory that is kept for reuse.
     *
     * @return the size in bytes, not contained in {@link #liveBytes}
     * @throws KVStoreException with {@code BACKEND} when the native library cannot be loaded
     */
    public static long pooledBytes() {
        NativeLibrary.load();
        return NativeRuntime.pooledBytes();
    }

    /**
     * Returns the native memory of each device: the host, then every GPU.
     *
     * @return an object for each device
     * @throws KVStoreException with {@code BACKEND} when the native library cannot be loaded
     */
    public static List<DeviceMemory> devices() {
        NativeLibrary.load();
        return DeviceMemory.of(NativeRuntime.deviceMemory());
    }

    /**
     * Returns the native memory of a device.
     *
     * @param context the device; every CPU context is the host
     * @return what is in use there
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} when this machine has no such device, with {@code
     *     BACKEND} when the native library cannot be loaded
     */
    public static DeviceMemory device(Context context) {
        Objects.requireNonNull(context, "context");
        Context device = context.isHost() ? Context.cpu() : context;
        for (DeviceMemory memory : devices()) {
            if (memory.context().equals(device)) {
                return memory;
            }
        }
        throw new KVStoreException(
                KVStoreException.Code.DEVICE_UNAVAILABLE,
                "device " + context + " is not available: there are " + Context.numGpus() + " of them");
    }

    /**
     * Gives the memory that is kept for reuse back to the operating system.
     *
     * @throws KVStoreException with {@code BACKEND} when the native library cannot be loaded
     */
    public static void trim() {
        NativeLibrary.load();
        NativeRuntime.trim();
    }

    /**
     * Returns how many arrays, stores and states of optimizers there are that are neither closed nor
     * collected.
     *
     * @return their number
     */
    public static long open() {
        return NativeHandle.open();
    }

    /**
     * Returns how many arrays and stores were collected that nobody had closed.
     *
     * @return the number since the start of the process
     */
    public static long collectedUnclosed() {
        return NativeHandle.collected();
    }

    /**
     * Returns the live bytes of the host's memory that no new array may exceed.
     *
     * @return the size in bytes
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when the system property is not a size
     */
    public static long softCap() {
        if (SOFT_CAP.get() == 0 && SOFT_CAP.compareAndSet(0, initialSoftCap())) {
            setNativeLimit();
        }
        return SOFT_CAP.get();
    }

    /**
     * Sets the live bytes of the host's memory that no new array may exceed. Arrays that exist are not touched.
     *
     * @param numBytes the size in bytes, greater than 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when it is not
     */
    public static void setSoftCap(long numBytes) {
        if (numBytes <= 0) {
            throw KVStoreException.invalidArgument(
                    "soft cap is " + numBytes + " bytes, expected more than 0");
        }
        SOFT_CAP.set(numBytes);
        setNativeLimit();
    }

    /** Sets the native limit again if another thread has changed the cap meanwhile. */
    private static void setNativeLimit() {
        NativeLibrary.load();
        long cap;
        do {
            cap = SOFT_CAP.get();
            NativeRuntime.setMemoryLimit(cap);
        } while (SOFT_CAP.get() != cap);
    }

    /**
     * Shows these numbers to monitoring tools as the platform MXBean {@code dev.kvstore:type=NativeMemory},
     * a {@link NativeMemoryMXBean}. Harmless when repeated. It is not done unasked: the first bean of a
     * process costs some hundred milliseconds.
     */
    public static void registerMXBean() {
        NativeMemoryMonitor.register();
    }

    /** Runs a call that makes arrays of {@code numBytes} on the host, collecting before and after where needed. */
    static long[] allocate(long numBytes, Allocation allocation) {
        return allocate(Context.cpu(), numBytes, allocation);
    }

    /** Runs a call that makes arrays of {@code numBytes} on a device. */
    static long[] allocate(Context context, long numBytes, Allocation allocation) {
        NativeLibrary.load();
        makeRoom(context, numBytes);
        return attempt(allocation);
    }

    /** Collects where it is due before a change: what somebody holds a buffer on is written to other memory. */
    static void beforeChange() {
        if (isDue(NativeRuntime.liveBytes(), 0)) {
            collectIfDue(0);
        }
    }

    /**
     * Runs a call that may allocate, and again after a collection when there was no memory. Not for
     * calls that may have changed something by then.
     */
    static void retry(Runnable call) {
        watch(0);
        attempt(() -> {
            call.run();
            return null;
        });
    }

    /**
     * Runs a call that may allocate about {@code numBytes} and must not run twice: where that would exceed the
     * cap, it collects before.
     */
    static void runOnce(long numBytes, Runnable call) {
        if (watch(numBytes) && exceeds(numBytes, SOFT_CAP.get())) {
            collect();
        }
        call.run();
    }

    /**
     * Retries the call after each collection that frees memory, at least once. Gives up after one
     * minute, because other threads may take the freed memory.
     */
    private static long[] attempt(Allocation call) {
        long deadline = System.nanoTime() + LONGEST_COLLECTION_NANOS;
        for (boolean isFirst = true; ; isFirst = false) {
            try {
                return call.run();
            } catch (KVStoreException exception) {
                if (exception.code() != KVStoreException.Code.OUT_OF_MEMORY) {
                    throw exception;
                }
                long live = NativeRuntime.liveBytes();
                boolean hasFreed = collect() < live;
                NativeRuntime.trim();
                if (!isFirst && (!hasFreed || System.nanoTime() - deadline > 0)) {
                    throw exception;
                }
            }
        }
    }

    /**
     * Returns whether the native library watches over the soft cap. It does so from the moment on when that
     * much memory is in sight: what is asked for here is an estimate, and the library counts.
     */
    private static boolean watch(long numBytes) {
        // With a smaller amount no default cap is near; a configured cap may be of any size.
        if (SOFT_CAP.get() == 0
                && (CONFIGURED || numBytes >= LEAST_THRESHOLD / 4 - NativeRuntime.hostLiveBytes())) {
            softCap();
        }
        return SOFT_CAP.get() != 0;
    }

    private static void makeRoom(Context context, long numBytes) {
        if (isDue(NativeRuntime.liveBytes(), numBytes)) {
            collectIfDue(numBytes);
        }
        if (!context.isHost() || !watch(numBytes)) {
            return;
        }
        long cap = SOFT_CAP.get();
        for (int attempt = 0; exceeds(numBytes, cap) && attempt < ATTEMPTS; attempt++) {
            collect();
        }
        long live = NativeRuntime.hostLiveBytes();
        if (exceeds(live, numBytes, cap)) {
            throw new KVStoreException(
                    KVStoreException.Code.OUT_OF_MEMORY,
                    "native memory: " + size(numBytes) + " asked for, " + size(live)
                            + " in use, soft cap " + size(cap)
                            + "; close arrays that are no longer needed, or raise the cap with "
                            + "NativeMemory.setSoftCap or -D" + PROPERTY);
        }
    }

    private static boolean exceeds(long numBytes, long cap) {
        return exceeds(NativeRuntime.hostLiveBytes(), numBytes, cap);
    }

    private static boolean exceeds(long live, long numBytes, long cap) {
        return numBytes > 0 && numBytes > cap - live;
    }

    /** One array that is large in itself is no reason: there would be nothing to collect. */
    private static boolean isDue(long live, long numBytes) {
        long used = usedBytes(live);
        return used >= threshold / 2 && numBytes > threshold - used;
    }

    private static long usedBytes(long live) {
        return live + BYTES_PER_HANDLE * NativeHandle.open();
    }

    /** Waits for a running collection first, and collects only if it is still due. */
    private static void collectIfDue(long numBytes) {
        CompletableFuture<Void> running = RUNNING.get();
        if (running != null) {
            PlatformThread.await(running, LONGEST_COLLECTION_NANOS);
        }
        if (isDue(NativeRuntime.liveBytes(), numBytes)) {
            collect();
        }
    }

    /**
     * Requests a collection that starts after this call, waits for its end and returns the live
     * bytes. Threads that request one before it starts share it.
     */
    private static long collect() {
        CompletableFuture<Void> created = new CompletableFuture<>();
        CompletableFuture<Void> requested = REQUESTED.compareAndExchange(null, created);
        if (requested == null) {
            requested = created;
            try {
                PlatformThread.execute(NativeMemory::runCollection);
            } catch (OutOfMemoryError noThread) {
                REQUESTED.compareAndSet(created, null);
                created.complete(null);
            }
        }
        PlatformThread.await(requested, LONGEST_COLLECTION_NANOS);
        return NativeRuntime.liveBytes();
    }

    /** Runs on the platform thread. */
    private static void runCollection() {
        CompletableFuture<Void> collection = REQUESTED.getAndSet(null);
        if (collection == null) {
            return;
        }
        RUNNING.set(collection);
        try {
            AtomicBoolean found = new AtomicBoolean();
            NativeHandle.afterCollection(() -> found.set(true));
            System.gc();
            awaitCleaner(found);
            threshold = Math.max(LEAST_THRESHOLD, 2 * usedBytes(NativeRuntime.liveBytes()));
        } finally {
            RUNNING.set(null);
            collection.complete(null);
        }
    }

    /**
     * Waits on the platform thread until the cleaner has run the action that sets {@code found} and
     * is idle. The cleaner works in no particular order.
     */
    private static void awaitCleaner(AtomicBoolean found) {
        long deadline = System.nanoTime() + LONGEST_CLEANING_NANOS;
        long collected = NativeHandle.collected();
        long pauseMillis = 1;
        int quiet = 0;
        while (quiet < QUIET_PAUSES && System.nanoTime() - deadline < 0) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(pauseMillis));
            boolean idle = NativeHandle.collected() == collected && !NativeHandle.isCleaning();
            quiet = idle && found.get() ? quiet + 1 : 0;
            pauseMillis = idle ? Math.min(2 * pauseMillis, 64) : 1;
            collected = NativeHandle.collected();
        }
    }

    private static long initialSoftCap() {
        String property = System.getProperty(PROPERTY);
        return property == null ? mostOfTheMemory() : parseSize(property);
    }

    /** The library's default; without one, 80 percent of four times the maximal heap. */
    private static long mostOfTheMemory() {
        NativeLibrary.load();
        long limit = NativeRuntime.memoryLimit();
        return limit > 0 ? limit : Math.min(Runtime.getRuntime().maxMemory(), Long.MAX_VALUE / 4) / 5 * 16;
    }

    static long parseSize(String text) {
        String digits = text.strip();
        int suffix = digits.isEmpty()
                ? -1
                : "kmg".indexOf(Character.toLowerCase(digits.charAt(digits.length() - 1)));
        int shift = suffix < 0 ? 0 : 10 * (suffix + 1);
        try {
            long number = Long.parseLong(suffix < 0 ? digits : digits.substring(0, digits.length() - 1));
            if (number > 0 && number <= Long.MAX_VALUE >> shift) {
                return number << shift;
            }
        } catch (NumberFormatException exception) {
            // Reported below, like a number that is out of range.
        }
        throw KVStoreException.invalidArgument(
                "system property " + PROPERTY + " is `" + text + "`, expected a size such as 8g");
    }

    /** A size in the largest unit that leaves at least 1. */
    static String size(long numBytes) {
        String[] units = {"bytes", "KiB", "MiB", "GiB", "TiB"};
        double value = numBytes;
        int unit = 0;
        while (value >= 1024 && unit < units.length - 1) {
            value /= 1024;
            unit++;
        }
        return unit == 0
                ? numBytes + " bytes"
                : String.format(java.util.Locale.ROOT, "%.1f %s", value, units[unit]);
    }
}
