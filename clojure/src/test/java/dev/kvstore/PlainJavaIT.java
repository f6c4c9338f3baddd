package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tests that a Java program needs nothing but the jar. */
class PlainJavaIT {
    @TempDir
    Path directory;

    @Test
    void theQuickStartNeedsOnlyTheJar() throws Exception {
        String jar = System.getProperty("kvstore.jar");
        assertNotNull(jar, "the system property kvstore.jar names the jar");
        Path source = Files.writeString(directory.resolve("QuickStart.java"), quickStart());
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        ByteArrayOutputStream messages = new ByteArrayOutputStream();
        int status = compiler.run(null, messages, messages,
                "-Xlint:all", "-Werror", "-cp", jar, "-d", directory.toString(),
                source.toString());
        assertEquals(0, status, messages.toString());

        ChildJvm.Result result =
                new ChildJvm().run(jar + File.pathSeparator + directory, "QuickStart");
        assertEquals("3.0\n4.0\n", result.output());
    }

    /** Returns the Java program of the quick start. */
    private static String quickStart() throws IOException {
        String page = Files.readString(Path.of("..", "docs", "getting-started", "java.md"));
        Matcher block = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL).matcher(page);
        assertTrue(block.find(), "docs/getting-started/java.md has a Java program");
        return block.group(1);
    }

    @Test
    void theExampleNeedsOnlyTheJar() throws Exception {
        ChildJvm.Result result =
                new ChildJvm().run(System.getProperty("kvstore.jar"), QuickstartTest.SOURCE);
        assertEquals(0, result.status(), result.output());
    }
}
