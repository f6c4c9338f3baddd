package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class NativeCacheTest {
    private static final byte[] BYTES = new byte[1 << 20];
    private static final NativeCache.Content CONTENT = () -> new ByteArrayInputStream(BYTES);

    @TempDir
    Path directory;

    @Test
    void concurrentUnpackingLeavesACompleteFile() throws Exception {
        Arrays.fill(BYTES, (byte) 7);
        ExecutorService threads = Executors.newFixedThreadPool(8);
        try {
            for (int round = 0; round < 10; round++) {
                Path cache = directory.resolve("round-" + round);
                CyclicBarrier start = new CyclicBarrier(8);
                Callable<Path> unpack = () -> {
                    start.await();
                    Path file = NativeCache.unpack(cache, "file", CONTENT);
                    assertArrayEquals(BYTES, Files.readAllBytes(file));
                    return file;
                };
                List<Path> files = new ArrayList<>();
                for (Future<Path> file : threads.invokeAll(Stream.generate(() -> unpack)
                        .limit(8).toList())) {
                    files.add(file.get());
                }
                assertEquals(1, files.stream().distinct().count(), files.toString());
                try (Stream<Path> left = Files.list(files.get(0).getParent())) {
                    assertEquals(List.of(files.get(0)), left.toList());
                }
            }
        } finally {
            threads.shutdown();
        }
    }

    @Test
    void aDamagedFileIsWrittenAgain() throws Exception {
        new Random(7).nextBytes(BYTES);
        Path file = NativeCache.unpack(directory, "file", CONTENT);
        byte[] damaged = BYTES.clone();
        damaged[BYTES.length / 2] ^= 1;
        for (byte[] other : List.of(damaged, Arrays.copyOf(BYTES, 1), new byte[0])) {
            Files.write(file, other);
            assertEquals(file, NativeCache.unpack(directory, "file", CONTENT));
            assertArrayEquals(BYTES, Files.readAllBytes(file));
        }
    }

    @Test
    void everyParentFolderIsChecked() throws Exception {
        Path above = Files.createDirectory(directory.resolve("above"));
        Path cache = Files.createDirectory(above.resolve("cache"));
        NativeCache.unpack(cache, "file", CONTENT);
        allow(above, "rwxrwx---");
        assertRejected(cache, above + ": others can write to this folder");
        allow(above, "rwxr-xr-x");
        NativeCache.unpack(cache, "file", CONTENT);
        allow(NativeCache.unpack(cache, "file", CONTENT).getParent(), "rwx----w-");
        assertRejected(cache, ": others can write to this folder");
    }

    @Test
    void aFolderOfAnotherUserIsRejected() throws Exception {
        Path cache = Files.createDirectory(directory.resolve("cache"));
        assumeTrue(canGiveAway(cache), "only root can give a folder to another user");
        assertRejected(cache, cache + ": this folder belongs to another user");
    }

    private static boolean canGiveAway(Path folder) {
        try {
            Files.setAttribute(folder, "unix:uid", 12345);
            return true;
        } catch (IOException | UnsupportedOperationException exception) {
            return false;
        }
    }

    private static void allow(Path folder, String permissions) throws IOException {
        Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString(permissions));
    }

    private static void assertRejected(Path cache, String message) {
        FileSystemException thrown = assertThrows(FileSystemException.class,
                () -> NativeCache.unpack(cache, "file", CONTENT));
        assertTrue(thrown.getMessage().contains(message), thrown.getMessage());
    }
}
