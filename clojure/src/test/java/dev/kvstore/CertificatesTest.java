package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static dev.kvstore.KVStoreException.Code.IO;
import static dev.kvstore.KVStoreException.Code.UNSUPPORTED;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Certificates, configuration files and limits of servers. */
class CertificatesTest {
    private static final ServerOptions ANY_PORT = ServerOptions.of("127.0.0.1:0");

    /** Returns the folder of the certificate with this role. */
    static Path folder(String role) {
        return Path.of(System.getProperty("basedir", ""), "..", "tests", "certificates", role)
                .toAbsolutePath();
    }

    private static NetStoreOptions options(KVStoreServer server) {
        return NetStoreOptions.ofServers(server.address()).timeout(Duration.ofSeconds(30));
    }

    private static KVStore connect(KVStoreServer server, String role) {
        return KVStore.create("dist_async", options(server)
                .certificates(folder(role))
                .reader(role.equals("reader")));
    }

    private static void rejected(KVStoreException.Code code, String text, Executable call) {
        KVStoreException exception = Expect.code(code, call);
        assertTrue(exception.getMessage().contains(text), exception.getMessage());
    }

    @Test
    void theRoleInACertificateLimitsWhatAMemberMayDo() {
        try (KVStoreServer server = KVStoreServer.start(ANY_PORT.certificates(folder("server")));
                KVStore worker = connect(server, "worker");
                KVStore reader = connect(server, "reader");
                KVStore admin = connect(server, "admin");
                NDArray ones = NDArray.ones(Shape.of(2))) {
            worker.init("w", ones).push("w", ones);
            try (NDArray pulled = reader.pull("w")) {
                assertArrayEquals(new float[] {1, 1}, pulled.toFloats());
            }
            rejected(UNSUPPORTED, "push needs a certificate with the role `worker`, found `reader`",
                    () -> reader.push("w", ones));
            rejected(UNSUPPORTED, "needs a certificate with the role `admin`, found `worker`",
                    () -> worker.sendCommandToServers(1, ""));
            admin.sendCommandToServers(1, "");
            rejected(UNSUPPORTED, "a worker needs a certificate with the role `worker`",
                    () -> KVStore.create("dist_async",
                            options(server).certificates(folder("reader"))));
        }
    }

    @Test
    void aWrongFolderIsNamed(@TempDir Path wrong) {
        String text = "certificates: cannot read `" + wrong.resolve("ca.pem") + "`";
        rejected(INVALID_ARGUMENT, text,
                () -> KVStoreServer.start(ANY_PORT.certificates(wrong)));
        rejected(INVALID_ARGUMENT, text,
                () -> KVStore.create("dist_async",
                        NetStoreOptions.ofServers("127.0.0.1:1").certificates(wrong)));
    }

    @Test
    void certificatesAndInsecureExcludeEachOther() {
        String text = "option `certificates` and option `insecure`: expected one of them";
        rejected(INVALID_ARGUMENT, text, () -> KVStoreServer.start(
                ANY_PORT.certificates(folder("server")).insecure(true)));
        rejected(INVALID_ARGUMENT, text, () -> KVStore.create("dist_async",
                NetStoreOptions.ofServers("127.0.0.1:1")
                        .certificates(folder("worker"))
                        .insecure(true)));
    }

    @Test
    void addressesThatOtherMachinesReachNeedCertificates() {
        String text = "without certificates, connections are neither authenticated nor encrypted";
        ServerOptions open = ServerOptions.of("0.0.0.0:0");
        rejected(INVALID_ARGUMENT, text, () -> KVStoreServer.start(open));
        rejected(INVALID_ARGUMENT, text, () -> KVStoreServer.start(open.insecure(false)));
        rejected(INVALID_ARGUMENT, text, () -> KVStore.create("dist_async",
                NetStoreOptions.ofServers("192.0.2.1:9").timeout(Duration.ofSeconds(1))));
        KVStoreServer.start(open.certificates(folder("server"))).close();
        try (KVStoreServer server = KVStoreServer.start(open.insecure(true))) {
            String port = server.address().substring(server.address().lastIndexOf(':'));
            KVStore.create("dist_async",
                    NetStoreOptions.ofServers("127.0.0.1" + port).insecure(true)).close();
        }
    }

