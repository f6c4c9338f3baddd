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
 * Reports and limits the native memory of arrays and stores. The garbage collector does not know
 * about this memory.
 *
 * <p>An array that becomes unreachable without {@code close} keeps its native memory until the next
 * garbage collection, and the JVM does not collect while the Java heap has room. Therefore methods
 * that create arrays request a garbage collection in two cases: if the native memory in use has
 * doubled since the last collection (but not below 256 MiB), and if a new array would exceed the
 * soft cap. If that does not free enough memory, they throw {@code OUT_OF_MEMORY}: the library
 * never uses more memory than the cap. (A push that must not run twice, because it calls an updater
 * or is followed by a pull, requests a collection only before it runs.) Programs that close their
 * arrays are not affected.
 *
 * <p>These collections run on the daemon thread {@code kvstore-worker}. Callers hold no lock while
 * they wait, and wait for one minute at most, so virtual threads that share few carriers cannot
 * block each other.
 *
 * <p>If the JVM ignores requests for a collection ({@code -XX:+DisableExplicitGC}, Epsilon), the
 * program must close its arrays.
 *
 * <p>The soft cap limits host memory only. The limit of a GPU is its own memory. There, too,
 * unreachable arrays are collected before a method throws {@code OUT_OF_MEMORY}.
 *
 * <p>The system property {@code dev.kvstore.softCap} sets the soft cap, as a number of bytes with
 * an optional suffix k, m or g. The default is 80 percent of the memory of the machine or
 * container. The cap includes free memory that is kept for reuse, which is returned to the
 * operating system before an allocation fails.
 */
public final class NativeMemory {
    private static final String PROPERTY = "dev.kvstore.softCap";

    /**
     * The threshold is never lower than this. It is as much as the native library keeps for reuse,
     * so that a loop that drops its arrays reuses their memory.
     */
    private static final long LEAST_THRESHOLD = 256L << 20;

    /**
     * A rough estimate of the memory that an array uses in addition to its elements, in the native
     * library and in the cleaner.
     */
    private static final long BYTES_PER_HANDLE = 1 << 10;

    private static final long LONGEST_CLEANING_NANOS = TimeUnit.SECONDS.toNanos(2);

    /** The maximum wait for a collection. Collecting a large heap takes many seconds. */
    private static final long LONGEST_COLLECTION_NANOS = TimeUnit.SECONDS.toNanos(60);

    private static final int QUIET_PAUSES = 3;
    private static final int ATTEMPTS = 3;
    private static final boolean CONFIGURED = System.getProperty(PROPERTY) != null;

    /** Zero until the first use. */
    private static final AtomicLong SOFT_CAP = new AtomicLong();

    /** The collection that has not started yet, or null. */
    private static final AtomicReference<CompletableFuture<Void>> REQUESTED =
            new AtomicReference<>();

    /** The collection that is running, or null. */
    private static final AtomicReference<CompletableFuture<Void>> RUNNING = new AtomicReference<>();

    /**
     * The number of used bytes at which the next collection is due. Only the platform thread writes
     * it.
     */
    private static volatile long threshold = LEAST_THRESHOLD;

    private NativeMemory() {}

    /** A native call that creates arrays and returns their descriptions. */
    @FunctionalInterface
    interface Allocation {
        long[] run();
    }

    /**
     * Returns the native memory that arrays and stores use on all devices.
     *
     * @return the size in bytes
     * @throws KVStoreException with {@code BACKEND} if the native library cannot be loaded
     */
    public static long liveBytes() {
        NativeLibrary.load();
        return NativeRuntime.liveBytes();
    }

    /**
     * Returns the free native memory that is kept for reuse.
     *
     * @return the size in bytes, which {@link #liveBytes} does not include
     * @throws KVStoreException with {@code BACKEND} if the native library cannot be loaded
     */
    public static long pooledBytes() {
        NativeLibrary.load();
        return NativeRuntime.pooledBytes();
    }

    /**
     * Returns the native memory of each device: the host, then every GPU.
     *
     * @return one object per device
     * @throws KVStoreException with {@code BACKEND} if the native library cannot be loaded
     */
    public static List<DeviceMemory> devices() {
        NativeLibrary.load();
        return DeviceMemory.of(NativeRuntime.deviceMemory());
    }

    /**
     * Returns the native memory of a device.
     *
     * @param context the device; all CPU contexts are the host
     * @return the memory usage of the device
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} if this machine has no such device
     * @throws KVStoreException with {@code BACKEND} if the native library cannot be loaded
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
                "device " + context + " is not available: there are "
                        + Context.numGpus() + " of them");
    }

    /**
     * Returns the free memory that is kept for reuse to the operating system.
     *
     * @throws KVStoreException with {@code BACKEND} if the native library cannot be loaded
     */
    public static void trim() {
        NativeLibrary.load();
        NativeRuntime.trim();
    }

    /**
     * Returns the number of arrays, stores and optimizer states that are neither closed nor
     * garbage-collected.
     *
     * @return the number
     */
    public static long open() {
        return NativeHandle.open();
    }

    /**
     * Returns the number of arrays and stores that were garbage-collected without having been
     * closed.
     *
     * @return the number since the start of the process
     */
    public static long collectedUnclosed() {
        return NativeHandle.collected();
    }

