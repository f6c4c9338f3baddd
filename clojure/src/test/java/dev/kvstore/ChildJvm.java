package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A Java program in its own process, for things that a process can do only once. */
final class ChildJvm {
    private final ProcessBuilder builder;
    private final List<String> command = new ArrayList<>();

    ChildJvm(String... options) {
        this(Path.of(System.getProperty("java.home")), options);
    }

    /** Creates a process of another JDK. */
    ChildJvm(Path home, String... options) {
        command.add(home.resolve(Path.of("bin", "java")).toString());
        command.add("--enable-native-access=ALL-UNNAMED");
        command.addAll(List.of(options));
        builder = new ProcessBuilder().redirectErrorStream(true);
    }

    /**
     * Creates a process of the JDK at {@code home}, without the options that begin with
     * {@code option}.
     */
    static ChildJvm without(String option, Path home, String... options) {
        ChildJvm jvm = new ChildJvm(home, options);
        jvm.command.removeIf(part -> part.startsWith(option));
        return jvm;
    }

    /** The exit status and output of a program. */
    record Result(int status, String output) {}

    /** Makes a shell prepare the process: it runs {@code script}, then replaces itself by Java. */
    ChildJvm prepared(List<String> shell, String script) {
        List<String> prefix = new ArrayList<>(shell);
        prefix.addAll(List.of(script + " && exec \"$@\"", "java"));
        return startedBy(prefix);
    }

    /** Makes this command start Java. The Java command is appended to its arguments. */
    ChildJvm startedBy(List<String> launcher) {
        command.addAll(0, launcher);
        return this;
    }

    ChildJvm environment(String name, String value) {
        builder.environment().put(name, value);
        return this;
    }

    /** Runs a class with the class path of the tests. */
    Result run(Class<?> main, String... arguments) throws IOException, InterruptedException {
        return run(System.getProperty("java.class.path"), main.getName(), arguments);
    }

    /**
     * Starts a class, whose name may precede its arguments, with the class path of the tests. The
     * caller ends the process.
     */
    Process start(List<String> program) throws IOException {
        command.addAll(List.of("-cp", System.getProperty("java.class.path")));
        command.addAll(program);
        return builder.command(command).start();
    }

    Result run(String classPath, String main, String... arguments)
            throws IOException, InterruptedException {
        command.addAll(List.of("-cp", classPath, main));
        command.addAll(List.of(arguments));
        // Use a file rather than a pipe: a program that hangs must not block the reader.
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
