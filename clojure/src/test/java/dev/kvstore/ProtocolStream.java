package dev.kvstore;

import com.squareup.wire.ProtoAdapter;
import com.squareup.wire.schema.Location;
import com.squareup.wire.schema.Schema;
import com.squareup.wire.schema.SchemaLoader;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.Marshaller;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.StatusException;
import io.grpc.stub.BlockingClientCall;
import io.grpc.stub.ClientCalls;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.FileSystems;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import okio.Buffer;
import okio.Okio;

/**
 * A call of a gRPC method of {@code store.proto}: a stream of messages in each direction. A message
 * is a map from the names of its fields to their values. An absent field has its default value.
 *
 * <p>Wire reads the {@code .proto} file when the tests run. Generated classes would need an
 * executable {@code protoc} for each platform, and further steps in each build.
 */
final class ProtocolStream {
    private static final Path FOLDER =
            Path.of(System.getProperty("basedir", ""), "..", "kvstore-net", "proto");

    /** Far longer than any stream is open. */
    private static final long SECONDS = 60;

    private static final Schema SCHEMA = schema();

    private static final MethodDescriptor<Object, Object> JOIN =
            method("Join", "MemberMessage", "ServerMessage");

    private static final MethodDescriptor<Object, Object> CALL =
            method("Call", "RequestFrame", "ReplyFrame");

    private final BlockingClientCall<Object, Object> messages;

    private ProtocolStream(Channel channel, MethodDescriptor<Object, Object> method) {
        CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(SECONDS, TimeUnit.SECONDS);
        messages = ClientCalls.blockingBidiStreamingCall(channel, method, options);
    }

    /** Opens a stream of the method {@code Join}. */
    static ProtocolStream join(Channel channel) {
        return new ProtocolStream(channel, JOIN);
    }

    /** Opens a stream of the method {@code Call}. */
    static ProtocolStream call(Channel channel) {
        return new ProtocolStream(channel, CALL);
    }

    /** Sends a message. */
    void write(Map<String, ?> message) throws StatusException {
        try {
            messages.write(message);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    /** Waits for the next message. Returns {@code null} if the server has closed the stream. */
    Map<?, ?> read() throws StatusException {
        try {
            return (Map<?, ?>) messages.read();
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    private static Schema schema() {
        SchemaLoader loader = new SchemaLoader(FileSystems.getDefault());
        loader.initRoots(List.of(Location.get(FOLDER.toString())), List.of());
        return loader.loadSchema();
    }

    private static MethodDescriptor<Object, Object> method(
            String name, String request, String reply) {
        String fullName = MethodDescriptor.generateFullMethodName("kvstore.v1.Store", name);
        return MethodDescriptor.newBuilder(marshaller(request), marshaller(reply))
                .setType(MethodType.BIDI_STREAMING)
                .setFullMethodName(fullName)
                .build();
    }

    private static Marshaller<Object> marshaller(String message) {
        ProtoAdapter<Object> adapter = SCHEMA.protoAdapter("kvstore.v1." + message, false);
        return new Marshaller<>() {
            @Override
            public InputStream stream(Object value) {
                return new Buffer().write(adapter.encodeByteString(value)).inputStream();
            }

            @Override
            public Object parse(InputStream encoded) {
                try {
                    return adapter.decode(Okio.buffer(Okio.source(encoded)));
                } catch (IOException failure) {
                    throw new UncheckedIOException(failure);
                }
            }
        };
    }
}
