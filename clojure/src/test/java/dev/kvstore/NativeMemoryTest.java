package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static dev.kvstore.KVStoreException.Code.OUT_OF_MEMORY;
import static dev.kvstore.KVStoreException.Code.SPEC_MISMATCH;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import javax.management.Attribute;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

@Tag("host")
class NativeMemoryTest {
    private static final long MEGABYTE = 1 << 20;

    private long softCap;

    @BeforeEach
    void remember() {
        softCap = NativeMemory.softCap();
    }

    @AfterEach
    void restore() {
        NativeMemory.setSoftCap(softCap);
    }

    @Test
    void liveBytesFollowTheArrays() {
        long before = NativeMemory.liveBytes();
        NDArray array = NDArray.zeros(Shape.of(64 * MEGABYTE), DType.UINT8, Context.cpu());
        assertTrue(NativeMemory.liveBytes() >= before + 64 * MEGABYTE - MEGABYTE);
        array.close();
        assertTrue(NativeMemory.liveBytes() <= before + MEGABYTE);
        NativeMemory.trim();
        assertTrue(NativeMemory.pooledBytes() < 64 * MEGABYTE);
    }

    @Test
    void exceedingTheSoftCapThrowsUntilArraysAreClosed() {
        List<NDArray> arrays = new ArrayList<>();
        NativeMemory.setSoftCap(NativeMemory.liveBytes() + 40 * MEGABYTE);
        KVStoreException exception = Expect.code(OUT_OF_MEMORY, () -> {
            for (int i = 0; i < 5; i++) {
                arrays.add(tenMegabytes());
            }
        });
        assertTrue(exception.getMessage().contains("10.0 MiB requested"), exception.getMessage());
        assertTrue(exception.getMessage().contains("soft cap"), exception.getMessage());
        arrays.forEach(NDArray::close);
        tenMegabytes().close();
    }

    @Test
    void unreachableArraysAreCollectedAtTheSoftCap() {
        NativeMemory.setSoftCap(NativeMemory.liveBytes() + 40 * MEGABYTE);
        for (int i = 0; i < 20; i++) {
            tenMegabytes();
        }
    }

    @Test
    void smallResultsOfLargeArraysFitBelowTheSoftCap() {
        try (NDArray large = NDArray.ones(Shape.of(1, 20 * MEGABYTE / 4))) {
            NativeMemory.setSoftCap(NativeMemory.liveBytes() + 10 * MEGABYTE);
            try (NDArray sum = large.reduce(Reduction.SUM);
                    NDArray largest = large.argmaxChannel();
                    NDArray chosen = large.chooseElements(largest)) {
                assertEquals(20 * MEGABYTE / 4, sum.toScalar());
                assertEquals(1, chosen.toScalar());
            }
        }
    }

    /**
     * The size of a result does not follow from its operands alone, and an updater creates any
     * arrays.
     */
    @Test
    void noOperationExceedsTheSoftCap() {
        NativeMemory.setSoftCap(NativeMemory.liveBytes() + 40 * MEGABYTE);
        long most = NativeMemory.softCap();
        try (NDArray column = NDArray.ones(Shape.of(4096, 1));
                NDArray row = NDArray.ones(Shape.of(1, 4096));
                NDArray large = NDArray.ones(Shape.of(15 * MEGABYTE / 4));
                KVStore store = KVStore.create()) {
            Expect.code(OUT_OF_MEMORY, () -> column.dot(row));
            Expect.code(OUT_OF_MEMORY, () -> column.apply(BinaryOp.GREATER, row));
            Expect.code(SPEC_MISMATCH, () -> row.dot(row));
            store.init("w", large);
            List<NDArray> made = new ArrayList<>();
            store.setUpdater((key, pushed, stored) -> {
                while (made.size() < 10) {
                    made.add(stored.add(1));
                }
            });
            Expect.code(OUT_OF_MEMORY, () -> store.push("w", large));
            made.forEach(NDArray::close);
            store.setUpdater(null);
            List<ByteBuffer> held = new ArrayList<>();
            Expect.code(OUT_OF_MEMORY, () -> {
                while (held.size() < 10) {
                    held.add(large.asBuffer());
                    large.addInPlace(1);
                }
            });
            assertTrue(NativeMemory.liveBytes() <= most, NativeMemory.liveBytes() + " bytes");
            held.clear();
            large.addInPlace(1);
        }
    }

    /** A virtual thread with a native frame keeps its carrier while it waits for a monitor. */
    @Test
    void storeMethodsWaitForNoMonitorOfAnotherThread() throws Exception {
        NativeMemory.setSoftCap(NativeMemory.liveBytes() + 40 * MEGABYTE);
        try (NDArray array = tenMegabytes();
                KVStore store = KVStore.create()) {
            CompletableFuture<Void> verbs;
            synchronized (NativeMemory.class) {
                synchronized (array) {
                    synchronized (store) {
                        verbs = CompletableFuture.runAsync(() -> {
                            store.init("w", array);
                            store.setUpdater(
                                    (key, pushed, stored) -> stored.set(stored.add(pushed)));
                            for (int i = 0; i < 10; i++) {
                                array.add(1);
                                store.push("w", array);
                            }
                        });
                        verbs.get(60, TimeUnit.SECONDS);
                    }
                }
            }
        }
    }

