package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.BACKEND;
import static dev.kvstore.KVStoreException.Code.CLOSED;
import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static dev.kvstore.KVStoreException.Code.LATE_PUSH;
import static dev.kvstore.KVStoreException.Code.UNSUPPORTED;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Servers in this JVM. */
class KVStoreServerTest {
    private static KVStoreServer server() {
        return KVStoreServer.start(ServerOptions.of("127.0.0.1:0"));
    }

    private static KVStore connect(KVStoreServer server, String name) {
        return KVStore.create("dist_async", NetStoreOptions.ofServers(server.address())
                .name(name)
                .timeout(Duration.ofSeconds(30)));
    }

    @Test
    void workersShareTheValuesOfAServer() {
        try (KVStoreServer server = server();
                KVStore first = connect(server, "a");
                KVStore second = connect(server, "b");
                NDArray ones = NDArray.ones(Shape.of(2))) {
            first.init("w", ones);
            second.push("w", List.of(ones, ones));
            try (NDArray pulled = first.pull("w"); NDArray held = server.store().pull("w")) {
                assertArrayEquals(new float[] {2, 2}, pulled.toFloats());
                assertArrayEquals(new float[] {2, 2}, held.toFloats());
            }
            assertEquals(1, first.version("w"));
            assertEquals(2, first.numWorkers());
            assertEquals(List.of(new Member("a", 0, false), new Member("b", 1, false)),
                    server.members());
        }
    }

    @Test
    void aListenerGetsTheMembers() throws InterruptedException {
        LinkedBlockingQueue<List<Member>> changes = new LinkedBlockingQueue<>();
        LinkedBlockingQueue<Throwable> reported = new LinkedBlockingQueue<>();
        Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
        Thread.setDefaultUncaughtExceptionHandler((thread, failure) -> reported.add(failure));
        try (KVStoreServer server = server();
                KVStore store = connect(server, "a")) {
            store.onMember(members -> {
                changes.add(members);
                throw new IllegalStateException("it does not end the thread");
            });
            try (KVStore other = connect(server, "b")) {
                List<Member> members = changes.poll(20, TimeUnit.SECONDS);
                while (members != null && members.size() != 2) {
                    members = changes.poll(20, TimeUnit.SECONDS);
                }
                assertEquals(store.members(), members);
                other.leave();
                Expect.code(CLOSED, () -> other.version("w"));
            }
            List<Member> members = changes.poll(20, TimeUnit.SECONDS);
            assertEquals(List.of(new Member("a", 0, false)), members);
            Throwable failure = reported.poll(20, TimeUnit.SECONDS);
            assertEquals("it does not end the thread", failure.getMessage());
        } finally {
            Thread.setDefaultUncaughtExceptionHandler(before);
        }
    }

    @Test
    void aServerContinuesFromItsRecoveryPoint(@TempDir Path folder) throws InterruptedException {
        LinkedBlockingQueue<Rewound> rewinds = new LinkedBlockingQueue<>();
        LinkedBlockingQueue<Throwable> reported = new LinkedBlockingQueue<>();
        Thread.UncaughtExceptionHandler before = Thread.getDefaultUncaughtExceptionHandler();
        Thread.setDefaultUncaughtExceptionHandler((thread, failure) -> reported.add(failure));
        ServerOptions options = ServerOptions.of("127.0.0.1:0").recovery(folder)
                .saveEvery(Duration.ofMillis(50));
        KVStoreServer server = KVStoreServer.start(options);
        try (KVStore store = connect(server, "a")) {
            store.onRewind(rewound -> {
                rewinds.add(rewound);
                throw new IllegalStateException("it does not end the thread");
            });
            store.init("w", NDArray.zeros(Shape.of(2)));
            store.push("w", NDArray.ones(Shape.of(2)));
            String address = server.address();
            for (int start = 0; start < 2; start++) {
                server.close();
                server = KVStoreServer.start(ServerOptions.of(address).recovery(folder));
                assertEquals(new Rewound(address, 1), rewinds.poll(20, TimeUnit.SECONDS));
                Throwable failure = reported.poll(20, TimeUnit.SECONDS);
                assertEquals("it does not end the thread", failure.getMessage());
                assertEquals(1, store.version("w"));
            }
            Expect.nullParameter("listener", () -> store.onRewind(null));
        } finally {
            server.close();
            Thread.setDefaultUncaughtExceptionHandler(before);
        }
    }