    @Test
    void explicitOptionsOverrideTheFile(@TempDir Path temporary) throws IOException {
        Path file = temporary.resolve("server.toml");
        Files.writeString(file, "address = '127.0.0.1:0'\nstore = 'device'\nkeys = 1\n");
        ServerOptions options = ServerOptions.defaults().config(file);
        try (KVStoreServer server = KVStoreServer.start(options);
                KVStore store = KVStore.create("dist_async", options(server));
                NDArray ones = NDArray.ones(Shape.of(2))) {
            assertFalse(server.address().endsWith(":9191"));
            assertEquals("device", server.store().type());
            store.init("a", ones);
            rejected(INVALID_ARGUMENT, "the server has 1 of at most 1 keys",
                    () -> store.init("b", ones));
        }
        try (KVStoreServer server = KVStoreServer.start(options.store("local"))) {
            assertEquals("local", server.store().type());
        }
        Files.writeString(file, "adress = '127.0.0.1:0'");
        rejected(INVALID_ARGUMENT, "configuration file `" + file + "`: unknown option",
                () -> KVStoreServer.start(options));
        Expect.code(IO, () -> KVStoreServer.start(
                ServerOptions.defaults().config(temporary.resolve("missing"))));
    }

    @Test
    void aServerLimitsWhatOneMachineMayUse() throws IOException {
        ServerOptions limited = ANY_PORT.peerBytes(1 << 16).keys(1);
        try (KVStoreServer server = KVStoreServer.start(limited);
                KVStore store = KVStore.create("dist_async", options(server));
                NDArray large = NDArray.ones(Shape.of(1 << 20));
                NDArray small = NDArray.ones(Shape.of(1))) {
            rejected(INVALID_ARGUMENT, "the calls of a peer may hold at most 65536 bytes",
                    () -> store.init("w", large));
            store.init("w", small);
            rejected(INVALID_ARGUMENT, "at most 1 keys", () -> store.init("v", small));
        }
        try (KVStoreServer server = KVStoreServer.start(ANY_PORT.peerConnections(1))) {
            String[] address = server.address().split(":");
            int port = Integer.parseInt(address[1]);
            try (Socket first = new Socket(address[0], port);
                    Socket second = new Socket(address[0], port)) {
                assertTrue(first.isConnected());
                second.setSoTimeout(30_000);
                InputStream end = second.getInputStream();
                assertEquals(-1, end.read());
            }
        }
    }

    @Test
    void wrongOptionsAreRejected() {
        rejected(INVALID_ARGUMENT, "option `peer_connections`",
                () -> KVStoreServer.start(ANY_PORT.peerConnections(0)));
        rejected(INVALID_ARGUMENT, "option `peer_bytes`",
                () -> KVStoreServer.start(ANY_PORT.peerBytes(-1)));
        rejected(INVALID_ARGUMENT, "option `keys`", () -> KVStoreServer.start(ANY_PORT.keys(0)));
        Expect.nullParameter("folder", () -> ANY_PORT.certificates(null));
        Expect.nullParameter("file", () -> ANY_PORT.config(null));
        Expect.nullParameter("folder", () -> NetStoreOptions.ofEnvironment().certificates(null));
    }

    @Test
    void metricsAreOnHttp() throws IOException {
        try (KVStoreServer server = KVStoreServer.start(
                ANY_PORT.metrics("127.0.0.1:0").statusPage(true))) {
            String address = server.metricsAddress().orElseThrow();
            try (InputStream answer = URI.create("http://" + address + "/metrics").toURL()
                    .openStream()) {
                String text = new String(answer.readAllBytes(), StandardCharsets.UTF_8);
                assertTrue(text.contains("kvstore_keys 0\n"), text);
            }
        }
        try (KVStoreServer server = KVStoreServer.start(ANY_PORT)) {
            assertFalse(server.metricsAddress().isPresent());
        }
    }
}
