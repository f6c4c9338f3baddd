package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class NativeLibraryTest {
    @TempDir
    Path directory;

    @Test
    void aFileThatIsNotThereIsAReadableExceptionEveryTime() throws Exception {
        String missing = directory.resolve("missing.so").toString();
        String output = new ChildJvm("-Ddev.kvstore.library=" + missing)
                .run(UsesTheLibraryTwice.class).output();
        List<String> lines = output.lines().toList();
        assertEquals(3, lines.size(), output);
        assertEquals(lines.get(0), lines.get(1));
        assertTrue(lines.get(0).startsWith("BACKEND native library cannot be loaded; tried "),
                output);
        assertTrue(lines.get(0).contains("dev.kvstore.library: " + missing), output);
        assertTrue(lines.get(2).contains(missing), output);
    }

    @Test
    void aFileThatIsNoLibraryIsAReadableException() throws Exception {
        Path text = Files.writeString(directory.resolve("text.so"), "no library");
        String output = new ChildJvm("-Ddev.kvstore.library=" + text)
                .run(UsesTheLibraryTwice.class).output();
        // The JVM may first warn that the file looks strange to it.
        assertTrue(output.contains("BACKEND native library cannot be loaded"), output);
        assertTrue(output.contains(text.toString()), output);
    }

    @Test
    void aPlatformWithoutALibraryIsAReadableException() throws Exception {
        String output = new ChildJvm("-Dos.arch=pdp11").run(UsesTheLibraryTwice.class).output();
        assertTrue(output.contains("-pdp11/"), output);
        assertTrue(output.contains("not there"), output);
    }

    @Test
    void itIsUnpackedOnceIntoTheCache() throws Exception {
        for (int i = 0; i < 2; i++) {
            assertWorks(directory.toString());
            assertEquals(1, unpacked().size(), () -> unpacked().toString());
        }
    }

    @Test
    void aDamagedCacheIsRepaired() throws Exception {
        assertWorks(directory.toString());
        Path library = unpacked().get(0);
        Files.delete(library);
        Files.writeString(library, "half a libr");
        assertWorks(directory.toString());
        assertTrue(Files.size(library) > 1000);
    }

    @Test
    void withoutACacheATemporaryFolderServes() throws Exception {
        Path file = Files.writeString(directory.resolve("file"), "not a directory");
        assertWorks(file.toString());
    }

    private static void assertWorks(String cache) throws Exception {
        String output = new ChildJvm().environment("XDG_CACHE_HOME", cache)
                .run(UsesTheLibraryTwice.class).output();
        assertTrue(output.startsWith("1.0\n1.0\n"), output);
    }

    private List<Path> unpacked() {
        try (Stream<Path> files = Files.walk(directory)) {
            return files.filter(Files::isRegularFile).toList();
        } catch (java.io.IOException exception) {
            throw new java.io.UncheckedIOException(exception);
        }
    }

    @Test
    void theDoctorReports() {
        Map<String, String> report = Doctor.report();
        assertTrue(report.get("library").endsWith("loaded"), report.toString());
        assertTrue(report.containsKey("version"), report.toString());
        assertTrue(report.containsKey("backend cpu"), report.toString());
        assertFalse(report.containsKey("problem"), report.toString());
    }

    /** Prints two results or failures of the library, and what the doctor says about it. */
    static final class UsesTheLibraryTwice {
        private UsesTheLibraryTwice() {}

        public static void main(String[] arguments) {
            for (int i = 0; i < 2; i++) {
                try (NDArray array = NDArray.ones(Shape.of(1))) {
                    System.out.println(array.toScalar());
                } catch (KVStoreException exception) {
                    System.out.println(exception.code() + " " + exception.getMessage());
                }
            }
            System.out.println(Doctor.report().get("library"));
        }
    }
}
