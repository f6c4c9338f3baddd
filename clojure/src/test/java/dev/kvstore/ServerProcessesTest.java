package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Servers and workers in JVMs of their own. */
class ServerProcessesTest {
    private static final int NUM_WORKERS = 2;
    private static final int NUM_SERVERS = 2;

    /** Far longer than any process takes. */
    private static final long SECONDS = 120;

    /** The exit code of a JVM that SIGTERM ends: 128 and the number of the signal. */
    private static final int TERMINATED = 143;

    private static final String UPDATER_FAILED =
            "updater failed on key `w`: java.lang.IllegalStateException: below 0";

    /** The languages of the programs. */
    enum Language {
        JAVA(
                "UPDATER",
                List.of("dev.kvstore.ServerJob"),
                List.of("dev.kvstore.EmbeddedServer")),
        CLOJURE(
                ":updater",
                List.of("clojure.main", "-m", "dev.kvstore.server-job"),
                List.of("clojure.main", "-m", "dev.kvstore.embedded-server"));

        /** How {@link #job} prints the code of a failed updater. */
        private final String code;

        private final List<String> job;
        private final List<String> server;

        Language(String code, List<String> job, List<String> server) {
            this.code = code;
            this.job = job;
            this.server = server;
        }
    }

    private static ChildJvm.Result run(ChildJvm jvm, List<String> program) {
        try {
            String[] arguments = program.subList(1, program.size()).toArray(String[]::new);
            return jvm.run(System.getProperty("java.class.path"), program.get(0), arguments);
        } catch (Exception exception) {
            throw new IllegalStateException(exception);
        }
    }

    /**
     * Returns the variables that MXNet's {@code launch.py --launcher local} sets for each process
     * of a job, in the order of their starts. It counts workers and servers together, but not the
     * scheduler.
     */
    private static List<Map<String, String>> environments() throws Exception {
        Map<String, String> job = new HashMap<>();
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            job.put("DMLC_PS_ROOT_PORT", String.valueOf(free.getLocalPort()));
        }
        job.put("DMLC_PS_ROOT_URI", "127.0.0.1");
        job.put("DMLC_NUM_WORKER", String.valueOf(NUM_WORKERS));
        job.put("DMLC_NUM_SERVER", String.valueOf(NUM_SERVERS));
        List<Map<String, String>> environments = new ArrayList<>();
        for (int task = -1; task < NUM_WORKERS + NUM_SERVERS; task++) {
            Map<String, String> environment = new HashMap<>(job);
            if (task < 0) {
                environment.put("DMLC_ROLE", "scheduler");
            } else {
                environment.put("DMLC_TASK_ID", String.valueOf(task));
                environment.put("DMLC_ROLE", task < NUM_WORKERS ? "worker" : "server");
                environment.put("DMLC_JOB_CLUSTER", "local");
            }
            environments.add(environment);
        }
        return environments;
    }

    @ParameterizedTest
    @EnumSource
    void aJobOfFiveProcessesEnds(Language language) throws Exception {
        List<CompletableFuture<ChildJvm.Result>> processes = new ArrayList<>();
        List<Map<String, String>> environments = environments();
        for (Map<String, String> environment : environments) {
            ChildJvm jvm = new ChildJvm();
            environment.forEach(jvm::environment);
            processes.add(CompletableFuture.supplyAsync(
                    () -> run(jvm, language.job), task -> new Thread(task).start()));
        }
        int numFailures = 0;
        for (int i = 0; i < processes.size(); i++) {
            ChildJvm.Result result = processes.get(i).get();
            assertEquals(0, result.status(), result.output());
            boolean isWorker = environments.get(i).get("DMLC_ROLE").equals("worker");
            // Each worker has pushed a 2.
            assertEquals(isWorker, result.output().contains("sum 6.0"), result.output());
            assertEquals(!isWorker, result.output().contains("the job has ended"));
            assertFalse(result.output().contains("Exception in thread"), result.output());
            if (result.output().contains(language.code + " " + UPDATER_FAILED)) {
                numFailures++;
                assertTrue(isWorker);
            }
        }
        // The exception of the updater reaches only the worker whose push has caused it.
        assertEquals(1, numFailures);
    }

    @ParameterizedTest
    @EnumSource
    void aWorkerConnectsToTheServersOfTheEnvironment(Language language) {
        try (KVStoreServer server = KVStoreServer.start(ServerOptions.of("127.0.0.1:0"))) {
            ServerJob.prepare(server);
            ChildJvm jvm = new ChildJvm().environment("KVSTORE_SERVERS", server.address());
            ChildJvm.Result result = run(jvm, language.job);
            assertEquals(0, result.status(), result.output());
            assertTrue(result.output().contains("sum 4.0"), result.output());
            assertTrue(result.output().contains(UPDATER_FAILED), result.output());
            try (NDArray sum = server.store().pull("w")) {
                assertArrayEquals(new float[] {4}, sum.toFloats());
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void aSignalEndsALaunchedProcessAtOnce(Language language) throws Exception {
        Map<String, String> scheduler = environments().get(0);
        ChildJvm jvm = new ChildJvm();
        scheduler.forEach(jvm::environment);
        Process process = jvm.start(language.job);
        try {
            int port = Integer.parseInt(scheduler.get("DMLC_PS_ROOT_PORT"));
            while (!isListening(port)) {
                assertTrue(process.isAlive());
                Thread.sleep(20);
            }
            process.destroy();
            assertTrue(process.waitFor(SECONDS, TimeUnit.SECONDS));
            assertEquals(TERMINATED, process.exitValue());
        } finally {
            process.destroyForcibly();
        }
    }

    private static boolean isListening(int port) {
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            return socket.isConnected();
        } catch (IOException refused) {
            return false;
        }
    }

    @ParameterizedTest
    @EnumSource
    void aShutdownHookCompletesTheCallsOfAServer(Language language) throws Exception {
        Process process = new ChildJvm().start(language.server);
        // Ends the reads below if the process hangs.
        CompletableFuture.delayedExecutor(SECONDS, TimeUnit.SECONDS)
                .execute(process::destroyForcibly);
        try (BufferedReader output = process.inputReader();
                KVStore store = KVStore.create("dist_async",
                        NetStoreOptions.ofServers(output.readLine())
                                .timeout(Duration.ofSeconds(SECONDS)));
                NDArray ones = NDArray.ones(Shape.of(2))) {
            store.init("w", ones);
            CompletableFuture<Void> push = CompletableFuture.runAsync(
                    () -> store.push("w", ones), task -> new Thread(task).start());
            assertEquals("updating", output.readLine());
            // Unlike the method of Process, this one leaves the streams open.
            process.toHandle().destroy();
            assertEquals("closing", output.readLine());
            assertFalse(push.isDone());
            process.outputWriter().append("continue\n").flush();
            push.get(SECONDS, TimeUnit.SECONDS);
            assertEquals(List.of("closed"), output.lines().toList());
            assertTrue(process.waitFor(SECONDS, TimeUnit.SECONDS));
            assertEquals(TERMINATED, process.exitValue());
        } finally {
            process.destroyForcibly();
        }
    }
}
