package dev.kvstore;

import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.StatusException;
import io.grpc.TlsChannelCredentials;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.concurrent.ThreadLocalRandom;
import okio.Buffer;
import okio.ByteString;

/**
 * A member of the group of a server, with one stream for all its calls. It uses only gRPC and
 * {@code store.proto}: neither the native library nor a class of {@code src/main}.
 */
final class ProtocolClient implements AutoCloseable {
    private final String name;
    private final ManagedChannel channel;
    private final ProtocolStream lease;
    private final ProtocolStream calls;
    private final Map<?, ?> joined;
    /** The version of the last pull of each key, by which the server sees which pushes are late. */
    private final Map<String, Object> pulled = new HashMap<>();
    private long sequence;

    /** A dense value with elements of the type {@code float32}. */
    record Value(List<Long> shape, float... elements) {
        private int numBytes() {
            return Float.BYTES * elements.length;
        }

        private byte[] bytes() {
            ByteBuffer bytes = buffer(numBytes());
            bytes.asFloatBuffer().put(elements);
            return bytes.array();
        }

        private Value times(double factor) {
            float[] products = new float[elements.length];
            for (int i = 0; i < products.length; i++) {
                products[i] = elements[i] * (float) factor;
            }
            return new Value(shape, products);
        }
    }

    /** Joins the group of a server without certificates. */
    ProtocolClient(String address, String name) throws StatusException {
        this(address, InsecureChannelCredentials.create(), name);
    }

    /** Joins the group of a server. */
    ProtocolClient(String address, ChannelCredentials credentials, String name)
            throws StatusException {
        this.name = name;
        channel = Grpc.newChannelBuilder(address, credentials).build();
        try {
            lease = ProtocolStream.join(channel);
            calls = ProtocolStream.call(channel);
            lease.write(Map.of("join", Map.of(
                    "version", 1,
                    "name", name,
                    "process", ThreadLocalRandom.current().nextLong(1, Long.MAX_VALUE),
                    "num_servers", 1)));
            joined = (Map<?, ?>) lease.read().get("joined");
        } catch (Throwable failure) {
            channel.shutdownNow();
            throw failure;
        }
    }

    /** Opens a connection to a server without certificates. */
    static ManagedChannel channel(String address) {
        return Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
    }

    /** Returns the certificates in a folder: that of the authority, and that of the member. */
    static ChannelCredentials certificates(Path folder) throws IOException {
        return TlsChannelCredentials.newBuilder()
                .trustManager(folder.resolve("ca.pem").toFile())
                .keyManager(folder.resolve("cert.pem").toFile(), folder.resolve("key.pem").toFile())
                .build();
    }

    /** Returns a field of the server's {@code JoinReply}. */
    Object joined(String field) {
        return joined.get(field);
    }

    /**
     * Renews the lease and waits for the confirmation. Returns the names in each list of members
     * that the server sends before.
     */
    List<List<?>> renew() throws StatusException {
        lease.write(Map.of("renewal", Map.of()));
        List<List<?>> changes = new ArrayList<>();
        Map<?, ?> event = lease.read();
        while (!event.containsKey("renewed")) {
            Map<?, ?> live = (Map<?, ?>) event.get("members");
            changes.add(messages(live, "members").stream().map(each -> each.get("name")).toList());
            event = lease.read();
        }
        return changes;
    }

    /** Initializes a key. Returns the failure, or {@code null} if the call succeeds. */
    Map<?, ?> init(String key, Value value) throws StatusException {
        return change("init", key, value);
    }

    /** Pushes values of a key. Returns the failure, or {@code null} if the call succeeds. */
    Map<?, ?> push(String key, Value... values) throws StatusException {
        return change("push", key, values);
    }

