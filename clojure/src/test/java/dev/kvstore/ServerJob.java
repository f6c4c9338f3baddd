package dev.kvstore;

import java.util.Map;

/**
 * A process of a job that a launcher has started, with the role in its environment variables. The
 * server has an updater that adds, and fails for negative numbers.
 */
final class ServerJob {
    private ServerJob() {}

    public static void main(String[] arguments) {
        Map<String, String> environment = System.getenv();
        // Empty if the variable KVSTORE_SERVERS names the servers.
        String role = KVStoreServer.role(environment);
        if (role.equals("server") || role.equals("scheduler")) {
            KVStoreServer.runLaunched(
                    environment, ServerOptions.defaults(), ServerJob::prepare);
            System.out.println("the job has ended");
            return;
        }
        try (KVStore store = KVStore.create("dist_async");
                NDArray number = NDArray.of(new float[] {2}, Shape.of(1))) {
            store.init("w", number);
            store.barrier();
            if (store.rank() == 0) {
                try (NDArray negative = number.multiply(-1)) {
                    store.push("w", negative);
                } catch (KVStoreException exception) {
                    System.out.println(exception.code() + " " + exception.getMessage());
                }
            }
            store.barrier().push("w", number).barrier();
            try (NDArray sum = store.pull("w")) {
                System.out.println("sum " + sum.toFloats()[0]);
            }
        }
    }

    static void prepare(KVStoreServer server) {
        server.store().setUpdater((key, pushed, stored) -> {
            if (pushed.toFloats()[0] < 0) {
                throw new IllegalStateException("below 0");
            }
            stored.addInPlace(pushed);
        });
    }
}
