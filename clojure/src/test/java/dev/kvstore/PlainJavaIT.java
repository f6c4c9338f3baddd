package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A Java program needs the jar and nothing else. */
class PlainJavaIT {
    private static final String PROGRAM =
            """
            import dev.kvstore.KVStore;
            import dev.kvstore.NDArray;
            import dev.kvstore.Shape;
            import java.util.Arrays;

            public class Program {
                public static void main(String[] arguments) {
                    try (KVStore store = KVStore.create();
                            NDArray ones = NDArray.ones(Shape.of(3))) {
                        store.init("a", ones);
                        store.setUpdater((key, pushed, stored) -> stored.addInPlace(pushed));
                        store.push("a", ones);
                        try (NDArray value = store.pull("a")) {
                            System.out.println(Arrays.toString(value.toFloats()));
                        }
                    }
                }
            }
            """;

    @TempDir
    Path directory;

    @Test
    void aProgramIsCompiledAndRunWithTheJarAlone() throws Exception {
        String jar = System.getProperty("kvstore.jar");
        assertNotNull(jar, "the system property kvstore.jar names the jar");
        Path source = Files.writeString(directory.resolve("Program.java"), PROGRAM);
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        ByteArrayOutputStream messages = new ByteArrayOutputStream();
        int status = compiler.run(null, messages, messages,
                "-Xlint:all", "-Werror", "-cp", jar, "-d", directory.toString(),
                source.toString());
        assertEquals(0, status, messages.toString());

        ChildJvm.Result result =
                new ChildJvm().run(jar + File.pathSeparator + directory, "Program");
        assertEquals("[2.0, 2.0, 2.0]\n", result.output());
    }

    @Test
    void theExampleRunsWithTheJarAlone() throws Exception {
        ChildJvm.Result result =
                new ChildJvm().run(System.getProperty("kvstore.jar"),
                        "dev.kvstore.examples.Quickstart");
        assertEquals(0, result.status(), result.output());
    }
}
