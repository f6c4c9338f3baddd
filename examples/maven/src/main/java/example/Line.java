package example;

import dev.kvstore.Context;
import dev.kvstore.DType;
import dev.kvstore.KVStore;
import dev.kvstore.NDArray;
import dev.kvstore.Optimizer;
import dev.kvstore.Reduction;
import dev.kvstore.ResourceScope;
import dev.kvstore.Shape;
import java.util.List;
import java.util.Locale;

/** Fits y = w x on two devices to points of y = 3 x. Each device has its own points. */
public final class Line {
    private Line() {}

    private record Points(NDArray x, NDArray y) {
        static Points on(int device, float... xs) {
            NDArray x = NDArray.of(xs, Shape.of(xs.length), DType.FLOAT32, Context.cpu(device));
            return new Points(x, x.multiply(3));
        }

        /** Returns the derivative of half the squared error at a weight. */
        NDArray gradient(double weight) {
            return x.multiply(weight).subtract(y).multiply(x).reduce(Reduction.SUM);
        }
    }

    public static void main(String[] arguments) {
        // The scope closes every array that is created inside it.
        try (ResourceScope scope = ResourceScope.open(); KVStore store = KVStore.create("device")) {
            List<Points> devices = List.of(Points.on(0, 1, 2), Points.on(1, 0.5f, -1));
            store.init("w", NDArray.zeros(Shape.of(1)));
            store.setOptimizer(Optimizer.sgd().learningRate(0.1));
            for (int step = 0; step < 30; step++) {
                double weight = store.pull("w").toScalar();
                store.push("w", devices.stream().map(points -> points.gradient(weight)).toList());
            }
            System.out.printf(Locale.ROOT, "w = %.3f%n", store.pull("w").toScalar());
        }
    }
}
