package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.io.File;
import java.lang.ref.Reference;
import java.nio.file.FileSystems;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads and writes array files in the format of MXNet's {@code mx.nd.save} and {@code mx.nd.load}.
 * In a file, either all arrays have names or none has.
 *
 * <pre>{@code
 * NDArrayFile.save(Path.of("model.params"), Map.of("w", weights));
 * NDArray loaded = NDArrayFile.loadMap(Path.of("model.params")).get("w");
 * }</pre>
 *
 * <p>Saving writes a temporary file in the same folder and renames it, so the file is complete at
 * every moment. An existing file is replaced, even a read-only one, if the folder is writable.
 * Paths must belong to the default file system; others, such as a path in a zip file, fail with
 * {@code INVALID_ARGUMENT}. Loaded arrays are on {@code cpu(0)}. Sparse arrays become dense.
 */
public final class NDArrayFile {
    private NDArrayFile() {}

    /**
     * Writes arrays with their names.
     *
     * @param file the file, which is replaced if it exists
     * @param arrays the arrays by name, written in the order of the map
     * @throws KVStoreException with {@code IO} if the file cannot be written
     */
    public static void save(Path file, Map<String, NDArray> arrays) {
        requireNonNull(file, "file");
        Map<String, NDArray> fixed = new LinkedHashMap<>(requireNonNull(arrays, "arrays"));
        String[] names = fixed.keySet().toArray(String[]::new);
        NDArray[] values = fixed.values().toArray(NDArray[]::new);
        load();
        try {
            NativeFile.saveMap(name(file), names, NDArray.handles(values));
        } finally {
            Reference.reachabilityFence(values);
        }
    }

    /**
     * Writes arrays without names.
     *
     * @param file the file, which is replaced if it exists
     * @param arrays the arrays
     * @throws KVStoreException with {@code IO} if the file cannot be written
     */
    public static void save(Path file, List<NDArray> arrays) {
        requireNonNull(file, "file");
        requireNonNull(arrays, "arrays");
        NDArray[] values = arrays.toArray(NDArray[]::new);
        load();
        try {
            NativeFile.saveList(name(file), NDArray.handles(values));
        } finally {
            Reference.reachabilityFence(values);
        }
    }

    /**
     * Reads a file of named arrays.
     *
     * @param file the file
     * @return the arrays by name, in the order of the file; if a name occurs several times, the
     *     last array with that name
     * @throws KVStoreException with {@code IO} if the file cannot be read
     * @throws KVStoreException with {@code CORRUPT} if the file is damaged
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the arrays have no names
     */
    public static Map<String, NDArray> loadMap(Path file) {
        Content content = Content.of(file);
        if (content.names.length < content.arrays.length) {
            List.of(content.arrays).forEach(NDArray::close);
            throw KVStoreException.invalidArgument(
                    file + ": Loaded NDArrays have no name; load them as a list"
                            + " (`NDArrayFile.loadList`, `ndarray/load2-array`)");
        }
        Map<String, NDArray> arrays = new LinkedHashMap<>();
        for (int i = 0; i < content.names.length; i++) {
            NDArray earlier = arrays.put(content.names[i], content.arrays[i]);
            if (earlier != null) {
                earlier.close();
            }
        }
        return arrays;
    }

    /**
     * Reads a file of arrays, with or without names.
     *
     * @param file the file
     * @return the arrays in the order of the file
     * @throws KVStoreException with {@code IO} if the file cannot be read
     * @throws KVStoreException with {@code CORRUPT} if the file is damaged
     */
    public static List<NDArray> loadList(Path file) {
        return List.of(Content.of(file).arrays);
    }

    /**
     * Serializes an array: returns one record of a file, without the header of the file.
     *
     * @param array the array
     * @return the bytes
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the bytes do not fit into a Java
     *     array
     */
    public static byte[] serialize(NDArray array) {
        requireNonNull(array, "array");
        try {
            return NativeFile.serialize(array.handle());
        } finally {
            Reference.reachabilityFence(array);
        }
    }

    /**
     * Deserializes an array from the bytes that {@link #serialize} or the MXNet method of that name
     * has returned.
     *
     * @param bytes the bytes
     * @return a new array
     * @throws KVStoreException with {@code CORRUPT} if the bytes are damaged
     */
    public static NDArray deserialize(byte[] bytes) {
        requireNonNull(bytes, "bytes");
        long[] description =
                NativeMemory.allocate(bytes.length, () -> NativeFile.deserialize(bytes));
        return NDArray.adoptAll(description)[0];
    }

    private static void load() {
        NativeLibrary.load();
    }

    static String name(Path file) {
        if (file.getFileSystem() != FileSystems.getDefault()) {
            throw KVStoreException.invalidArgument(
                    file + ": expected a file of the operating system, found one in "
                            + file.getFileSystem());
        }
        String name = file.toString();
        if (name.indexOf('\uFFFD') >= 0) {
            throw KVStoreException.invalidArgument(
                    name + ": expected a file name in this JVM's encoding, found other bytes;"
                            + " run it in a UTF-8 locale");
        }
        return name;
    }

    private static final class Content {
        private final String[] names;
        private final NDArray[] arrays;

        private Content(String[] names, NDArray[] arrays) {
            this.names = names;
            this.arrays = arrays;
        }

        static Content of(Path path) {
            requireNonNull(path, "file");
            String file = name(path);
            Object[] content = new Object[2];
            long[] descriptions = NativeMemory.allocate(new File(file).length(), () -> {
                Object[] loaded = NativeFile.load(file);
                content[0] = loaded[0];
                return (long[]) loaded[1];
            });
            return new Content((String[]) content[0], NDArray.adoptAll(descriptions));
        }
    }
}
