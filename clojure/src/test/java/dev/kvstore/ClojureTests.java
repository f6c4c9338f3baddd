package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import clojure.java.api.Clojure;
import clojure.lang.IFn;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicContainer;
import org.junit.jupiter.api.DynamicNode;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/**
 * Runs every {@code deftest} of every namespace under {@code src/test/clojure} as a separate test.
 * The fixtures of a namespace, including {@code :once} fixtures, run around each of them.
 */
class ClojureTests {
    private static final Path SOURCES =
            Path.of(System.getProperty("basedir", ""), "src", "test", "clojure");

    private static final IFn REQUIRE = Clojure.var("clojure.core", "require");

    /** Returns the tests of a namespace, in the order of its file. */
    private static final String TESTS_OF =
            """
            (fn [namespace]
              (->> (ns-interns namespace)
                   vals
                   (filter (comp :test meta))
                   (sort-by (comp :line meta))))
            """;

    /**
     * Returns why a test cannot run here, or nil. The function `reason-to-skip` of a namespace
     * returns such a reason. A test with the tag ^:host needs arrays on the CPU, so it does not run
     * when bin/check-gpu maps CPUs to GPUs.
     */
    private static final String REASON_TO_SKIP =
            """
            (fn [test]
              (if (and (:host (meta test)) (Boolean/getBoolean "dev.kvstore.test.gpuAsCpu"))
                "a test of the host"
                (when-let [reason (ns-resolve (:ns (meta test)) (symbol "reason-to-skip"))]
                  (reason))))
            """;

    /** Runs a test and returns its failures as a string. */
    private static final String FAILURES_OF =
            """
            (fn [test]
              (let [failures (java.util.ArrayList.)]
                (binding [clojure.test/report
                          (fn [event]
                            (when (#{:fail :error} (:type event))
                              (.add failures
                                    (with-out-str
                                      (binding [clojure.test/*test-out* *out*]
                                        (println (clojure.test/testing-vars-str event))
                                        (println (clojure.test/testing-contexts-str))
                                        (println (:message event))
                                        (println "expected:" (pr-str (:expected event)))
                                        (if (instance? Throwable (:actual event))
                                          (clojure.stacktrace/print-cause-trace (:actual event) 12)
                                          (println "  actual:" (pr-str (:actual event)))))))))]
                  (clojure.test/test-vars [test]))
                failures))
            """;

    @TestFactory
    Stream<DynamicNode> namespaces() throws IOException {
        try (Stream<Path> files = Files.walk(SOURCES)) {
            List<Path> sources = files
                    .filter(file -> file.toString().matches(".*\\.cljc?"))
                    .sorted()
                    .toList();
            assertFalse(sources.isEmpty(), "no namespaces in " + SOURCES.toAbsolutePath());
            return sources.stream().flatMap(ClojureTests::namespace);
        }
    }

    private static Stream<DynamicNode> namespace(Path file) {
        String name = SOURCES.relativize(file).toString()
                .replaceFirst("\\.cljc?$", "")
                .replace(file.getFileSystem().getSeparator(), ".")
                .replace('_', '-');
        Object namespace = Clojure.read(name);
        try {
            load(namespace);
        } catch (Throwable failure) {
            return Stream.of(DynamicTest.dynamicTest(name + " loads", () -> {
                throw failure;
            }));
        }
        List<?> tests = (List<?>) function(TESTS_OF).invoke(namespace);
        // JUnit would report a container without tests as a passed test.
        return tests.isEmpty()
                ? Stream.empty()
                : Stream.of(DynamicContainer.dynamicContainer(
                        name, tests.stream().map(ClojureTests::test)));
    }

    private static void load(Object namespace) {
        REQUIRE.invoke(Clojure.read("clojure.test"));
        REQUIRE.invoke(Clojure.read("clojure.stacktrace"));
        REQUIRE.invoke(namespace);
    }

    private static DynamicTest test(Object test) {
        return DynamicTest.dynamicTest(test.toString(), () -> {
            Object reason = function(REASON_TO_SKIP).invoke(test);
            assumeTrue(reason == null, () -> reason.toString());
            List<?> failures = (List<?>) function(FAILURES_OF).invoke(test);
            assertTrue(failures.isEmpty(), () -> String.join("\n", failures.stream()
                    .map(Object::toString)
                    .toList()));
        });
    }

    private static IFn function(String source) {
        return (IFn) Clojure.var("clojure.core", "eval").invoke(Clojure.read(source));
    }
}
