package dev.kvstore;

import java.io.IOException;
import java.net.URL;
import java.nio.file.DirectoryStream;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Loads the native library once, on first use. If the system property {@code dev.kvstore.library}
 * is set, it names the file to load. Otherwise the library in the jar is unpacked into the user's
 * cache folder, or into the folder of the property {@code dev.kvstore.cache}. If that folder is not
 * safe or not usable, the library is unpacked into a new temporary folder.
 */
final class NativeLibrary {
    static final String PROPERTY = "dev.kvstore.library";

    private static final String NAME = "kvstore_jni";

    /** The platforms for which a jar can contain the library, with the name of its file. */
    private static final Map<String, String> FILES = Map.of(
            "linux-x86_64", "libkvstore_jni.so",
            "linux-aarch64", "libkvstore_jni.so",
            "macos-aarch64", "libkvstore_jni.dylib",
            "macos-x86_64", "libkvstore_jni.dylib");

    private NativeLibrary() {}

    /** Loads the library if it is not loaded yet. Throws if it cannot be loaded. */
    static void load() {
        String failure = outcome().failure;
        if (failure != null) {
            throw new KVStoreException(KVStoreException.Code.BACKEND, failure);
        }
    }

    /** Returns the files that were tried, in order, each with its result. */
    static List<String> attempts() {
        return outcome().attempts;
    }

    /** Returns whether the library is loaded, after trying to load it. */
    static boolean isLoaded() {
        return outcome().failure == null;
    }

    /** Returns the name of this platform, which is also the folder of its library in the jar. */
    static String platform() {
        String name = System.getProperty("os.name", "unknown").toLowerCase(Locale.ROOT);
        String os = name.startsWith("mac")
                ? "macos"
                : name.startsWith("windows") ? "windows" : name;
        String arch = System.getProperty("os.arch", "unknown");
        return os + "-" + (arch.equals("amd64") ? "x86_64" : arch);
    }

    /**
     * The result of loading the library.
     *
     * @param attempts the files that were tried, in order, each with its result
     * @param failure null if the library is loaded
     */
    private record Outcome(List<String> attempts, String failure) {}

    /**
     * Null until the first attempt to load, and still null after an attempt that ran out of memory.
     */
    private static volatile Outcome outcome;

    private static Outcome outcome() {
        Outcome known = outcome;
        return known != null ? known : tryOnce();
    }

    /**
     * Loads the library. This is the only place that holds a lock during slow work. It cannot
     * deadlock with virtual threads, because no thread has a native frame before the library is
     * loaded.
     */
    private static synchronized Outcome tryOnce() {
        if (outcome == null) {
            List<String> attempts = new ArrayList<>();
            boolean loaded = false;
            try {
                loaded = new Loader(attempts).load();
            } catch (RuntimeException exception) {
                attempts.add(exception.toString());
            }
            String failure = "native library cannot be loaded: " + String.join("; ", attempts);
            outcome = new Outcome(List.copyOf(attempts), loaded ? null : failure);
        }
        return outcome;
    }

    private static final class Loader {
        private final List<String> attempts;
        /**
         * Whether the JVM denies native access. Then loading another file cannot succeed either.
         */
        private boolean isDenied;

        Loader(List<String> attempts) {
            this.attempts = attempts;
        }

        boolean load() {
            String property = System.getProperty(PROPERTY);
            if (property != null) {
                // Do not fall back to another file: it would hide the mistake in the property.
                return open(
                        Path.of(property).toAbsolutePath(), "system property " + PROPERTY + ": ");
            }
            URL resource = NativeLibrary.class
                    .getResource(resource(platform(), System.mapLibraryName(NAME)));
            if (resource == null) {
                attempts.add(absence());
                return false;
            }
            return openCached(resource::openStream)
                    || !isDenied && openTemporary(resource::openStream);
        }

        private static String absence() {
            List<String> there = FILES.keySet().stream()
                    .filter(name -> NativeLibrary.class
                            .getResource(resource(name, FILES.get(name))) != null)
                    .sorted()
                    .toList();
            return "the jar has none for " + platform()
                    + (there.isEmpty() ? "" : ", only for " + String.join(", ", there))
                    + "; `make jar` on such a machine builds one, -D" + PROPERTY + "=FILE loads it";
        }

        private boolean openCached(NativeCache.Content content) {
            Path file;
            try {
                file = NativeCache.unpack(
                        NativeCache.folder(), System.mapLibraryName(NAME), content);
            } catch (IOException | RuntimeException exception) {
                attempts.add("cache: " + reason(exception));
                return false;
            }
            return open(file, "");
        }

        /**
         * Loads the library from a new temporary file. This also works for a second class loader,
         * which must not load the same file again.
         */
        private boolean openTemporary(NativeCache.Content content) {
            Path directory = null;
            Path file = null;
            try {
                // Java creates the folder with an unpredictable name and without access for other
                // users.
                directory = Files.createTempDirectory("kvstore-");
                file = directory.resolve(System.mapLibraryName(NAME));
                NativeCache.write(content, file);
                return open(file, "");
            } catch (IOException exception) {
                attempts.add("temporary folder: " + exception);
                return false;
            } finally {
                delete(file);
                delete(directory);
            }
        }

        private boolean open(Path file, String origin) {
            try {
                System.load(file.toString());
                NativeRuntime.prepare();
                attempts.add(origin + file + ": loaded");
                return true;
            } catch (IllegalCallerException denied) {
                isDenied = true;
                attempts.add(origin + file + ": native access is denied (" + denied.getMessage()
                        + "); start Java with --enable-native-access=" + module());
                return false;
            } catch (UnsatisfiedLinkError | SecurityException exception) {
                attempts.add(origin + file + ": " + reason(file, exception.getMessage()));
                return false;
            }
        }

        /** Returns the name of this module for {@code --enable-native-access}. */
        private static String module() {
            Module module = NativeLibrary.class.getModule();
            return module.isNamed() ? module.getName() : "ALL-UNNAMED";
        }

        private static String reason(Path file, String message) {
            String reason = message.replace(file + ": ", "");
            if (reason.contains("failed to map segment")) {
                return reason + " (is the folder mounted noexec? -D" + NativeCache.PROPERTY
                        + "=FOLDER names another)";
            }
            return hasMusl(Path.of("/lib"))
                    ? reason + " (this system has the C library musl, the library needs glibc)"
                    : reason;
        }

        private static String reason(Exception exception) {
            return exception instanceof FileSystemException failure && failure.getReason() != null
                    ? failure.getMessage()
                    : exception.toString();
        }

        /**
         * Deletes a file or folder, which a loaded library does not need any longer. On Windows, it
         * is deleted at the exit of the JVM.
         */
        private static void delete(Path path) {
            try {
                if (path != null) {
                    Files.deleteIfExists(path);
                }
            } catch (IOException exception) {
                path.toFile().deleteOnExit();
            }
        }
    }

    private static String resource(String platform, String file) {
        return "/natives/" + platform + "/" + file;
    }

    /**
     * Returns whether a folder of system libraries contains the loader of musl, as on Alpine. Never
     * throws.
     */
    static boolean hasMusl(Path libraries) {
        try (DirectoryStream<Path> loaders =
                Files.newDirectoryStream(libraries, "ld-musl-*")) {
            return loaders.iterator().hasNext();
        } catch (IOException exception) {
            return false;
        }
    }
}
