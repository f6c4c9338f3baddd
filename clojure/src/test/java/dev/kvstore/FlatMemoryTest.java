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
    /** What the first tenth of a loop may not yet have shown: freed memory that is kept for reuse. */
    private static final long TOLERANCE = 256L << 20;

    @ParameterizedTest
    @CsvSource({
        "1000000, 4, drop",
        "1000000, 4, close",
        "1000, 16777216, drop",
        "1000, 16777216, close"
    })
    void residentMemoryStaysFlat(String count, String size, String end) throws Exception {
        ChildJvm.Result result =
                new ChildJvm("-Xmx256m").run(Loop.class, count, size, end);
        assertEquals("flat\n", result.output());
    }

    /** Makes {@code count} arrays of {@code size} floats, and drops or closes each. */
    static final class Loop {
        private Loop() {}

        public static void main(String[] arguments) {
            int count = Integer.parseInt(arguments[0]);
            Shape shape = Shape.of(Long.parseLong(arguments[1]));
            boolean close = arguments[2].equals("close");
            long afterATenth = 0;
            long greatest = 0;
            for (int i = 0; i < count; i++) {
                NDArray array = NDArray.ones(shape);
                if (close) {
                    array.close();
                }
                if (i % (count / 100) == 0) {
                    long resident = residentBytes();
                    afterATenth = i <= count / 10 ? Math.max(afterATenth, resident) : afterATenth;
                    greatest = Math.max(greatest, resident);
                }
            }
            // The least threshold of a collection, the heap and the JVM itself.
            long bound = (512L + 256 + 256) << 20;
            System.out.println(greatest < afterATenth + TOLERANCE && greatest < bound
                    ? "flat"
                    : "grew from " + afterATenth + " to " + greatest + " bytes");
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