    @Test
    void anExceptionOfAnUpdaterIsTheSameObject() {
        IllegalStateException thrown = new IllegalStateException("no");
        try (KVStoreServer server = server();
                KVStore store = connect(server, "a");
                NDArray ones = NDArray.ones(Shape.of(1))) {
            server.store().setUpdater((key, pushed, stored) -> {
                throw thrown;
            });
            store.init("w", ones);
            assertSame(thrown,
                    assertThrows(IllegalStateException.class, () -> store.push("w", ones)));
            assertEquals(0, store.version("w"));
        }
    }

    private static KVStore inRounds(
            KVStoreServer server, String name, UnaryOperator<NetStoreOptions> options) {
        NetStoreOptions joining = NetStoreOptions.ofServers(server.address())
                .name(name)
                .timeout(Duration.ofSeconds(30))
                .grace(Duration.ofSeconds(30));
        return KVStore.create("dist_quorum", options.apply(joining));
    }

    /** Pushes a number for each of two stores at the same time. */
    private static void pushBoth(KVStore first, float a, KVStore second, float b)
            throws Exception {
        try (NDArray ofFirst = NDArray.full(Shape.of(2), a);
                NDArray ofSecond = NDArray.full(Shape.of(2), b)) {
            CompletableFuture<KVStore> push =
                    CompletableFuture.supplyAsync(() -> first.push("w", ofFirst));
            second.push("w", ofSecond);
            push.get(30, TimeUnit.SECONDS);
        }
    }

    private static void assertStored(KVStore store, float expected) {
        try (NDArray pulled = store.pull("w")) {
            assertArrayEquals(new float[] {expected, expected}, pulled.toFloats());
        }
    }

    @Test
    void aRoundIsOnePushWithTheSum() throws Exception {
        try (KVStoreServer server = server();
                KVStore first = inRounds(server, "a", options -> options.quorum(2));
                // Closing it does not wait for the other one, which is open.
                KVStore second = inRounds(server, "b", options -> options.quorum(2));
                NDArray zeros = NDArray.zeros(Shape.of(2))) {
            assertEquals("dist_quorum", first.type());
            first.init("w", zeros);
            first.setOptimizer(Optimizer.sgd().learningRate(0.5));
            pushBoth(first, 1, second, 2);
            assertStored(first, -1.5f);
            assertEquals(1, second.version("w"));
        }
    }

    @Test
    void weightsMakeMeans() throws Exception {
        UnaryOperator<NetStoreOptions> weighted = options -> options.quorum(2).weight(1);
        try (KVStoreServer server = server();
                KVStore first = inRounds(server, "a", weighted);
                KVStore second = inRounds(server, "b", weighted);
                NDArray zeros = NDArray.zeros(Shape.of(2))) {
            first.init("w", zeros);
            pushBoth(first, 1, second, 5);
            assertStored(first, 3);
            assertSame(second, second.setWeight(3));
            pushBoth(first, 1, second, 5);
            assertStored(first, 4);
            for (double wrong : new double[] {0, -1, Double.NaN, Double.POSITIVE_INFINITY}) {
                Expect.code(INVALID_ARGUMENT, () -> second.setWeight(wrong));
            }
            pushBoth(first, 1, second, 5);
            assertStored(first, 4);
        }
    }

