package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.CORRUPT;
import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static dev.kvstore.KVStoreException.Code.IO;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.URI;
import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests array files in Java. Other tests cover the file format. */
class NDArrayFileTest {
    @TempDir
    Path directory;

    private static NDArray of(float... numbers) {
        return NDArray.of(numbers, Shape.of(numbers.length));
    }

    @Test
    void arraysWithNames() {
        Path file = directory.resolve("named.params");
        Map<String, NDArray> arrays = new LinkedHashMap<>();
        arrays.put("w", of(1, 2));
        arrays.put("b", of(3));
        NDArrayFile.save(file, arrays);
        Map<String, NDArray> loaded = NDArrayFile.loadMap(file);
        assertEquals(List.of("w", "b"), List.copyOf(loaded.keySet()));
        assertArrayEquals(new float[] {1, 2}, loaded.get("w").toFloats());
        assertEquals(2, NDArrayFile.loadList(file).size());
    }

    @Test
    void arraysWithoutNames() {
        Path file = directory.resolve("list.params");
        NDArrayFile.save(file, List.of(of(1, 2), of(3)));
        List<NDArray> loaded = NDArrayFile.loadList(file);
        assertEquals(2, loaded.size());
        assertArrayEquals(new float[] {3}, loaded.get(1).toFloats());
        long live = NativeMemory.liveBytes();
        Expect.code(INVALID_ARGUMENT, () -> NDArrayFile.loadMap(file));
        assertEquals(live, NativeMemory.liveBytes());
    }

    @Test
    void unreadableAndUnwritableFilesThrow() throws Exception {
        List<NDArray> arrays = List.of(of(1));
        Expect.code(IO, () -> NDArrayFile.loadList(directory.resolve("missing")));
        Expect.code(IO, () -> NDArrayFile.save(directory.resolve("missing/file"), arrays));
        Path damaged = Files.writeString(directory.resolve("damaged"), "no arrays");
        Expect.code(CORRUPT, () -> NDArrayFile.loadList(damaged));
        URI zip = URI.create("jar:" + directory.resolve("a.zip").toUri());
        try (FileSystem files = FileSystems.newFileSystem(zip, Map.of("create", "true"))) {
            Path inside = files.getPath("/arrays");
            Expect.code(INVALID_ARGUMENT, () -> NDArrayFile.save(inside, arrays));
            Expect.code(INVALID_ARGUMENT,
                    () -> NDArrayFile.save(inside, Map.of("w", arrays.get(0))));
            Expect.code(INVALID_ARGUMENT, () -> NDArrayFile.loadList(inside));
        }
    }
}
