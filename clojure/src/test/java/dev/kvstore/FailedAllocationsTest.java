package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Tests that a failed allocation whose size depends on data throws an exception and changes
 * nothing.
 */
@Tag("memory")
class FailedAllocationsTest {
    @TempDir
    Path folder;

    @Test
    void aFailedAllocationThrowsAndChangesNothing() throws Exception {
        String library = library();
        // Other garbage collectors call malloc in application threads.
        ChildJvm.Result result = new ChildJvm("-XX:+UseSerialGC")
                .environment("LD_PRELOAD", library)
                .run(FailedAllocations.class, library);
        assertEquals(0, result.status(), result.output());
        System.out.print(result.output());
        assertTrue(
                result.output().lines().allMatch(line -> line.matches(".*: [1-9]\\d* allocations")),
                result.output());
    }

    /** Builds the library to preload, or skips the test and prints the reason. */
    private String library() throws IOException, InterruptedException {
        Path script = Path.of(
                System.getProperty("basedir", ""), "..", "tests", "failing-malloc", "build.sh");
        String reason = "the failing malloc replaces the one of glibc on Linux";
        boolean isLinux = System.getProperty("os.name").equals("Linux");
        if (!isLinux) {
            System.out.println("not run: " + reason);
        }
        assumeTrue(isLinux, reason);
        Path output = folder.resolve("output");
        // The output of the compiler must not be mixed with the path.
        Path errors = folder.resolve("errors");
        Process build = new ProcessBuilder("sh", script.toString())
                .redirectOutput(output.toFile())
                .redirectError(errors.toFile())
                .start();
        assertTrue(build.waitFor(120, TimeUnit.SECONDS), "the build does not end");
        assertEquals(0, build.exitValue(), Files.readString(errors));
        return Files.readString(output).strip() + "/libkvstore_failing_malloc.so";
    }
}
