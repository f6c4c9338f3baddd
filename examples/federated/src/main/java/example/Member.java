package example;

import com.google.protobuf.ByteString;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;
import java.util.logging.Logger;
import kvstore.v1.StoreGrpc;
import kvstore.v1.StoreOuterClass.JoinReply;
import kvstore.v1.StoreOuterClass.JoinRequest;
import kvstore.v1.StoreOuterClass.Leave;
import kvstore.v1.StoreOuterClass.MemberMessage;
import kvstore.v1.StoreOuterClass.Pull;
import kvstore.v1.StoreOuterClass.Push;
import kvstore.v1.StoreOuterClass.Renewal;
import kvstore.v1.StoreOuterClass.Reply;
import kvstore.v1.StoreOuterClass.ReplyFrame;
import kvstore.v1.StoreOuterClass.Request;
import kvstore.v1.StoreOuterClass.RequestFrame;
import kvstore.v1.StoreOuterClass.RoundPush;
import kvstore.v1.StoreOuterClass.ServerMessage;
import kvstore.v1.StoreOuterClass.Spec;
import kvstore.v1.StoreOuterClass.Value;
import kvstore.v1.StoreOuterClass.Wanted;

/**
 * A member of the group of a server. It needs only gRPC and the classes that are generated from
 * {@code store.proto}. One thread may use it.
 */
final class Member implements AutoCloseable {
    /** The number of the error of a push that is late for its round. */
    static final int LATE_PUSH = 16;

    /** How long a call waits for the server. */
    private static final long SECONDS = 300;

    /** The most bytes of data in a frame. Servers reject frames that are much longer. */
    private static final int FRAME = 256 << 10;

    /** The logger of gRPC, which logs information about the machine by default. */
    private static final Logger GRPC = Logger.getLogger("io.grpc");

    static {
        GRPC.setLevel(Level.WARNING);
    }

    private final String name;
    private final ManagedChannel channel;
    private final ScheduledExecutorService renewals;
    private final StreamObserver<MemberMessage> lease;
    private final StreamObserver<RequestFrame> requests;
    private final Received<ServerMessage> events = new Received<>();
    private final Received<ReplyFrame> replies = new Received<>();
    private final JoinReply joined;
    private long sequence;

    /** An error of the store. */
    static final class Failure extends IOException {
        private static final long serialVersionUID = 1;

        /** The number of the error. */
        final int code;

        Failure(kvstore.v1.StoreOuterClass.Failure failure) {
            super(failure.getMessage());
            code = failure.getCode();
        }
    }

    /** A value of a key: 4-byte elements, and the number of its pushes. */
    record Pulled(ByteBuffer elements, long version) {}

    /** The data of a push. The server asks for its parts, and may ask for a part again. */
    interface Data {
        ByteString range(long first, int numBytes);
    }

    /** A push to a round: the least number of members, and how long it waits for the others. */
    record Round(int min, long graceMillis, double weight) {}

    /** Joins the group of a server. */
    Member(String address, String name) throws IOException {
        this.name = name;
        channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
        StoreGrpc.StoreStub store = StoreGrpc.newStub(channel);
        lease = store.join(events);
        requests = store.call(replies);
        renewals = Executors.newSingleThreadScheduledExecutor(task -> {
            Thread thread = new Thread(task, "lease of " + name);
            thread.setDaemon(true);
            return thread;
        });
        try {
            lease.onNext(MemberMessage.newBuilder().setJoin(JoinRequest.newBuilder()
                    .setVersion(1)
                    .setName(name)
                    .setProcess(ThreadLocalRandom.current().nextLong(1, Long.MAX_VALUE))
                    .setNumServers(1)).build());
            joined = events.next().getJoined();
        } catch (IOException failure) {
            shutDown();
            throw failure;
        }
        // From now on, only the thread of the renewals uses the stream, until it ends.
        MemberMessage renewal =
                MemberMessage.newBuilder().setRenewal(Renewal.getDefaultInstance()).build();
        long period = joined.getLeaseMs() / 4;
        renewals.scheduleAtFixedRate(() -> {
            events.clear();
            lease.onNext(renewal);
        }, period, period, TimeUnit.MILLISECONDS);
    }

