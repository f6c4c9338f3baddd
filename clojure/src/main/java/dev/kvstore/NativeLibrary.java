package dev.kvstore;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;

/**
 * Loads the native library once, at its first use. The system property {@code dev.kvstore.library}
 * names a file to load; otherwise the one in the jar is unpacked into the user's cache directory, in a
 * folder named by its content, or into a new temporary folder where that is not possible.
 */
final class NativeLibrary {
    static final String PROPERTY = "dev.kvstore.library";

    private NativeLibrary() {}

    /** Makes sure that native methods can be called. Cheap when repeated. */
    static void load() {
        if (Holder.FAILURE != null) {
            throw new KVStoreException(KVStoreException.Code.BACKEND, Holder.FAILURE);
        }
    }

    /** What was tried, in order, each with its outcome. Never throws. */
    static List<String> attempts() {
        return Holder.ATTEMPTS;
    }

    /** Whether native methods can be called. Never throws. */
    static boolean isLoaded() {
        return Holder.FAILURE == null;
    }

    /** The folder of the jar that holds the library for this machine. */
    static String platform() {
        String name = System.getProperty("os.name", "unknown").toLowerCase(Locale.ROOT);
        String os = name.startsWith("mac") ? "macos" : name.startsWith("windows") ? "windows" : name;
        String arch = System.getProperty("os.arch", "unknown");
        return os + "-" + (arch.equals("amd64") ? "x86_64" : arch);
    }

    /** Its initialisation loads the library, and does not fail, so that it is never tried twice. */
    private static final class Holder {
        static final List<String> ATTEMPTS;
        static final String FAILURE;

        static {
            List<String> attempts = new ArrayList<>();
            boolean loaded = false;
            try {
                loaded = new Loader(attempts).load();
            } catch (RuntimeException exception) {
                attempts.add(exception.toString());
            }
            ATTEMPTS = List.copyOf(attempts);
            FAILURE = loaded
                    ? null
                    : "native library cannot be loaded; tried " + String.join("; ", attempts);
        }
    }

    private static final class Loader {
        private final List<String> attempts;

        Loader(List<String> attempts) {
            this.attempts = attempts;
        }

        boolean load() {
            String property = System.getProperty(PROPERTY);
            if (property != null) {
                // Whoever names a file wants that file: another one would only hide the mistake.
                return open(Path.of(property).toAbsolutePath(), "system property " + PROPERTY + ": ");
            }
            String resource =
                    "/natives/" + platform() + "/" + System.mapLibraryName("kvstore_jni");
            byte[] content = read(resource);
            return content != null && (openCached(resource, content) || openTemporary(content));
        }

        private byte[] read(String resource) {
            try (InputStream stream = NativeLibrary.class.getResourceAsStream(resource)) {
                if (stream == null) {
                    attempts.add("jar resource " + resource + ": not there");
                    return null;
                }
                return stream.readAllBytes();
            } catch (IOException exception) {
                attempts.add("jar resource " + resource + ": " + exception);
                return null;
            }
        }

        private boolean openCached(String resource, byte[] content) {
            Path file = cacheDirectory().resolve(hash(content))
                    .resolve(Path.of(resource).getFileName().toString());
            try {
                if (!holds(file, content)) {
                    unpack(file, content);
                }
            } catch (IOException | UnsupportedOperationException exception) {
                attempts.add(file + ": " + exception);
                return false;
            }
            return open(file, "");
        }

        /** A file of its own also serves a second class loader, which may not load the same file. */
        private boolean openTemporary(byte[] content) {
            Path directory = null;
            Path file = null;
            try {
                directory = Files.createTempDirectory("kvstore-");
                file = directory.resolve(System.mapLibraryName("kvstore_jni"));
                Files.write(file, content);
                return open(file, "");
            } catch (IOException exception) {
                attempts.add("temporary directory: " + exception);
                return false;
            } finally {
                deleteAtExit(directory);
                deleteAtExit(file);
            }
        }

        private boolean open(Path file, String origin) {
            try {
                System.load(file.toString());
                attempts.add(origin + file + ": loaded");
                return true;
            } catch (UnsatisfiedLinkError | SecurityException exception) {
                attempts.add(origin + file + ": " + exception.getMessage());
                return false;
            }
        }

        private static boolean holds(Path file, byte[] content) throws IOException {
            return Files.isRegularFile(file) && Arrays.equals(Files.readAllBytes(file), content);
        }

        /** Renames a finished file into place: another process sees a whole one or none. */
        private static void unpack(Path file, byte[] content) throws IOException {
            Files.createDirectories(file.getParent());
            Path part = Files.createTempFile(file.getParent(), "part-", "");
            try {
                Files.write(part, content);
                Files.move(part, file, StandardCopyOption.ATOMIC_MOVE);
            } finally {
                Files.deleteIfExists(part);
            }
        }

        private static void deleteAtExit(Path path) {
            if (path != null) {
                path.toFile().deleteOnExit();
            }
        }

        private static Path cacheDirectory() {
            String cache = System.getenv("XDG_CACHE_HOME");
            return cache == null || cache.isEmpty()
                    ? Path.of(System.getProperty("user.home", ""), ".cache", "kvstore")
                    : Path.of(cache, "kvstore");
        }

        private static String hash(byte[] content) {
            try {
                byte[] digest = MessageDigest.getInstance("SHA-256").digest(content);
                return HexFormat.of().formatHex(digest, 0, 16);
            } catch (NoSuchAlgorithmException exception) {
                throw new AssertionError("every Java platform has SHA-256", exception);
            }
        }
    }
}