    @Test
    void buffersDoNotCountAsUnclosed() {
        try (NDArray array = NDArray.ones(Shape.of(2))) {
            long open = NativeMemory.open();
            array.asBuffer();
            assertEquals(open, NativeMemory.open());
        }
    }

    @Test
    void hugeArraysAreOutOfMemory() {
        NativeMemory.setSoftCap(Long.MAX_VALUE);
        Expect.code(OUT_OF_MEMORY,
                () -> NDArray.zeros(Shape.of(1L << 50), DType.UINT8, Context.cpu()));
    }

    private static NDArray tenMegabytes() {
        return NDArray.ones(Shape.of(10 * MEGABYTE), DType.UINT8, Context.cpu());
    }

    @Test
    void sizesAreParsed() {
        assertEquals(3, NativeMemory.parseSize("3"));
        assertEquals(3 << 10, NativeMemory.parseSize("3k"));
        assertEquals(3 << 20, NativeMemory.parseSize(" 3M "));
        assertEquals(3L << 30, NativeMemory.parseSize("3g"));
        for (String wrong : List.of("", "0", "-1", "g", "3t", "3 g", "9999999999999g")) {
            Expect.code(INVALID_ARGUMENT, () -> NativeMemory.parseSize(wrong));
        }
        Expect.code(INVALID_ARGUMENT, () -> NativeMemory.setSoftCap(0));
    }

    @Test
    void sizesAreFormatted() {
        assertEquals("0 bytes", NativeMemory.size(0));
        assertEquals("1023 bytes", NativeMemory.size(1023));
        assertEquals("1.5 KiB", NativeMemory.size(1536));
        assertEquals("2.0 GiB", NativeMemory.size(2L << 30));
    }

    @Test
    void theSoftCapIsASystemProperty() throws Exception {
        ChildJvm.Result result =
                new ChildJvm("-Ddev.kvstore.softCap=8m").run(PrintsSoftCap.class);
        assertEquals("8388608 OUT_OF_MEMORY\n", result.output());
        result = new ChildJvm("-Ddev.kvstore.softCap=much").run(PrintsSoftCap.class);
        assertTrue(result.output().contains("`much`"), result.output());
    }

    /** Uses another process, because other tests in this one set the soft cap. */
    @Test
    @EnabledOnOs(OS.LINUX)
    void theDefaultSoftCapIs80PercentOfTheMemory() throws Exception {
        ChildJvm.Result result = new ChildJvm().run(PrintsSoftCap.class);
        // The JDK returns the limit of the control group. JDK 17 and 21 ignore the limits of its
        // parents.
        long memory = Math.min(
                ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class)
                        .getTotalMemorySize(),
                lowestLimit());
        assertEquals(memory / 5 * 4 + " ", result.output());
    }

    /** Returns the lowest memory limit of the control group of this process and its parents. */
    private static long lowestLimit() throws IOException {
        long lowest = Long.MAX_VALUE;
        for (String line : Files.readAllLines(Path.of("/proc/self/cgroup"))) {
            String[] fields = line.split(":", 3);
            boolean isVersion1 = List.of(fields[1].split(",")).contains("memory");
            if (!isVersion1 && !fields[1].isEmpty()) {
                continue;
            }
            Path mount = Path.of(isVersion1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup");
            for (Path group = Path.of(fields[2]); group != null; group = group.getParent()) {
                Path limit = mount.resolve(Path.of("/").relativize(group))
                        .resolve(isVersion1 ? "memory.limit_in_bytes" : "memory.max");
                String text = Files.exists(limit) ? Files.readString(limit).strip() : "max";
                lowest = Math.min(lowest, text.equals("max") ? lowest : Long.parseLong(text));
            }
        }
        return lowest;
    }

    /** Prints the soft cap and the failure of an array that exceeds it. */
    static final class PrintsSoftCap {
        private PrintsSoftCap() {}

        public static void main(String[] arguments) {
            System.out.print(NativeMemory.softCap() + " ");
            try {
                tenMegabytes();
            } catch (KVStoreException exception) {
                System.out.println(exception.code());
            }
        }
    }

    @Test
    void theMXBeanReportsNativeMemory() throws Exception {
        NativeMemory.registerMXBean();
        NativeMemory.registerMXBean();
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        ObjectName name = new ObjectName("dev.kvstore:type=NativeMemory");
        try (NDArray array = tenMegabytes()) {
            assertTrue((long) server.getAttribute(name, "LiveBytes") >= array.size());
            assertTrue((long) server.getAttribute(name, "Open") > 0);
            assertEquals(NativeMemory.softCap(), server.getAttribute(name, "SoftCap"));
            for (String attribute : List.of("PooledBytes", "CollectedUnclosed")) {
                assertTrue((long) server.getAttribute(name, attribute) >= 0);
            }
        }
        server.setAttribute(name, new Attribute("SoftCap", 123 * MEGABYTE));
        assertEquals(123 * MEGABYTE, NativeMemory.softCap());
        server.invoke(name, "trim", null, null);
        assertTrue(NativeMemory.pooledBytes() < 10 * MEGABYTE);
    }
}
