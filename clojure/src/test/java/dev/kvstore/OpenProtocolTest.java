package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.ChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.Status.Code;
import io.grpc.StatusException;
import io.grpc.TlsChannelCredentials;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/**
 * The network protocol is open: {@link ProtocolClient}, which does not use the native library,
 * shares a store with a client that does.
 */
class OpenProtocolTest {
    private static final ServerOptions FREE_PORT = ServerOptions.of("127.0.0.1:0");

    /** The server sends a value of this shape in several frames. */
    private static final List<Long> SHAPE = List.of(300L, 1000L);

    private static ProtocolClient.Value full(float element) {
        float[] elements = new float[300 * 1000];
        Arrays.fill(elements, element);
        return new ProtocolClient.Value(SHAPE, elements);
    }

    /** Joins the group of a server with the certificate of a role. */
    private static ProtocolClient connect(KVStoreServer server, String role) throws Exception {
        ChannelCredentials certificates =
                ProtocolClient.certificates(CertificatesTest.folder(role));
        return new ProtocolClient(server.address(), certificates, "with " + role);
    }

    /** Asserts that the call fails with a status of gRPC. */
    private static void assertStatus(Code expected, Executable call) {
        Status status = assertThrows(StatusException.class, call).getStatus();
        assertEquals(expected, status.getCode(), status.getDescription());
    }

    /** Asserts that the server answers the message by ending the stream with a status. */
    private static void assertRejected(
            Code expected, ProtocolStream stream, Map<String, ?> message) {
        assertStatus(expected, () -> {
            stream.write(message);
            assertNull(stream.read(), "the server answered");
        });
    }

    @Test
    void aClientWithoutTheNativeLibrarySharesAStore() throws Exception {
        try (KVStoreServer server = KVStoreServer.start(FREE_PORT);
                ProtocolClient client = new ProtocolClient(server.address(), "other client");
                KVStore store = KVStore.create("dist_async",
                        NetStoreOptions.ofServers(server.address()).name("library"))) {
            assertNull(client.init("w", full(1)));
            assertEquals(
                    List.of(new Member("other client", 0, false), new Member("library", 1, false)),
                    store.members());
            // The sum of three values replaces the stored one.
            assertNull(client.push("w", full(1), full(2), full(3)));
            try (NDArray pulled = store.pull("w");
                    NDArray sevens = NDArray.full(Shape.of(300, 1000), 7)) {
                assertEquals(Shape.of(300, 1000), pulled.shape());
                assertArrayEquals(full(6).elements(), pulled.toFloats());
                store.push("w", sevens);
            }
            ProtocolClient.Value pulled = client.pull("w");
            assertEquals(SHAPE, pulled.shape());
            assertArrayEquals(full(7).elements(), pulled.elements());
            Map<?, ?> failure = client.init("w", full(1));
            assertTrue(((String) failure.get("message")).contains("already initialised"));
            assertEquals("w", failure.get("key"));
        }
    }

    @Test
    void aClientWithoutTheNativeLibraryTakesPartInRounds() throws Exception {
        // The server asks for the large value in several ranges.
        float[] large = new float[300 * 1000];
        for (int i = 0; i < large.length; i++) {
            large[i] = i;
        }
        ProtocolClient.Value three = new ProtocolClient.Value(List.of(2L), 3, 30);
        try (KVStoreServer server = KVStoreServer.start(FREE_PORT);
                ProtocolClient client = new ProtocolClient(server.address(), "other client");
                KVStore store = KVStore.create("dist_quorum",
                        NetStoreOptions.ofServers(server.address())
                                .name("library")
                                .quorum(2)
                                .grace(Duration.ofSeconds(60))
                                .weight(6));
                NDArray sevens = NDArray.full(Shape.of(300, 1000), 7);
                NDArray ones = NDArray.ones(Shape.of(2))) {
            assertNull(client.init("w", full(0)));
            assertNull(client.init("a", new ProtocolClient.Value(List.of(2L), 0, 0)));
            Map<String, ?> rule = Map.of("min", 2L, "grace_ms", 60_000L, "weight", 2.0);
            TreeMap<String, ProtocolClient.Value> values =
                    new TreeMap<>(Map.of("w", new ProtocolClient.Value(SHAPE, large), "a", three));
            for (int round = 1; round <= 2; round++) {
                CompletableFuture<Void> push = CompletableFuture.runAsync(
                        () -> store.push(List.of("w", "a"), List.of(sevens, ones)));
                assertNull(client.pushToRound(values, rule));
                push.get(60, TimeUnit.SECONDS);
                assertEquals(round, store.version("w"));
                float[] mean = new float[large.length];
                for (int i = 0; i < mean.length; i++) {
                    mean[i] = (7 * 6 + large[i] * 2) / 8;
                }
                assertArrayEquals(mean, client.pull("w").elements());
                assertArrayEquals(new float[] {1.5f, 8.25f}, client.pull("a").elements());
            }
        }
    }