    /**
     * Returns the limit of host memory. A new array that would exceed it fails.
     *
     * @return the size in bytes
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the system property is not a size
     */
    public static long softCap() {
        if (SOFT_CAP.get() == 0 && SOFT_CAP.compareAndSet(0, initialSoftCap())) {
            setNativeLimit();
        }
        return SOFT_CAP.get();
    }

    /**
     * Sets the limit of host memory. A new array that would exceed it fails. Existing arrays are
     * not affected.
     *
     * @param numBytes the size in bytes, greater than 0
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the size is not greater than 0
     */
    public static void setSoftCap(long numBytes) {
        if (numBytes <= 0) {
            throw KVStoreException.invalidArgument(
                    "soft cap: expected more than 0 bytes, found " + numBytes);
        }
        SOFT_CAP.set(numBytes);
        setNativeLimit();
    }

    /**
     * Passes the cap to the native library, and repeats this if another thread has changed the cap
     * meanwhile.
     */
    private static void setNativeLimit() {
        NativeLibrary.load();
        long cap;
        do {
            cap = SOFT_CAP.get();
            NativeRuntime.setMemoryLimit(cap);
        } while (SOFT_CAP.get() != cap);
    }

    /**
     * Registers the platform MXBean {@code dev.kvstore:type=NativeMemory}, a
     * {@link NativeMemoryMXBean}, which shows these numbers to monitoring tools. Calling this again
     * has no effect. The library does not register the bean by itself, because the first bean of a
     * process takes some hundred milliseconds.
     */
    public static void registerMXBean() {
        NativeMemoryMonitor.register();
    }

    /**
     * Runs a call that creates arrays of {@code numBytes} on the host. Collects garbage before it
     * if due, and after it if it ran out of memory.
     */
    static long[] allocate(long numBytes, Allocation allocation) {
        return allocate(Context.cpu(), numBytes, allocation);
    }

    /**
     * Runs a call that creates arrays of {@code numBytes} on a device. Collects garbage like
     * {@link #allocate(long, Allocation)}.
     */
    static long[] allocate(Context context, long numBytes, Allocation allocation) {
        NativeLibrary.load();
        makeRoom(context, numBytes);
        return attempt(allocation);
    }

    /**
     * Collects garbage if due. Call this before changing an array: if a buffer shares the elements,
     * the change allocates memory.
     */
    static void beforeChange() {
        if (isDue(NativeRuntime.liveBytes(), 0)) {
            collectIfDue(0);
        }
    }

    /**
     * Runs a call that may allocate memory, and runs it again after a collection if memory ran out.
     * The call must not change anything if it fails.
     */
    static void retry(Runnable call) {
        watch(0);
        attempt(() -> {
            call.run();
            return null;
        });
    }

    /**
     * Runs a call that may allocate about {@code numBytes} and must not run twice. Collects garbage
     * first if the call would exceed the cap.
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
                if (exception.code() != KVStoreException.Code.OUT_OF_MEMORY
                        || exception.isFromUpdater()) {
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
     * Returns whether the native library enforces the soft cap. This method turns enforcement on
     * when usage comes near the cap, so that small programs do not pay for it. {@code numBytes} is
     * only an estimate; the native library counts exactly.
     */
    private static boolean watch(long numBytes) {
        // A default cap is never near with less than this. A configured cap may have any size.
        if (SOFT_CAP.get() == 0
                && (CONFIGURED
                        || numBytes >= LEAST_THRESHOLD / 4 - NativeRuntime.hostLiveBytes())) {
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
                    "native memory: " + size(numBytes) + " requested, " + size(live)
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

    /**
     * Returns whether a collection is due. A single large array is not a reason, because there
     * would be nothing to collect.
     */
    private static boolean isDue(long live, long numBytes) {
        long used = usedBytes(live);
        return used >= threshold / 2 && numBytes > threshold - used;
    }

    private static long usedBytes(long live) {
        return live + BYTES_PER_HANDLE * NativeHandle.open();
    }

    /** Waits for a running collection, then collects if a collection is still due. */
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
     * Requests a collection that starts after this call, waits until it has finished, and returns
     * the live bytes. Threads that make a request before the collection starts share it.
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

    /** Runs the requested collection on the platform thread. */
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
     * is idle. The cleaner runs actions in no particular order, so {@code found} alone is not
     * enough.
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

    /**
     * Returns the default limit of the native library, or 80 percent of four times the maximum Java
     * heap if there is none.
     */
    private static long mostOfTheMemory() {
        NativeLibrary.load();
        long limit = NativeRuntime.memoryLimit();
        return limit > 0
                ? limit
                : Math.min(Runtime.getRuntime().maxMemory(), Long.MAX_VALUE / 4) / 5 * 16;
    }

    static long parseSize(String text) {
        String digits = text.strip();
        int suffix = digits.isEmpty()
                ? -1
                : "kmg".indexOf(Character.toLowerCase(digits.charAt(digits.length() - 1)));
        int shift = suffix < 0 ? 0 : 10 * (suffix + 1);
        try {
            long number =
                    Long.parseLong(suffix < 0 ? digits : digits.substring(0, digits.length() - 1));
            if (number > 0 && number <= Long.MAX_VALUE >> shift) {
                return number << shift;
            }
        } catch (NumberFormatException exception) {
            // Reported below, like a number that is out of range.
        }
        throw KVStoreException.invalidArgument(
                "system property " + PROPERTY + ": expected a size such as 8g, found `" + text
                        + "`");
    }

    /** Returns a size in the largest unit in which it is at least 1. */
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
