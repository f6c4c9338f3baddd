package example;

import com.google.protobuf.ByteString;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import kvstore.v1.StoreOuterClass.Spec;

/**
 * Trains with the digits of a file, and takes part in the rounds of a coordinator. The arguments
 * are those of {@code client.py}.
 */
final class Client {
    private static final Spec MODEL = Spec.newBuilder()
            .setDtype("float32").addShape(Digits.NUM_DIGITS).addShape(Digits.NUM_COLUMNS).build();

    private static final long POLL_MILLIS = 20;

    private final Member member;
    private final Digits digits;
    private final Map<String, String> options;
    private final String name;

    private Client(Member member, Digits digits, Map<String, String> options) {
        this.member = member;
        this.digits = digits;
        this.options = options;
        name = options.get("--name");
    }

    /** Takes part in rounds until the coordinator ends them. */
    private void run() throws IOException, InterruptedException {
        int last = 0;
        while (true) {
            int round = member.pull("round").elements().getInt();
            if (round < 0) {
                return;
            }
            if (round > last) {
                last = round;
                takePart(round);
            } else {
                Thread.sleep(POLL_MILLIS);
            }
        }
    }

    private void takePart(int round) throws IOException {
        Member.Pulled pulled = member.pull("model");
        float[] model = new float[Digits.NUM_DIGITS * Digits.NUM_COLUMNS];
        pulled.elements().asFloatBuffer().get(model);
        float[] change = digits.train(model);
        String[] poison = options.getOrDefault("--poison", "0:0").split(":");
        if (Integer.parseInt(poison[0]) == round) {
            Arrays.fill(change, Float.parseFloat(poison[1]));
        }
        if (options.containsKey("--record")) {
            Path file = Path.of(options.get("--record"), round + "-" + name);
            Files.write(file, bytes(change, 1).toByteArray());
        }
        ByteString data = bytes(change, digits.size());
        Member.Round rule = new Member.Round(
                Integer.parseInt(options.get("--quorum")),
                1000 * Long.parseLong(options.get("--grace")),
                digits.size());
        try {
            member.push("model", MODEL,
                    (first, size) -> data.substring((int) first, (int) first + size), rule, pulled);
        } catch (Member.Failure failure) {
            if (failure.code != Member.LATE_PUSH) {
                throw failure;
            }
            System.out.println(name + ": late in round " + round);
        }
    }

    /** Returns elements that are multiplied by a weight, little-endian. */
    private static ByteString bytes(float[] elements, float weight) {
        ByteBuffer bytes = ByteBuffer.allocate(Float.BYTES * elements.length)
                .order(ByteOrder.LITTLE_ENDIAN);
        for (float element : elements) {
            bytes.putFloat(weight * element);
        }
        return ByteString.copyFrom(bytes.flip());
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Map<String, String> options = new HashMap<>();
        for (int index = 0; index < arguments.length; index += 2) {
            options.put(arguments[index], arguments[index + 1]);
        }
        Digits digits = Digits.read(Path.of(options.get("--digits")));
        String address = options.get("--server");
        try (Member member = new Member(address, options.get("--name"))) {
            new Client(member, digits, options).run();
        }
    }
}