    @Test
    void latePushesAreRejectedOrKept() {
        UnaryOperator<NetStoreOptions> alone = options -> options.quorum(1).grace(Duration.ZERO);
        try (KVStoreServer server = server();
                KVStore fast = inRounds(server, "a", alone);
                KVStore slow = inRounds(server, "b", alone);
                KVStore keeping = inRounds(server, "c",
                        options -> alone.apply(options).late(LatePush.NEXT));
                NDArray ones = NDArray.ones(Shape.of(2));
                NDArray twos = NDArray.full(Shape.of(2), 2)) {
            fast.init("w", ones);
            assertStored(slow, 1);
            assertStored(keeping, 1);
            fast.push("w", ones);
            KVStoreException late = Expect.code(LATE_PUSH, () -> slow.push("w", twos));
            assertEquals("push of `w` for round 1: the current round is 2", late.getMessage());
            assertEquals("w", late.key());
            assertEquals("2", late.expected());
            assertEquals("1", late.found());
            assertStored(slow, 1);
            slow.push("w", twos);
            assertStored(fast, 2);
            keeping.push("w", ones);
            assertStored(fast, 1);
            assertEquals(3, fast.version("w"));
        }
    }

    @Test
    void wrongOptionsOfRoundsAreRejected() {
        NetStoreOptions nowhere = NetStoreOptions.ofServers("127.0.0.1:1");
        NetStoreOptions rounds = nowhere.quorum(2);
        assertMessage(INVALID_ARGUMENT, "expected the option `quorum`", nowhere);
        assertMessage(INVALID_ARGUMENT, "`quorum`: expected a whole number above 0, found `0`",
                nowhere.quorum(0));
        assertMessage(INVALID_ARGUMENT, "expected a number of seconds of at least 0, found `-0.5",
                rounds.grace(Duration.ofMillis(-500)));
        assertMessage(INVALID_ARGUMENT, "weight: expected a finite number above 0, found -1",
                rounds.weight(-1));
        assertMessage(INVALID_ARGUMENT, "weight: expected a finite number above 0, found NaN",
                rounds.weight(Double.NaN));
        for (NetStoreOptions without : List.of(
                nowhere.grace(Duration.ZERO), nowhere.late(LatePush.NEXT), nowhere.weight(1))) {
            assertMessage(INVALID_ARGUMENT, "quorum: expected the least number", without);
        }
        Expect.nullParameter("late", () -> nowhere.late(null));
        Expect.nullParameter("grace", () -> nowhere.grace(null));
        try (KVStoreServer server = server();
                KVStore store = connect(server, "a");
                KVStore sums = inRounds(server, "b", options -> options.quorum(1));
                KVStore local = KVStore.create()) {
            for (KVStore each : List.of(store, sums, local)) {
                Expect.code(UNSUPPORTED, () -> each.setWeight(1));
            }
        }
    }

    @Test
    void severalServersCommitTheSameRounds() throws Exception {
        ServerOptions defaults = ServerOptions.of("127.0.0.1:0");
        Expect.nullParameter("servers", () -> defaults.followers((String) null));
        try (KVStoreServer follower = server();
                KVStoreServer leader = KVStoreServer.start(
                        defaults.followers(follower.address()));
                KVStore first = inRounds(leader, follower, "a");
                KVStore second = inRounds(leader, follower, "b");
                NDArray zeros = NDArray.zeros(Shape.of(2))) {
            for (String key : List.of("w", "x", "y", "z")) {
                first.init(key, zeros);
            }
            pushBoth(first, 1, second, 5);
            assertStored(second, 6);
        }
        try (KVStoreServer follower = server();
                KVStoreServer alone = server();
                KVStore store = inRounds(alone, follower, "a");
                NDArray zeros = NDArray.zeros(Shape.of(2))) {
            store.init("w", zeros);
            KVStoreException without = Expect.code(UNSUPPORTED, () -> store.push("w", zeros));
            assertTrue(without.getMessage().contains("the option `followers`"));
        }
    }

