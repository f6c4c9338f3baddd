package example;

import dev.kvstore.KVStore;
import dev.kvstore.NDArray;
import dev.kvstore.NetStoreOptions;
import dev.kvstore.Optimizer;
import dev.kvstore.Shape;
import example.Model.Parameters;
import java.time.Duration;
import java.util.List;

/** The parameters in a store on servers. */
final class Store implements AutoCloseable {
    /** The kind of the store. */
    private static final String KIND = "dist_async";

    private static final List<String> KEYS = List.of("weights", "bias");
    private static final Shape WEIGHTS = Shape.of(Model.NUM_PIXELS, Model.NUM_CLASSES);
    private static final Shape BIAS = Shape.of(1, Model.NUM_CLASSES);
    private static final double LEARNING_RATE = 0.1;

    /** The weights have 2560 bytes, so the servers share their rows. */
    private static final long DIVIDE_ABOVE = 1024;

    private final KVStore store;

    private Store(KVStore store) {
        this.store = store;
    }

    /** Joins the servers with these addresses. */
    static Store join(List<String> servers, String name) {
        NetStoreOptions options = NetStoreOptions.ofServers(servers.toArray(String[]::new))
                .name(name)
                .timeout(Duration.ofSeconds(60))
                .divideAbove(DIVIDE_ABOVE);
        return new Store(KVStore.create(KIND, options));
    }

    /** Stores the first values. The servers apply each push with an optimizer. */
    void init(Parameters parameters) {
        store.setOptimizer(Optimizer.sgd().with("learning_rate", LEARNING_RATE));
        try (NDArray weights = NDArray.of(parameters.weights(), WEIGHTS);
                NDArray bias = NDArray.of(parameters.bias(), BIAS)) {
            store.init(KEYS, List.of(weights, bias));
        }
    }

    void push(Parameters gradients) {
        try (NDArray weights = NDArray.of(gradients.weights(), WEIGHTS);
                NDArray bias = NDArray.of(gradients.bias(), BIAS)) {
            store.push(KEYS, List.of(weights, bias));
        }
    }

    Parameters pull() {
        try (NDArray weights = store.pull(KEYS.get(0));
                NDArray bias = store.pull(KEYS.get(1))) {
            return new Parameters(weights.toFloats(), bias.toFloats());
        }
    }

    /** Returns the number of pushes. */
    long version() {
        return store.version(KEYS.get(0));
    }

    @Override
    public void close() {
        store.close();
    }
}
