package example;

import example.Model.Data;
import example.Model.Digit;
import example.Model.Parameters;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.List;
import org.apache.spark.BarrierTaskContext;
import scala.Function1;
import scala.collection.Iterator;

/**
 * A worker: a barrier task. Spark starts all tasks of a barrier stage at the same time. If one
 * fails, it starts all of them again, and they continue with the values on the servers. Spark's API
 * for Java has no barrier stages, so this is a function of Scala.
 *
 * @param servers the addresses of the servers
 * @param epochs how often to learn each digit
 * @param failing the worker that ends its process once, to show that training continues, or -1
 */
record Worker(List<String> servers, int epochs, int failing)
        implements Function1<Iterator<Integer>, Iterator<Worker.Result>>, Serializable {

    /** What a worker reports: its number of pushes, and the weights after those of all workers. */
    record Result(int worker, int attempt, long pid, int numPushes, float[] weights, float[] bias)
            implements Serializable {}

    @Override
    public Iterator<Result> apply(Iterator<Integer> unused) {
        BarrierTaskContext context = BarrierTaskContext.get();
        int worker = context.partitionId();
        int attempt = context.stageAttemptNumber();
        Data data = load();
        // A task of an earlier attempt may still be live for a moment, with its name.
        try (Store store = Store.join(servers, "worker-" + worker + "-" + attempt)) {
            context.barrier();
            int numPushes = 0;
            for (int epoch = 0; epoch < epochs; epoch++) {
                numPushes += train(store, data.batches(), context);
                if (worker == failing && attempt == 0 && epoch == epochs / 2) {
                    Runtime.getRuntime().halt(1);
                }
            }
            // After the barrier, the store has the pushes of all workers.
            context.barrier();
            Parameters last = store.pull();
            // No worker leaves before the others have pulled, as in a longer training.
            context.barrier();
            return Iterator.single(new Result(worker, attempt, ProcessHandle.current().pid(),
                    numPushes, last.weights(), last.bias()));
        }
    }

    private static Data load() {
        try {
            return Model.load();
        } catch (IOException exception) {
            throw new UncheckedIOException(exception);
        }
    }

    /** Learns each batch of this worker once. Returns the number of batches. */
    private static int train(Store store, List<List<Digit>> batches, BarrierTaskContext context) {
        int numWorkers = context.getTaskInfos().length;
        int numPushes = 0;
        for (int batch = context.partitionId(); batch < batches.size(); batch += numWorkers) {
            // If another task of this stage has failed.
            context.killTaskIfInterrupted();
            store.push(Model.gradients(store.pull(), batches.get(batch)));
            numPushes++;
        }
        return numPushes;
    }
}