    @Test
    void severalServersGoBackTogether(@TempDir Path folder) throws InterruptedException {
        LinkedBlockingQueue<Rewound> rewinds = new LinkedBlockingQueue<>();
        ServerOptions options = ServerOptions.of("127.0.0.1:0").checkpoints(folder)
                .saveEvery(Duration.ofMillis(50));
        KVStoreServer second = KVStoreServer.start(options.recovery(folder.resolve("second")));
        String address = second.address();
        try (KVStoreServer first = KVStoreServer.start(options.recovery(folder.resolve("first"))
                        .followers(address).serverIndex(0));
                KVStore store = KVStore.create("dist_async",
                        NetStoreOptions.ofServers(first.address(), address)
                                .divideAbove(1000).timeout(Duration.ofSeconds(60)));
                KVStore local = KVStore.create();
                NDArray zeros = NDArray.zeros(Shape.of(1000));
                NDArray ones = NDArray.ones(Shape.of(1000))) {
            store.onRewind(rewinds::add);
            store.init("w", zeros);
            store.push("w", ones);
            // Until the push is in a point.
            Thread.sleep(500);
            second.close();
            // This one has the list of the first server, but not its index.
            second = KVStoreServer.start(ServerOptions.of(address).checkpoints(folder)
                    .recovery(folder.resolve("second")).followers(address).serverIndex(1));
            Set<String> servers = new HashSet<>();
            for (int count = 0; count < 2; count++) {
                Rewound rewound = rewinds.poll(60, TimeUnit.SECONDS);
                assertEquals(1, rewound.version());
                servers.add(rewound.server());
            }
            assertEquals(Set.of(first.address(), address), servers);
            store.checkpointOnServers("model");
            local.restore(folder.resolve("model"));
            try (NDArray pulled = store.pull("w"); NDArray restored = local.pull("w")) {
                assertArrayEquals(ones.toFloats(), pulled.toFloats());
                assertArrayEquals(ones.toFloats(), restored.toFloats());
            }
        } finally {
            second.close();
        }
    }

    private static KVStore inRounds(KVStoreServer first, KVStoreServer second, String name) {
        NetStoreOptions options = NetStoreOptions.ofServers(first.address(), second.address());
        return KVStore.create("dist_quorum",
                options.name(name).quorum(2).grace(Duration.ofSeconds(60)));
    }

    private static void assertMessage(
            KVStoreException.Code code, String part, NetStoreOptions options) {
        KVStoreException exception =
                Expect.code(code, () -> KVStore.create("dist_quorum", options));
        assertTrue(exception.getMessage().contains(part), exception.getMessage());
    }

    @Test
    void aClosedServerIsClosed() {
        KVStoreServer server = server();
        KVStore store = server.store();
        server.close();
        server.close();
        assertTrue(server.isClosed() && store.isClosed());
        assertEquals("KVStoreServer[" + server.address() + "]", server.toString());
        Expect.code(CLOSED, server::members);
    }

    @Test
    void wrongArgumentsAreRejected() {
        try (KVStoreServer server = server();
                KVStore store = connect(server, "a");
                KVStore local = KVStore.create()) {
            Expect.code(INVALID_ARGUMENT, () -> connect(server, "a"));
            Expect.code(BACKEND, () -> KVStoreServer.start(ServerOptions.of(server.address())));
            Expect.code(INVALID_ARGUMENT, () -> KVStore.create("local",
                    NetStoreOptions.ofServers(server.address())));
            Expect.code(INVALID_ARGUMENT, () -> KVStore.create("dist_async",
                    NetStoreOptions.ofServers(server.address()).staleness(-1)));
            Expect.code(UNSUPPORTED, local::members);
            Expect.code(UNSUPPORTED, () -> local.onRewind(rewound -> {}));
            Expect.code(UNSUPPORTED, () -> store.setUpdater((key, pushed, stored) -> {}));
            Expect.nullParameter("handler", () -> server.onCommand(null));
            Expect.nullParameter("listener", () -> store.onMember(null));
        }
        assertEquals("", KVStoreServer.role(Map.of("DMLC_ROLE", "")));
    }
}
