import dev.kvstore.KVStore;
import dev.kvstore.NDArray;
import dev.kvstore.Shape;
import java.util.Arrays;
import java.util.List;

/** Initializes, pushes, updates and pulls a key in plain Java. */
public final class Quickstart {
    private Quickstart() {}

    /**
     * Prints the value of a key after each step.
     *
     * @param arguments not used
     */
    public static void main(String[] arguments) {
        Shape shape = Shape.of(2, 3);
        try (KVStore store = KVStore.create();
                NDArray weights = NDArray.ones(shape);
                NDArray gradient = NDArray.full(shape, 4)) {
            store.init("weights", weights);
            print(store, "after init: ");

            store.push("weights", List.of(gradient, gradient));
            print(store, "the sum of a push replaces the value: ");

            store.setUpdater((key, pushed, stored) -> {
                try (NDArray doubled = pushed.multiply(2)) {
                    stored.addInPlace(doubled);
                }
            });
            store.push("weights", gradient);
            print(store, "unless there is an updater: ");
        }
    }

    private static void print(KVStore store, String label) {
        try (NDArray value = store.pull("weights")) {
            System.out.println(label + Arrays.toString(value.toFloats()));
        }
    }
}