    /** Pulls the value of a key. */
    Pulled pull(String key) throws IOException {
        Request.Builder pull = Request.newBuilder().setPull(Pull.newBuilder().addKeys(key));
        ReplyFrame frame = call(pull);
        Value value = frame.getReply().getValues(0);
        ByteBuffer elements = ByteBuffer.allocate(Math.toIntExact(numBytes(value.getSpec())))
                .order(ByteOrder.LITTLE_ENDIAN);
        frame.getData().copyTo(elements);
        while (elements.hasRemaining()) {
            replies.next().getData().copyTo(elements);
        }
        return new Pulled(elements.flip(), value.getVersion());
    }

    /**
     * Pushes a value to a round, and returns when the round is part of the store. The data are
     * multiplied by the weight. {@code based} is the pulled value that the push continues, or
     * {@code null}.
     */
    void push(String key, Spec spec, Data data, Round round, Pulled based) throws IOException {
        Value.Builder value = Value.newBuilder().setKey(key).setSpec(spec);
        if (based != null) {
            value.setVersion(based.version());
        }
        RoundPush.Builder rule = RoundPush.newBuilder()
                .setMin(round.min())
                .setGraceMs(round.graceMillis())
                .setWeight(round.weight());
        // Calls that change the store have numbers.
        sequence++;
        Request.Builder push = Request.newBuilder()
                .setSequence(sequence)
                .addUnanswered(sequence)
                .setPush(Push.newBuilder().addValues(value).setRound(rule));
        Reply reply = call(push).getReply();
        while (reply.hasWanted()) {
            send(reply.getWanted(), data);
            reply = checked(replies.next()).getReply();
        }
    }

    /** Sends a part of the data. The server asks for at most 2 MiB in advance. */
    private void send(Wanted wanted, Data data) {
        long end = wanted.getFirst() + wanted.getNumBytes();
        for (long first = wanted.getFirst(); first < end; first += FRAME) {
            int numBytes = (int) Math.min(FRAME, end - first);
            ByteString part = data.range(first, numBytes);
            requests.onNext(RequestFrame.newBuilder().setData(part).build());
        }
    }

    /** Makes a call. Returns the first frame of the reply. */
    private ReplyFrame call(Request.Builder request) throws IOException {
        request.setMember(name)
                .setIncarnation(joined.getIncarnation())
                .setAnsweredBelow(sequence)
                .setTimeoutMs(TimeUnit.SECONDS.toMillis(SECONDS));
        requests.onNext(RequestFrame.newBuilder().setRequest(request).build());
        return checked(replies.next());
    }

    private static ReplyFrame checked(ReplyFrame frame) throws Failure {
        if (frame.getReply().hasFailure()) {
            throw new Failure(frame.getReply().getFailure());
        }
        return frame;
    }

    private static long numBytes(Spec spec) {
        return spec.getShapeList().stream().reduce((long) Float.BYTES, Math::multiplyExact);
    }

    /** Leaves the group, and waits until the server has closed the stream. */
    @Override
    public void close() throws IOException {
        renewals.shutdown();
        try {
            renewals.awaitTermination(SECONDS, TimeUnit.SECONDS);
            lease.onNext(MemberMessage.newBuilder().setLeave(Leave.getDefaultInstance()).build());
            requests.onCompleted();
            while (events.next() != null) {
                // Skips lists of members.
            }
        } catch (InterruptedException interrupted) {
            throw new IOException(interrupted);
        } finally {
            shutDown();
        }
    }

    private void shutDown() {
        renewals.shutdownNow();
        channel.shutdownNow();
    }

    /** The messages of a stream, in their order. */
    private static final class Received<T> implements StreamObserver<T> {
        /** The end of the stream, without an error. */
        private static final Object END = new Object();

        private final BlockingQueue<Object> messages = new LinkedBlockingQueue<>();

        /** Waits for a message. Returns {@code null} at the end of the stream. */
        @SuppressWarnings("unchecked")
        T next() throws IOException {
            Object message;
            try {
                message = messages.poll(SECONDS, TimeUnit.SECONDS);
            } catch (InterruptedException interrupted) {
                throw new IOException(interrupted);
            }
            if (message == null) {
                throw new IOException("the server did not answer within " + SECONDS + " seconds");
            }
            if (message instanceof Throwable failure) {
                throw new IOException(failure);
            }
            return message == END ? null : (T) message;
        }

        /** Discards the messages that have arrived, except the end of the stream. */
        void clear() {
            messages.removeIf(message -> message != END && !(message instanceof Throwable));
        }

        @Override
        public void onNext(T message) {
            messages.add(message);
        }

        @Override
        public void onError(Throwable failure) {
            messages.add(failure);
        }

        @Override
        public void onCompleted() {
            messages.add(END);
        }
    }
}
