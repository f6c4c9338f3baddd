package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A Java program in a process of its own, for what one process can do only once. */
final class ChildJvm {
    private final ProcessBuilder builder;
    private final List<String> command = new ArrayList<>();

    ChildJvm(String... options) {
        this(Path.of(System.getProperty("java.home")), options);
    }

    /** A process of another JDK. */
    ChildJvm(Path home, String... options) {
        command.add(home.resolve(Path.of("bin", "java")).toString());
        command.add("--enable-native-access=ALL-UNNAMED");
        command.addAll(List.of(options));
        builder = new ProcessBuilder().redirectErrorStream(true);
    }

    /** A process of the JDK at {@code home}, without options that begin with {@code option}. */
    static ChildJvm without(String option, Path home, String... options) {
        ChildJvm jvm = new ChildJvm(home, options);
        jvm.command.removeIf(part -> part.startsWith(option));
        return jvm;
    }

    /** What a finished program left behind. */
    record Result(int status, String output) {}

    /** Has a shell prepare the process: it runs {@code script}, and then Java in its place. */
    ChildJvm prepared(List<String> shell, String script) {
        List<String> prefix = new ArrayList<>(shell);
        prefix.addAll(List.of(script + " && exec \"$@\"", "java"));
        return startedBy(prefix);
    }

    /** Has this command start Java, which it gets as its last arguments. */
    ChildJvm startedBy(List<String> launcher) {
        command.addAll(0, launcher);
        return this;
    }

    ChildJvm environment(String name, String value) {
        builder.environment().put(name, value);
        return this;
    }

    /** Runs a class of the tests on the class path of the tests. */
    Result run(Class<?> main, String... arguments) throws IOException, InterruptedException {
        return run(System.getProperty("java.class.path"), main.getName(), arguments);
    }

    Result run(String classPath, String main, String... arguments)
            throws IOException, InterruptedException {
        command.addAll(List.of("-cp", classPath, main));
        command.addAll(List.of(arguments));
        // A file and not a pipe: a program that hangs must not hang its reader too.
        Path output = Files.createTempFile("child-jvm", ".txt");
        try {
            Process process =
                    builder.command(command).redirectOutput(output.toFile()).start();
            boolean ended = process.waitFor(120, TimeUnit.SECONDS);
            if (!ended) {
                process.descendants().forEach(ProcessHandle::destroyForcibly);
                process.destroyForcibly().waitFor();
            }
            String text = Files.readString(output, StandardCharsets.UTF_8);
            assertTrue(ended, () -> main + " did not end; it printed: " + text);
            return new Result(process.exitValue(), text);
        } finally {
            Files.delete(output);
        }
    }
}
