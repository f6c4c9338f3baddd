package example;

import dev.kvstore.KVStoreServer;
import dev.kvstore.ServerOptions;
import example.Model.Data;
import example.Model.Parameters;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import scala.reflect.ClassTag;

/**
 * Learns to read handwritten digits on Spark. The driver runs the servers, and each barrier task is
 * a worker.
 *
 * <pre>{@code
 * spark-submit --jars kvstore.jar --class example.Digits digits.jar [WORKERS [EPOCHS [FAILING]]]
 * }</pre>
 *
 * <p>{@code FAILING} is the number of a worker whose process ends once, during the training.
 */
public final class Digits {
    private static final int NUM_SERVERS = 2;

    private Digits() {}

    /** Trains, prints the result, and throws if it is wrong. */
    public static void main(String[] arguments) throws Exception {
        int numWorkers = argument(arguments, 0, 2);
        int epochs = argument(arguments, 1, 20);
        int failing = argument(arguments, 2, -1);
        try (JavaSparkContext spark = new JavaSparkContext(new SparkConf().setAppName("digits"))) {
            // Executors reach the driver at this address. If it is not a loopback address, driver
            // and executors need KVSTORE_CERTIFICATES, or KVSTORE_INSECURE=1.
            String address = spark.getConf().get("spark.driver.host") + ":0";
            List<KVStoreServer> servers = IntStream.range(0, NUM_SERVERS)
                    .mapToObj(index -> KVStoreServer.start(ServerOptions.of(address)))
                    .toList();
            try {
                List<String> addresses = servers.stream().map(KVStoreServer::address).toList();
                List<Worker.Result> results = train(spark, addresses, numWorkers,
                        new Worker(addresses, epochs, failing));
                check(addresses, results);
            } finally {
                servers.forEach(KVStoreServer::close);
            }
        }
    }

    private static int argument(String[] arguments, int index, int otherwise) {
        return index < arguments.length ? Integer.parseInt(arguments[index]) : otherwise;
    }

    private static List<Worker.Result> train(
            JavaSparkContext spark, List<String> servers, int numWorkers, Worker worker) {
        try (Store store = Store.join(servers, "driver")) {
            store.init(Parameters.zeros());
        }
        List<Integer> workers = IntStream.range(0, numWorkers).boxed().toList();
        // Spark starts the last stage of a job only once, so the results go through a shuffle.
        return spark.parallelize(workers, numWorkers).rdd().barrier()
                .mapPartitions(worker, false, ClassTag.apply(Worker.Result.class))
                .toJavaRDD().repartition(1).collect();
    }

    private static void check(List<String> servers, List<Worker.Result> results) throws Exception {
        Data data = Model.load();
        Worker.Result first = results.get(0);
        Parameters parameters = new Parameters(first.weights(), first.bias());
        double before = Model.loss(Parameters.zeros(), data.tested());
        double after = Model.loss(parameters, data.tested());
        double accuracy = Model.accuracy(parameters, data.tested());
        long numProcesses = results.stream().mapToLong(Worker.Result::pid).distinct().count();
        boolean isSame = results.stream().allMatch(result ->
                Arrays.equals(result.weights(), first.weights())
                        && Arrays.equals(result.bias(), first.bias()));
        long expected = results.stream().mapToInt(Worker.Result::numPushes).sum();
        long found;
        try (Store store = Store.join(servers, "driver")) {
            found = store.version();
        }
        System.out.printf("%d workers in %d processes, attempt %d: loss %.3f to %.3f, "
                        + "accuracy %.3f, %d pushes of %d, weights %s%n",
                results.size(), numProcesses, first.attempt(), before, after,
                accuracy, found, expected, isSame ? "equal" : "different");
        if (!isSame || after > before / 3 || accuracy < 0.9) {
            throw new AssertionError("the training has not reached its goal");
        }
        if (first.attempt() == 0 ? found != expected : found <= expected) {
            throw new AssertionError("expected " + expected + " pushes, found " + found);
        }
    }
}
