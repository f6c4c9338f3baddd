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

/** Arrays that are made and dropped leave the process as large as it was. */
@Tag("memory")
@EnabledOnOs(OS.LINUX)
class FlatMemoryTest {
    /**
     * By how much the second half of a loop may exceed the first. The thread that frees arrays falls
     * behind when other processes run: 126 MiB were seen. An array of 4 floats takes 550 bytes, so half
     * of the loop makes 520 MiB of them.
     */
    private static final long TOLERANCE = 192L << 20;

    /** The heap, the least native memory that asks for a collection, as much kept for reuse, the JVM. */
    private static final long BOUND = (256L + 256 + 256 + 128) << 20;

    /** The process is largest after fewer than 1,000,000 dropped arrays of 4 floats: half of the loop. */
    @ParameterizedTest
    @CsvSource({
        "2000000, 4, drop",
        "2000000, 4, close",
        "300, 16777216, drop",
        "300, 16777216, close"
    })
    void residentMemoryStaysFlat(String count, String size, String end) throws Exception {
        // The whole heap is resident from the start: what grows afterwards is native.
        ChildJvm.Result result = new ChildJvm("-Xms256m", "-Xmx256m", "-XX:+AlwaysPreTouch")
                .run(Loop.class, count, size, end);
        assertEquals("flat\n", result.output());
    }

    /** Makes {@code count} arrays of {@code size} floats, and drops or closes each. */
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
