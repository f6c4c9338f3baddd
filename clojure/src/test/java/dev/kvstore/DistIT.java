package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Tests jobs of two JVMs, which the installed MPI launchers start. {@link DistJob} is the program
 * of the ranks.
 */
@EnabledOnOs(OS.LINUX)
class DistIT {
    private static final int NUM_RANKS = 2;

    /** Matches errors of launchers, libraries and the JVM. */
    private static final Pattern COMPLAINT = Pattern.compile(
            "abnormal|abort|bad termination|improperly|finalize|caught signal|exception|fatal",
            Pattern.CASE_INSENSITIVE);

    /** A launcher that starts both ranks on this machine. */
    enum Mpi {
        OPEN_MPI(
                "mpirun.openmpi --oversubscribe --allow-run-as-root "
                        + "--mca btl tcp,self --mca btl_tcp_if_include lo",
                "openmpi-bin",
                true),
        MPICH("mpirun.mpich", "mpich", false);

        private final List<String> command = new ArrayList<>();
        private final String packages;
        /**
         * Whether the launcher fails if it receives a signal. MPICH's launcher ends the job and
         * returns success.
         */
        private final boolean tellsOfSignals;

        Mpi(String command, String packages, boolean tellsOfSignals) {
            this.command.addAll(List.of(command.split(" ")));
            this.command.addAll(List.of("-n", String.valueOf(NUM_RANKS)));
            this.packages = packages;
            this.tellsOfSignals = tellsOfSignals;
        }

        boolean isInstalled() {
            return Stream.of(System.getenv("PATH").split(File.pathSeparator))
                    .anyMatch(folder -> Files.isExecutable(Path.of(folder, command.get(0))));
        }

        String reason() {
            return "`" + command.get(0) + "` is not installed (" + packages + ")";
        }
    }

    @TempDir
    Path folder;

    @BeforeAll
    static void printWhatIsSkipped() {
        List<String> reasons =
                Stream.of(Mpi.values()).filter(mpi -> !mpi.isInstalled()).map(Mpi::reason).toList();
        if (!reasons.isEmpty()) {
            System.out.println("not run: tests of JVMs in a job, " + String.join(", ", reasons));
        }
    }

    private static ChildJvm job(Mpi mpi) {
        assumeTrue(mpi.isInstalled(), mpi::reason);
        return new ChildJvm().startedBy(mpi.command).environment("KVSTORE_DIST_TIMEOUT", "60");
    }

    /** Runs a Java program with only the jar on the class path. */
    private static ChildJvm.Result runJava(ChildJvm jvm, String program) throws Exception {
        Path tests =
                Path.of(DistJob.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        String classPath = System.getProperty("kvstore.jar") + File.pathSeparator + tests;
        return jvm.run(classPath, DistJob.class.getName(), program);
    }

    private static ChildJvm.Result runClojure(ChildJvm jvm, String program) throws Exception {
        return jvm.run(System.getProperty("java.class.path"), "clojure.main", "-m",
                "dev.kvstore.dist-job", program);
    }

    /** Asserts that both ranks have finished and the launcher reported no error. */
    private static void assertDone(ChildJvm.Result job) {
        assertEquals(0, job.status(), job.output());
        for (int rank = 0; rank < NUM_RANKS; rank++) {
            assertTrue(job.output().contains("rank " + rank + " is done"), job.output());
        }
        assertFalse(COMPLAINT.matcher(job.output()).find(), job.output());
    }

    @ParameterizedTest
    @EnumSource
    void javaProgramsShareAStore(Mpi mpi) throws Exception {
        assertDone(runJava(job(mpi), "verbs"));
    }

    @ParameterizedTest
    @EnumSource
    void clojureProgramsShareAStore(Mpi mpi) throws Exception {
        assertDone(runClojure(job(mpi), "verbs"));
    }

    @ParameterizedTest
    @EnumSource
    void aCheckpointOfOneRankIsRestoredByAllRanks(Mpi mpi) throws Exception {
        assertDone(runJava(job(mpi), "state"));
    }

    @ParameterizedTest
    @EnumSource
    void aJobWithAnUnclosedStoreEndsSuccessfully(Mpi mpi) throws Exception {
        assertDone(runJava(job(mpi), "unclosed"));
        assertDone(runClojure(job(mpi), "unclosed"));
    }

    @ParameterizedTest
    @EnumSource
    void theSignalHandlersOfTheJvmStayInstalled(Mpi mpi) throws Exception {
        assertDone(runJava(job(mpi), "faults"));
    }

    @ParameterizedTest
    @EnumSource
    void aRankThatExitsOrThrowsFailsTheJob(Mpi mpi) throws Exception {
        for (String program : List.of("exit", "throw")) {
            ChildJvm.Result job = runJava(job(mpi), program);
            assertNotEquals(0, job.status(), job.output());
            assertFalse(job.output().contains("is done"), job.output());
        }
    }

    @ParameterizedTest
    @CsvSource({"OPEN_MPI, TERM", "OPEN_MPI, INT", "MPICH, TERM", "MPICH, INT"})
    void aSignalEndsTheJob(Mpi mpi, String signal) throws Exception {
        ChildJvm launcher = job(mpi).environment("SIGNAL", signal);
        // Start the job in its own process group, as a terminal does.
        launcher.prepared(List.of("setsid", "sh", "-c"), "export LAUNCHER=$$");
        ChildJvm.Result job = runJava(launcher, "signal");
        assertTrue(job.status() != 0 || !mpi.tellsOfSignals, job.output());
        assertFalse(job.output().contains("is done"), job.output());
        List<Long> ranks = job.output().lines()
                .filter(line -> line.startsWith("process "))
                .map(line -> Long.valueOf(line.substring("process ".length())))
                .toList();
        assertEquals(NUM_RANKS, ranks.size(), job.output());
        for (long rank : ranks) {
            ProcessHandle.of(rank).ifPresent(
                    process -> process.onExit().orTimeout(30, TimeUnit.SECONDS).join());
        }
    }

    /**
     * Puts empty library files first on the search path, so that the result is the same if an MPI
     * is installed.
     */
    @Test
    void withoutMpiTheErrorNamesThePackages() throws Exception {
        for (String name : List.of(
                "libmpi.so", "libmpi.so.12", "libmpi.so.40", "libmpich.so", "libmpich.so.12",
                "libmpi_abi.so", "libmpi_abi.so.0", "libmpi_abi.so.1")) {
            Files.createFile(folder.resolve(name));
        }
        ChildJvm.Result java = runJava(withoutMpi(), "create");
        ChildJvm.Result clojure = runClojure(withoutMpi(), "create");
        assertTrue(java.output().startsWith("UNSUPPORTED: "), java.output());
        assertTrue(clojure.output().startsWith(":unsupported: "), clojure.output());
        for (String output : List.of(java.output(), clojure.output())) {
            for (Mpi mpi : Mpi.values()) {
                assertTrue(output.contains("`" + mpi.packages + "`"), output);
            }
        }
        assertEquals(List.of(0, 0), List.of(java.status(), clojure.status()));
    }

    private ChildJvm withoutMpi() {
        return new ChildJvm().environment("LD_LIBRARY_PATH", folder.toString());
    }
}
