package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Tests that creating and dropping arrays does not increase the memory of the process. */
@Tag("memory")
@EnabledOnOs(OS.LINUX)
class FlatMemoryTest {
    /**
     * The maximum growth in the second half of a loop. On a busy machine, the thread that frees
     * arrays falls behind: 126 MiB were seen. An array of 4 floats takes 550 bytes, so half of the
     * loop creates 520 MiB.
     */
    private static final long TOLERANCE = 192L << 20;

    /**
     * The maximum memory: the heap, the native memory below which no collection is requested, the
     * same amount kept for reuse, and the JVM.
     */
    private static final long BOUND = (256L + 256 + 256 + 128) << 20;

    /**
     * The loop is long enough: the process reaches its maximum size before 1,000,000 dropped arrays
     * of 4 floats, which is half of the loop.
     */
    @ParameterizedTest
    @CsvSource({
        "2000000, 4, drop",
        "2000000, 4, close",
        "300, 16777216, drop",
        "300, 16777216, close"
    })
    void residentMemoryStaysFlat(String count, String size, String end) throws Exception {
        // The complete heap is resident from the start, so any growth is native memory.
        ChildJvm.Result result = new ChildJvm("-Xms256m", "-Xmx256m", "-XX:+AlwaysPreTouch")
                .run(Loop.class, count, size, end);
        assertEquals("flat\n", result.output());
    }

    /** Creates {@code count} arrays of {@code size} floats, and drops or closes each. */
    static final class Loop {
        private Loop() {}

        public static void main(String[] arguments) {
            int count = Integer.parseInt(arguments[0]);
            Shape shape = Shape.of(Long.parseLong(arguments[1]));
            boolean close = arguments[2].equals("close");
            long[] greatest = new long[2];
            for (int i = 0; i < count; i++) {
                NDArray array = NDArray.ones(shape);
                if (close) {
                    array.close();
                }
                if (i % (count / 100) == 0) {
                    int half = i < count / 2 ? 0 : 1;
                    greatest[half] = Math.max(greatest[half], residentBytes());
                }
            }
            System.out.println(greatest[1] < greatest[0] + TOLERANCE && greatest[1] < BOUND
                    ? "flat"
                    : "grew from " + greatest[0] + " to " + greatest[1] + " bytes");
        }

        private static long residentBytes() {
            try {
                String line = Files.readAllLines(Path.of("/proc/self/status")).stream()
                        .filter(candidate -> candidate.startsWith("VmRSS:"))
                        .findFirst()
                        .orElseThrow();
                return Long.parseLong(line.replaceAll("\\D", "")) << 10;
            } catch (IOException exception) {
                throw new UncheckedIOException(exception);
            }
        }
    }
}
