import dev.kvstore.KVStore;
import dev.kvstore.NDArray;
import dev.kvstore.NetStoreOptions;
import dev.kvstore.Shape;
import java.io.BufferedReader;
import java.io.InputStreamReader;

/** Calls of one program in Java, which languages.py compares with those of other languages. */
public final class Calls {
    private Calls() {}

    public static void main(String[] arguments) throws Exception {
        Shape shape = Shape.of(1 << 10);
        NetStoreOptions options = NetStoreOptions.ofServers(arguments[0]);
        try (KVStore store = KVStore.create("dist_async", options);
                NDArray gradient = NDArray.ones(shape);
                NDArray pulled = NDArray.zeros(shape);
                BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
            if (!store.keys().contains("w")) {
                store.init("w", gradient);
            }
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                int count = Integer.parseInt(line.trim());
                long start = System.nanoTime();
                for (int call = 0; call < count; call++) {
                    store.push("w", gradient);
                    store.pull("w", pulled);
                }
                System.out.println((System.nanoTime() - start) / 1e9);
            }
        }
    }
}
