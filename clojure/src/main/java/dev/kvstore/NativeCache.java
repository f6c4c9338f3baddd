package dev.kvstore;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Map;
import java.util.zip.CRC32;

/**
 * A cache of unpacked files, in folders named by their contents. A user who can change such a file
 * can run code in this process, so a folder that other users can write to is rejected.
 */
final class NativeCache {
    static final String PROPERTY = "dev.kvstore.cache";

    private static final int WRITABLE_BY_OTHERS = 0022;
    private static final int STICKY = 01000;
    private static final int ROOT = 0;

    private NativeCache() {}

    /** Returns the folder of the property, or the default cache folder of the user. */
    static Path folder() throws IOException {
        String named = System.getProperty(PROPERTY);
        if (named != null) {
            return Path.of(named).toAbsolutePath();
        }
        String caches = System.getenv("XDG_CACHE_HOME");
        if (caches != null && Path.of(caches).isAbsolute()) {
            return Path.of(caches, "kvstore");
        }
        // The JVM reports `?` as the home of a user without an entry in the user database.
        Path home = Path.of(System.getProperty("user.home", ""));
        if (!home.isAbsolute()) {
            throw new IOException("no home folder found: set the system property " + PROPERTY);
        }
        return home.resolve(Path.of(".cache", "kvstore"));
    }

    /** Content that can be read again. It is never in memory as a whole: the heap may be small. */
    interface Content {
        InputStream open() throws IOException;
    }

    /**
     * Returns a file with this name and content, and writes it if it does not exist. It is written
     * to a temporary file and renamed, so that other processes see a complete file or none.
     */
    static Path unpack(Path cache, String name, Content content) throws IOException {
        String version = version(content);
        Path folder = cache.resolve(version);
        createPrivate(folder);
        rejectIfOthersCanWrite(folder);
        Path file = folder.resolve(name);
        if (Files.isRegularFile(file)
                && version(() -> Files.newInputStream(file)).equals(version)) {
            return file;
        }
        Path part = Files.createTempFile(folder, "part-", "");
        try {
            write(content, part);
            Files.move(part, file, StandardCopyOption.ATOMIC_MOVE);
        } finally {
            Files.deleteIfExists(part);
        }
        return file;
    }

    /** Writes content to a file, in pieces. */
    static void write(Content content, Path file) throws IOException {
        try (InputStream in = content.open();
                OutputStream out = Files.newOutputStream(file)) {
            in.transferTo(out);
        }
    }

    private static void createPrivate(Path folder) throws IOException {
        boolean posix = folder.getFileSystem().supportedFileAttributeViews().contains("posix");
        FileAttribute<?>[] attributes = posix
                ? new FileAttribute<?>[] {PosixFilePermissions.asFileAttribute(
                        PosixFilePermissions.fromString("rwx------"))}
                : new FileAttribute<?>[0];
        Files.createDirectories(folder, attributes);
    }

    /**
     * Throws if other users can write to the folder or replace it. Checks the parent folders too,
     * because a user who can rename one of them can replace it.
     */
    private static void rejectIfOthersCanWrite(Path folder) throws IOException {
        if (!folder.getFileSystem().supportedFileAttributeViews().contains("unix")) {
            return;
        }
        Path leaf = folder.toRealPath();
        int user = user();
        for (Path path = leaf; path != null; path = path.getParent()) {
            Map<String, Object> attributes = Files.readAttributes(path, "unix:uid,mode");
            int owner = (int) attributes.get("uid");
            int mode = (int) attributes.get("mode");
            if (owner != user && owner != ROOT) {
                throw new FileSystemException(
                        path.toString(), null, "this folder belongs to another user");
            }
            // In a folder with the sticky bit, such as /tmp, only its owner can rename a file.
            boolean sticky = (mode & STICKY) != 0 && !path.equals(leaf);
            if ((mode & WRITABLE_BY_OTHERS) != 0 && !sticky) {
                throw new FileSystemException(
                        path.toString(), null, "others can write to this folder");
            }
        }
    }

    /**
     * Returns the user ID of this process. Java has no method for it, so this reads the owner of a
     * file of the process.
     */
    private static int user() throws IOException {
        Path process = Path.of("/proc/self");
        if (Files.exists(process)) {
            return (int) Files.getAttribute(process, "unix:uid");
        }
        Path file = Files.createTempFile("kvstore-", "");
        try {
            return (int) Files.getAttribute(file, "unix:uid");
        } finally {
            Files.delete(file);
        }
    }

    /**
     * Returns a folder name that differs between versions of the content. A checksum is enough for
     * that, and a cryptographic digest takes 150 ms in a cold JVM.
     */
    private static String version(Content content) throws IOException {
        CRC32 checksum = new CRC32();
        byte[] piece = new byte[1 << 16];
        long length = 0;
        try (InputStream in = content.open()) {
            for (int count; (count = in.read(piece)) > 0; length += count) {
                checksum.update(piece, 0, count);
            }
        }
        return String.format("%08x-%x", checksum.getValue(), length);
    }
}
