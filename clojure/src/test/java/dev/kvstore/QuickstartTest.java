package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.kvstore.examples.Quickstart;
import org.junit.jupiter.api.Test;

class QuickstartTest {
    @Test
    void itPrintsTheValues() throws Exception {
        String expected =
                """
                after init: [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
                the sum of a push replaces the value: [8.0, 8.0, 8.0, 8.0, 8.0, 8.0]
                unless there is an updater: [16.0, 16.0, 16.0, 16.0, 16.0, 16.0]
                """;
        assertEquals(expected, new ChildJvm().run(Quickstart.class).output());
    }
}
