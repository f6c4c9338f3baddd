package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;

/** Runs the example in {@code examples/java}. The JDK compiles and runs it in one step. */
class QuickstartTest {
    static final String SOURCE = Path.of("..", "examples", "java", "Quickstart.java").toString();

    @Test
    void theExamplePrintsTheValues() throws Exception {
        String expected =
                """
                after init: [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
                the sum of a push replaces the value: [8.0, 8.0, 8.0, 8.0, 8.0, 8.0]
                unless there is an updater: [16.0, 16.0, 16.0, 16.0, 16.0, 16.0]
                """;
        String classPath = System.getProperty("java.class.path");
        assertEquals(expected, new ChildJvm().run(classPath, SOURCE).output());
    }
}
