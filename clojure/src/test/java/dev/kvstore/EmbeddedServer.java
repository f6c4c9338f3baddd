package dev.kvstore;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.concurrent.CountDownLatch;

/**
 * A program with a server that a shutdown hook closes. Its updater waits for a line of input, and
 * then adds.
 */
final class EmbeddedServer {
    private EmbeddedServer() {}

    public static void main(String[] arguments) throws InterruptedException {
        KVStoreServer server = KVStoreServer.start(ServerOptions.of("127.0.0.1:0"));
        server.store().setUpdater((key, pushed, stored) -> {
            System.out.println("updating");
            readLine();
            stored.addInPlace(pushed);
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            System.out.println("closing");
            server.close();
            System.out.println("closed");
        }));
        System.out.println(server.address());
        new CountDownLatch(1).await();
    }

    private static void readLine() {
        try {
            while (System.in.read() != '\n') {
                // Skips the line.
            }
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }
}