    /**
     * Takes part in a round with a value for each key, and waits until it is committed. Returns the
     * failure, or {@code null} if the call succeeds.
     *
     * @param rule the fields of {@code RoundPush}. With a {@code weight}, the round computes the
     *     weighted mean of the values of all members
     */
    Map<?, ?> pushToRound(SortedMap<String, Value> values, Map<String, ?> rule)
            throws StatusException {
        List<Object> described = new ArrayList<>();
        Buffer data = new Buffer();
        double weight = rule.get("weight") instanceof Double found ? found : 1;
        values.forEach((key, value) -> {
            described.add(describe(key, value));
            data.write(value.times(weight).bytes());
        });
        sequence++;
        Map<String, ?> push = Map.of("values", described, "round", rule);
        Map<?, ?> reply = reply(call(sequence, "push", push, ByteString.EMPTY));
        ByteString supplied = data.readByteString();
        // Until the reply comes, the server asks for ranges of the data.
        while (reply.get("wanted") instanceof Map<?, ?> wanted) {
            int first = Math.toIntExact(number(wanted, "first"));
            int end = Math.toIntExact(first + number(wanted, "num_bytes"));
            calls.write(Map.of("data", supplied.substring(first, end)));
            reply = reply(calls.read());
        }
        return (Map<?, ?>) reply.get("failure");
    }

    /** Pulls a key, which must exist. */
    Value pull(String key) throws StatusException {
        Map<?, ?> frame = call(0, "pull", Map.of("keys", List.of(key)), ByteString.EMPTY);
        Map<?, ?> reply = reply(frame);
        if (reply.containsKey("failure")) {
            throw new AssertionError(reply.get("failure"));
        }
        Map<?, ?> described = messages(reply, "values").get(0);
        pulled.put(key, described.get("version"));
        Map<?, ?> spec = (Map<?, ?>) described.get("spec");
        List<Long> shape = ((List<?>) spec.get("shape")).stream().map(Long.class::cast).toList();
        long numElements = shape.stream().reduce(1L, Math::multiplyExact);
        Value value = new Value(shape, new float[Math.toIntExact(numElements)]);
        ByteBuffer data = buffer(value.numBytes());
        data.put(data(frame));
        while (data.hasRemaining()) {
            data.put(data(calls.read()));
        }
        data.flip().asFloatBuffer().get(value.elements());
        return value;
    }

    private Map<?, ?> change(String verb, String key, Value... values) throws StatusException {
        List<Object> described = new ArrayList<>();
        Buffer data = new Buffer();
        for (Value value : values) {
            described.add(describe(key, value));
            data.write(value.bytes());
        }
        sequence++;
        Map<?, ?> frame =
                call(sequence, verb, Map.of("values", described), data.readByteString());
        return (Map<?, ?>) reply(frame).get("failure");
    }

    private Map<String, ?> describe(String key, Value value) {
        Map<String, Object> described = new HashMap<>();
        described.put("key", key);
        described.put("spec", Map.of("dtype", "float32", "shape", value.shape()));
        if (pulled.containsKey(key)) {
            described.put("version", pulled.get(key));
        }
        return described;
    }

    /** Makes a call, whose number is 0 if it changes nothing. Returns the first frame. */
    private Map<?, ?> call(long number, String verb, Map<String, ?> arguments, ByteString data)
            throws StatusException {
        Map<String, ?> request = Map.of(
                "member", name,
                "incarnation", joined("incarnation"),
                "sequence", number,
                "answered_below", sequence,
                "unanswered", number == 0 ? List.of() : List.of(number),
                verb, arguments);
        calls.write(Map.of("request", request, "data", data));
        return calls.read();
    }

    private static Map<?, ?> reply(Map<?, ?> frame) {
        return (Map<?, ?>) frame.get("reply");
    }

    /** Returns a field with a number, which is absent if it is 0. */
    private static long number(Map<?, ?> message, String field) {
        return message.get(field) instanceof Long found ? found : 0;
    }

    private static ByteBuffer data(Map<?, ?> frame) {
        Object data = frame.get("data");
        return data == null ? ByteBuffer.allocate(0) : ((ByteString) data).asByteBuffer();
    }

    private static ByteBuffer buffer(int numBytes) {
        return ByteBuffer.allocate(numBytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    /** Returns the messages of a repeated field. */
    private static List<Map<?, ?>> messages(Map<?, ?> message, String field) {
        List<Map<?, ?>> messages = new ArrayList<>();
        if (message.get(field) instanceof List<?> found) {
            found.forEach(each -> messages.add((Map<?, ?>) each));
        }
        return messages;
    }

    /** Leaves the group, and waits until the server has closed the stream. */
    @Override
    public void close() throws StatusException {
        try {
            lease.write(Map.of("leave", Map.of()));
            while (lease.read() != null) {
                // Skips lists of members.
            }
        } finally {
            channel.shutdownNow();
        }
    }
}
