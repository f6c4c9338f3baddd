package dev.kvstore;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Finds the JDKs of this machine with {@code scripts/jdks.sh}. */
final class Jdk {
    private static final Pattern VERSION = Pattern.compile("JAVA_VERSION=\"(\\d+)");

    private Jdk() {}

    /**
     * Returns the home of a JDK of at least this version, or skips the test and prints the reason.
     */
    static Path atLeast(int feature) throws IOException, InterruptedException {
        Path own = Path.of(System.getProperty("java.home"));
        if (Runtime.version().feature() >= feature) {
            return own;
        }
        for (String home : homes()) {
            if (feature(Path.of(home)) >= feature) {
                return Path.of(home);
            }
        }
        String reason = "needs JDK " + feature + " or later, and scripts/jdks.sh finds none";
        System.out.println("not run: " + reason);
        assumeTrue(false, reason);
        throw new AssertionError();
    }

    private static List<String> homes() throws IOException, InterruptedException {
        Path script = Path.of(System.getProperty("basedir", ""), "..", "scripts", "jdks.sh");
        Path output = Files.createTempFile("jdks", ".txt");
        try {
            Process process = new ProcessBuilder("sh", script.toString())
                    .redirectOutput(output.toFile())
                    .start();
            if (!process.waitFor(60, TimeUnit.SECONDS)) {
                process.destroyForcibly();
                throw new AssertionError(script + " did not end");
            }
            return Files.readAllLines(output);
        } finally {
            Files.delete(output);
        }
    }

    private static int feature(Path home) throws IOException {
        Matcher found = VERSION.matcher(Files.readString(home.resolve("release")));
        return found.find() ? Integer.parseInt(found.group(1)) : 0;
    }
}
