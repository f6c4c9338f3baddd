package example;

import com.google.protobuf.ByteString;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import kvstore.v1.StoreOuterClass.Spec;

/**
 * Many clients that push a large value to the same round. They compute the elements when the server
 * asks for them, so the process needs little memory.
 *
 * <p>Element {@code e} of each client is {@code e % 4096 / 4096}. The clients have the weights 1,
 * 2, 3, 1, 2, ..
 */
final class Load {
    private static final int PERIOD = 4096;
    /** The longest frame that a client sends, and one period more. */
    private static final int LONGEST = (256 << 10) + Float.BYTES * PERIOD;

    private Load() {}

    /** Returns repeated elements, multiplied by a weight. */
    private static ByteString pattern(int weight) {
        ByteBuffer bytes = ByteBuffer.allocate(LONGEST).order(ByteOrder.LITTLE_ENDIAN);
        for (int element = 0; bytes.hasRemaining(); element++) {
            bytes.putFloat(weight * ((float) (element % PERIOD) / PERIOD));
        }
        return ByteString.copyFrom(bytes.flip());
    }

    /** Takes part in rounds with the key {@code model}. */
    private static Void run(String address, int index, int numClients, long numElements, int rounds)
            throws IOException {
        int weight = 1 + index % 3;
        ByteString pattern = pattern(weight);
        Spec spec = Spec.newBuilder().setDtype("float32").addShape(numElements).build();
        Member.Round round = new Member.Round(numClients, 0, weight);
        try (Member member = new Member(address, "client-%03d".formatted(index))) {
            for (int number = 0; number < rounds; number++) {
                member.push("model", spec, (first, size) -> {
                    int start = (int) (first % (Float.BYTES * PERIOD));
                    return pattern.substring(start, start + size);
                }, round, null);
            }
        }
        return null;
    }

    /** Arguments: address, number of clients, number of elements, number of rounds. */
    public static void main(String[] arguments) throws Exception {
        int numClients = Integer.parseInt(arguments[1]);
        long numElements = Long.parseLong(arguments[2]);
        int rounds = Integer.parseInt(arguments[3]);
        ExecutorService threads = Executors.newFixedThreadPool(numClients);
        List<Callable<Void>> clients = new ArrayList<>();
        for (int index = 0; index < numClients; index++) {
            int number = index;
            clients.add(() -> run(arguments[0], number, numClients, numElements, rounds));
        }
        for (Future<Void> client : threads.invokeAll(clients)) {
            client.get();
        }
        threads.shutdown();
    }
}
