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
 * Files of arrays in the format of MXNet: what {@code mx.nd.save} writes can be loaded, and the
 * reverse. A file holds arrays, either each with a name or all without.
 *
 * <pre>{@code
 * NDArrayFile.save(Path.of("model.params"), Map.of("w", weights));
 * NDArray loaded = NDArrayFile.loadMap(Path.of("model.params")).get("w");
 * }</pre>
 *
 * <p>A file is written beside and then renamed, so that it is whole at every moment; what a folder lets
 * replace is replaced, a file that is read-only too. A path of another file system than that of the
 * operating system, in a zip file say, is {@code INVALID_ARGUMENT}. Loaded arrays are on
 * {@code cpu(0)}; sparse ones become dense.
 */
public final class NDArrayFile {
    private NDArrayFile() {}

    /**
     * Writes arrays with their names.
     *
     * @param file the file, which is replaced when it is there
     * @param arrays the arrays by name, written in the order of the map
     * @throws KVStoreException with {@code IO} when it cannot be written
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
     * @param file the file, which is replaced when it is there
     * @param arrays the arrays
     * @throws KVStoreException with {@code IO} when it cannot be written
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
     * Reads a file of arrays with names.
     *
     * @param file the file
     * @return the arrays by name in the order of the file; of several with one name the last
     * @throws KVStoreException with {@code IO} when it cannot be read, {@code CORRUPT} when it is
     *     damaged, {@code INVALID_ARGUMENT} when its arrays have no names
     */
    public static Map<String, NDArray> loadMap(Path file) {
        Content content = Content.of(file);
        if (content.names.length < content.arrays.length) {
            List.of(content.arrays).forEach(NDArray::close);
            throw KVStoreException.invalidArgument(file + ": Loaded NDArrays have no name");
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
     * Reads a file of arrays, whether they have names or not.
     *
     * @param file the file
     * @return the arrays in the order of the file
     * @throws KVStoreException with {@code IO} when it cannot be read, {@code CORRUPT} when it is
     *     damaged
     */
    public static List<NDArray> loadList(Path file) {
        return List.of(Content.of(file).arrays);
    }

    /**
     * Returns an array as bytes: one record of a file, without the file around it.
     *
     * @param array the array
     * @return its bytes
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when they do not fit into a Java array
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
     * Returns the array of {@link #serialize}, or of MXNet's method with that name.
     *
     * @param bytes what it returned
     * @return a new array
     * @throws KVStoreException with {@code CORRUPT} when the bytes are damaged
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
                    file + " is in " + file.getFileSystem() + ", expected a file of the operating system");
        }
        String name = file.toString();
        if (name.indexOf('\uFFFD') >= 0) {
            throw KVStoreException.invalidArgument(
                    "the name " + name + " has bytes that are no text in this JVM's encoding");
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
