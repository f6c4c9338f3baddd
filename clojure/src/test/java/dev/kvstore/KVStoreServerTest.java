package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.BACKEND;
import static dev.kvstore.KVStoreException.Code.CLOSED;
import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static dev.kvstore.KVStoreException.Code.UNSUPPORTED;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

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
            Expect.code(UNSUPPORTED, () -> store.setUpdater((key, pushed, stored) -> {}));
            Expect.nullParameter("handler", () -> server.onCommand(null));
            Expect.nullParameter("listener", () -> store.onMember(null));
        }
        assertEquals("", KVStoreServer.role(Map.of("DMLC_ROLE", "")));
    }
}
