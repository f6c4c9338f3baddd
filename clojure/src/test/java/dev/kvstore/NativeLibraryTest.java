package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class NativeLibraryTest {
    @TempDir
    Path directory;

    @Test
    void aMissingFileThrowsEveryTime() throws Exception {
        String missing = directory.resolve("missing.so").toString();
        String output = new ChildJvm("-Ddev.kvstore.library=" + missing)
                .run(UsesTheLibraryTwice.class).output();
        List<String> lines = output.lines().toList();
        assertEquals(3, lines.size(), output);
        assertEquals(lines.get(0), lines.get(1));
        assertTrue(lines.get(0).startsWith("BACKEND native library cannot be loaded: "),
                output);
        assertTrue(lines.get(0).contains("dev.kvstore.library: " + missing), output);
        assertTrue(lines.get(2).contains(missing), output);
    }

    /** {@code --illegal-native-access=deny} (JDK 24) denies access without the other option. */
    @Test
    void deniedNativeAccessNamesTheOptionThatEnablesIt() throws Exception {
        Path home = Jdk.atLeast(24);
        ChildJvm.Result denied =
                ChildJvm.without("--enable-native-access", home, "--illegal-native-access=deny")
                        .run(UsesTheLibraryTwice.class);
        List<String> lines = denied.output().lines().toList();
        assertEquals(3, lines.size(), denied.output());
        for (String line : lines) {
            assertTrue(line.contains("native access is denied"), line);
            assertTrue(line.contains("--enable-native-access=ALL-UNNAMED"), line);
        }
    }

    @Test
    void aFileThatIsNotALibraryThrows() throws Exception {
        Path text = Files.writeString(directory.resolve("text.so"), "no library");
        String output = new ChildJvm("-Ddev.kvstore.library=" + text)
                .run(UsesTheLibraryTwice.class).output();
        // The JVM may print a warning about the file first.
        assertTrue(output.contains("BACKEND native library cannot be loaded"), output);
        assertTrue(output.contains(text.toString()), output);
    }

    @Test
    void anUnsupportedPlatformThrowsWithAdvice() throws Exception {
        String output = new ChildJvm("-Dos.arch=pdp11").run(UsesTheLibraryTwice.class).output();
        String platform = NativeLibrary.platform();
        String other = platform.substring(0, platform.indexOf('-')) + "-pdp11";
        assertEquals(
                "BACKEND native library cannot be loaded: the jar has none for " + other
                        + ", only for " + platform + "; `make jar` on such a machine builds one,"
                        + " -Ddev.kvstore.library=FILE loads it",
                output.lines().findFirst().orElse(""));
    }

    @Test
    void theErrorNamesTheCLibraryMusl() throws Exception {
        assertFalse(NativeLibrary.hasMusl(directory));
        assertFalse(NativeLibrary.hasMusl(directory.resolve("missing")));
        Files.createFile(directory.resolve("ld-musl-x86_64.so.1"));
        assertTrue(NativeLibrary.hasMusl(directory));
    }

    @Test
    void theLibraryIsUnpackedOnceIntoTheCache() throws Exception {
        for (int i = 0; i < 2; i++) {
            String library = libraryOf(jvm());
            assertEquals(unpackedIn("kvstore"), library);
        }
    }

    @Test
    void aPropertySetsTheCacheFolder() throws Exception {
        Path named = directory.resolve("named");
        String library = libraryOf(jvm("-Ddev.kvstore.cache=" + named));
        assertEquals(unpackedIn("named"), library);
    }

    @Test
    void aDamagedCacheIsRepaired() throws Exception {
        libraryOf(jvm());
        Path library = files("kvstore").get(0);
        Files.delete(library);
        Files.writeString(library, "half a libr");
        String repaired = libraryOf(jvm());
        assertEquals(unpackedIn("kvstore"), repaired);
        assertTrue(Files.size(library) > 1000);
    }

    @Test
    void aHeapSmallerThanTheLibraryIsEnough() throws Exception {
        String library = libraryOf(jvm("-Xmx8m", "-XX:+UseSerialGC"));
        assertEquals(unpackedIn("kvstore"), library);
        Path file = Files.writeString(directory.resolve("file"), "not a directory");
        assertServedTemporarily(
                jvm("-Xmx8m", "-XX:+UseSerialGC", "-Ddev.kvstore.cache=" + file), file.toString());
    }

    @Test
    void withoutACacheATemporaryFolderIsUsed() throws Exception {
        Path file = Files.writeString(directory.resolve("file"), "not a directory");
        assertServedTemporarily(jvm("-Ddev.kvstore.cache=" + file), file.toString());
    }

    @Test
    void withoutAHomeATemporaryFolderIsUsed() throws Exception {
        assertServedTemporarily(
                jvm("-Duser.home=?").environment("XDG_CACHE_HOME", ""), "no home");
        assertFalse(Files.exists(Path.of("?")));
    }

    @Test
    void aCacheThatOthersCanWriteToIsNotUsed() throws Exception {
        Path open = Files.createDirectory(directory.resolve("open"));
        Files.setPosixFilePermissions(open, PosixFilePermissions.fromString("rwxrwxrwx"));
        assertServedTemporarily(
                jvm("-Ddev.kvstore.cache=" + open), open + ": others can write");
    }

    @Test
    void aCacheMountedNoexecIsNotUsed() throws Exception {
        List<String> shell = List.of("unshare", "--mount", "sh", "-c");
        Path mounted = Files.createDirectory(directory.resolve("mounted"));
        String mount = "mount -t tmpfs -o noexec,mode=700 tmpfs '" + mounted + "'";
        assumeTrue(succeeds(shell, mount), "this user may not mount a file system of its own");
        assertServedTemporarily(
                jvm("-Ddev.kvstore.cache=" + mounted).prepared(shell, mount),
                "noexec?");
    }

    @Test
    void processesThatStartAtTheSameTimeShareOneFile() throws Exception {
        List<Callable<String>> processes = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            ChildJvm jvm = jvm();
            processes.add(() -> libraryOf(jvm));
        }
        ExecutorService threads = Executors.newFixedThreadPool(processes.size());
        try {
            for (Future<String> library : threads.invokeAll(processes)) {
                assertEquals(unpackedIn("kvstore"), library.get());
            }
        } finally {
            threads.shutdown();
        }
    }

    /** Creates a program with an empty cache and an empty temporary folder. */
    private ChildJvm jvm(String... options) throws IOException {
        Path temporary = Files.createDirectories(directory.resolve("temporary"));
        List<String> all = new ArrayList<>(List.of(options));
        all.add("-Djava.io.tmpdir=" + temporary);
        return new ChildJvm(all.toArray(String[]::new))
                .environment("XDG_CACHE_HOME", directory.toString());
    }

    private void assertServedTemporarily(ChildJvm jvm, String reason) throws Exception {
        String library = libraryOf(jvm);
        assertTrue(library.contains(reason), library);
        assertTrue(library.contains("; " + directory.resolve("temporary")), library);
        assertTrue(library.endsWith("loaded"), library);
        assertEquals(0, files("temporary").size(), "the temporary file is gone");
    }

    /**
     * Returns the doctor's line about the library in a program that uses the library successfully.
     */
    private static String libraryOf(ChildJvm jvm) throws Exception {
        String output = jvm.run(UsesTheLibraryTwice.class).output();
        assertTrue(output.startsWith("1.0\n1.0\n"), output);
        return output.lines().toList().get(2);
    }

    /**
     * Returns the expected line of the doctor for the only file in a cache, and asserts that other
     * users cannot open it.
     */
    private String unpackedIn(String cache) throws IOException {
        List<Path> files = files(cache);
        assertEquals(1, files.size(), files.toString());
        Path folder = files.get(0).getParent();
        for (Path path : List.of(folder, folder.getParent())) {
            assertEquals("rwx------",
                    PosixFilePermissions.toString(Files.getPosixFilePermissions(path)));
        }
        return files.get(0) + ": loaded";
    }

    private List<Path> files(String folder) throws IOException {
        try (Stream<Path> files = Files.walk(directory.resolve(folder))) {
            return files.filter(Files::isRegularFile).toList();
        }
    }

    private static boolean succeeds(List<String> shell, String script) throws Exception {
        List<String> command = new ArrayList<>(shell);
        command.add(script);
        try {
            return new ProcessBuilder(command).redirectErrorStream(true)
                    .redirectOutput(ProcessBuilder.Redirect.DISCARD).start().waitFor() == 0;
        } catch (IOException noSuchProgram) {
            return false;
        }
    }

    @Test
    void theDoctorReportsTheLibrary() {
        Map<String, String> report = Doctor.report();
        assertTrue(report.get("library").endsWith("loaded"), report.toString());
        assertTrue(report.containsKey("version"), report.toString());
        assertTrue(report.containsKey("backend cpu"), report.toString());
        assertFalse(report.containsKey("problem"), report.toString());
    }

    /**
     * Uses the library twice and prints each result or failure, then the doctor's line about the
     * library.
     */
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