    @Test
    void aLatePushOfAClientWithoutTheNativeLibrary() throws Exception {
        try (KVStoreServer server = KVStoreServer.start(FREE_PORT);
                ProtocolClient client = new ProtocolClient(server.address(), "other client");
                KVStore store = KVStore.create("dist_quorum",
                        NetStoreOptions.ofServers(server.address())
                                .quorum(1)
                                .grace(Duration.ZERO));
                NDArray one = NDArray.ones(Shape.of(1))) {
            ProtocolClient.Value five = new ProtocolClient.Value(List.of(1L), 5);
            TreeMap<String, ProtocolClient.Value> values = new TreeMap<>(Map.of("w", five));
            assertNull(client.init("w", five));
            client.pull("w");
            store.push("w", one);
            Map<?, ?> failure = client.pushToRound(values, Map.of("min", 1L));
            assertEquals("push of `w` for round 1: the current round is 2", failure.get("message"));
            assertEquals(KVStoreException.Code.LATE_PUSH.number, failure.get("code"));
            assertEquals(2L, failure.get("expected_len"));
            // The server keeps a late push that permits it, or one that is based on the last round.
            assertNull(client.pushToRound(values, Map.of("min", 1L, "late", "LATE_PUSH_NEXT")));
            store.pull("w", one);
            store.push("w", one);
            assertArrayEquals(new float[] {5}, client.pull("w").elements());
            assertNull(client.pushToRound(values, Map.of("min", 1L)));
            assertEquals(4, store.version("w"));
        }
    }

    @Test
    void aClientWithACertificateHasItsRole() throws Exception {
        Path certificates = CertificatesTest.folder("server");
        try (KVStoreServer server = KVStoreServer.start(FREE_PORT.certificates(certificates));
                ProtocolClient client = connect(server, "worker")) {
            assertNull(client.init("w", full(1)));
            assertNull(client.push("w", full(1), full(2)));
            ProtocolClient.Value pulled = client.pull("w");
            assertEquals(SHAPE, pulled.shape());
            assertArrayEquals(full(3).elements(), pulled.elements());
            assertEquals(List.of(new Member("with worker", 0, false)), server.members());
            assertStatus(Code.PERMISSION_DENIED, () -> connect(server, "reader"));
            // A client without certificates, and one that does not trust the server's authority.
            assertThrows(StatusException.class,
                    () -> new ProtocolClient(server.address(), "without certificates"));
            assertThrows(StatusException.class, () -> new ProtocolClient(
                    server.address(), TlsChannelCredentials.create(), "without trust"));
            assertEquals(1, server.members().size());
        }
    }

    @Test
    void errorsAreStatusesOfGrpc() {
        try (KVStoreServer server = KVStoreServer.start(FREE_PORT)) {
            ManagedChannel channel = ProtocolClient.channel(server.address());
            try {
                Map<String, ?> later = Map.of("join", Map.of(
                        "version", 2, "name", "a", "process", 1L, "num_servers", 1));
                assertRejected(Code.UNIMPLEMENTED, ProtocolStream.join(channel), later);
                assertRejected(Code.INVALID_ARGUMENT, ProtocolStream.join(channel), Map.of());
                Map<String, ?> stranger = Map.of("request", Map.of(
                        "member", "a", "incarnation", 5L, "pull", Map.of("keys", List.of("w"))));
                assertRejected(Code.FAILED_PRECONDITION, ProtocolStream.call(channel), stranger);
                assertRejected(Code.INVALID_ARGUMENT, ProtocolStream.call(channel), Map.of());
            } finally {
                channel.shutdownNow();
            }
        }
    }

    @Test
    void renewalsKeepAMemberLive() throws Exception {
        Duration lease = Duration.ofSeconds(2);
        try (KVStoreServer server = KVStoreServer.start(FREE_PORT.lease(lease));
                ProtocolClient renewing = new ProtocolClient(server.address(), "renewing");
                ProtocolClient silent = new ProtocolClient(server.address(), "silent")) {
            assertEquals(lease.toMillis(), renewing.joined("lease_ms"));
            assertStatus(Code.ALREADY_EXISTS,
                    () -> new ProtocolClient(server.address(), "silent"));

            // The members that the server reports. The list without the silent one arrives when its
            // lease has ended. By then, the lease of the renewing one would have ended, too.
            List<List<?>> changes = new ArrayList<>();
            while (!changes.contains(List.of("renewing", "silent"))
                    || changes.get(changes.size() - 1).contains("silent")) {
                changes.addAll(renewing.renew());
                Thread.sleep(lease.toMillis() / 20);
            }
            assertTrue(changes.stream().allMatch(live -> live.contains("renewing")));
            assertEquals(List.of(new Member("renewing", 0, false)), server.members());

            // Another process takes the name and its rank.
            try (ProtocolClient successor = new ProtocolClient(server.address(), "silent")) {
                assertEquals(1L, successor.joined("rank"));
                assertStatus(Code.FAILED_PRECONDITION, () -> silent.pull("w"));
                assertNull(renewing.init("w", new ProtocolClient.Value(List.of(1L), 5)));
                assertArrayEquals(new float[] {5}, successor.pull("w").elements());
            }
        }
    }
}
