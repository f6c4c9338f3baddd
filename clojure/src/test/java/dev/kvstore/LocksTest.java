package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/**
 * Tests that store methods hold no Java lock while they wait. A virtual thread with a native frame
 * keeps its carrier, which the owner of the lock may need.
 */
class LocksTest {
    private static final Path SOURCES = Path.of(System.getProperty("basedir", ""), "src", "main");

    private static final Pattern WAITS = Pattern.compile(
            "\\bsynchronized\\b|ReentrantLock|ReadWriteLock|StampedLock|Semaphore|CountDownLatch"
                    + "|CyclicBarrier|BlockingQueue|Executor|Thread\\.sleep|\\.wait\\("
                    + "|ManagementFactory\\."
                    + "|\\(locking |\\(delay |\\(promise|Collections/synchronized|\\(memoize ");

    /**
     * The files whose locks and waits cannot block a carrier for ever, each with the reason.
     *
     * <ul>
     * <li>{@code NativeLibrary}: the library is loaded before there is a native frame.
     * <li>{@code NativeMemoryMonitor}: no store method uses the bean.
     * <li>{@code PendingCheckpoints}: the owner of the monitor neither waits nor calls code of the
     *     program. No other class can lock that object.
     * <li>{@code Checkpoint}: {@code KVStore.close} waits for the latch and holds no lock.
     * </ul>
     */
    private static final Set<String> ALLOWED = Set.of(
            "NativeLibrary.java: synchronized",
            "NativeMemoryMonitor.java: ManagementFactory.",
            "Checkpoint.java: CountDownLatch",
            "PendingCheckpoints.java: synchronized");

    @Test
    void storeMethodsTakeNoLocksAndDoNotSleep() throws IOException {
        Set<String> found = new TreeSet<>();
        try (Stream<Path> files = Files.walk(SOURCES)) {
            List<Path> sources =
                    files.filter(file -> file.toString().matches(".*\\.(java|clj)")).toList();
            assertFalse(sources.isEmpty(), "no sources in " + SOURCES.toAbsolutePath());
            for (Path source : sources) {
                for (String line : Files.readAllLines(source)) {
                    if (!line.strip().startsWith("*") && !line.startsWith("import")) {
                        WAITS.matcher(line)
                                .results()
                                .forEach(match ->
                                        found.add(source.getFileName() + ": " + match.group()));
                    }
                }
            }
        }
        found.removeAll(ALLOWED);
        assertEquals(Set.of(), found);
    }
}
