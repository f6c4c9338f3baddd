package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.CLOSED;
import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static dev.kvstore.KVStoreException.Code.SPEC_MISMATCH;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** Tests optimizers and schedules as values, and steps without a store. */
class OptimizerTest {
    private static final Shape SHAPE = Shape.of(2);

    @Test
    void everyOptimizerOfTheNativeLibraryRuns() {
        assertTrue(Optimizer.names().containsAll(List.of("sgd", "adamw", "ftrl", "nadam")));
        for (String name : Optimizer.names()) {
            Optimizer optimizer = Optimizer.of(name);
            assertEquals(name, optimizer.name());
            try (KVStore store = KVStore.create();
                    NDArray weight = NDArray.ones(SHAPE);
                    NDArray gradient = NDArray.ones(SHAPE)) {
                store.init("w", weight).setOptimizer(optimizer).push("w", gradient);
                assertEquals(optimizer.hyperParameters(), store.hyperParameters());
                assertNotEquals(1f, store.pull("w").toFloats()[0], name);
            }
        }
        Expect.code(INVALID_ARGUMENT, () -> Optimizer.of("sdg"));
    }

    @Test
    void everyOptimizerHasAFactoryAndEveryHyperParameterAMethod() throws Exception {
        Set<String> names = new HashSet<>();
        for (Method factory : Optimizer.class.getMethods()) {
            if (factory.getReturnType() != Optimizer.class
                    || !Modifier.isStatic(factory.getModifiers()) || factory.getParameterCount() > 0) {
                continue;
            }
            Optimizer optimizer = (Optimizer) factory.invoke(null);
            names.add(optimizer.name());
            Set<String> changed = new HashSet<>();
            for (Method option : Optimizer.class.getMethods()) {
                Class<?>[] kinds = option.getParameterTypes();
                if (option.getReturnType() != Optimizer.class || kinds.length != 1
                        || !kinds[0].isPrimitive()) {
                    continue;
                }
                for (double value : new double[] {0, 1}) {
                    try {
                        Object argument = kinds[0] == boolean.class ? (Object) (value != 0)
                                : kinds[0] == long.class ? (Object) (long) value : (Object) value;
                        Map<String, Double> after =
                                ((Optimizer) option.invoke(optimizer, argument)).hyperParameters();
                        after.forEach((name, number) -> {
                            if (!number.equals(optimizer.hyperParameters().get(name))) {
                                assertEquals(value, number, name);
                                changed.add(name);
                            }
                        });
                    } catch (InvocationTargetException thrown) {
                        // The optimizer has no such hyper-parameter, or it must be below 1.
                        assertEquals(KVStoreException.class, thrown.getCause().getClass());
                    }
                }
            }
            assertEquals(optimizer.hyperParameters().keySet(), changed, optimizer.name());
        }
        assertEquals(new HashSet<>(Optimizer.names()), names);
    }

    @Test
    void optimizersAreValues() {
        Optimizer plain = Optimizer.adam();
        assertEquals(Optimizer.adam(), plain.with("beta1", 0.5).with("beta1", 0.9));
        LrScheduler scheduler = LrScheduler.factor(2, 0.5);
        List<Optimizer> others = List.of(
                plain.learningRate(0.1),
                plain.scheduler(scheduler),
                plain.learningRateMultiplier("w", 2),
                plain.weightDecayMultiplier("w", 2),
                Optimizer.of("adam"));
        for (Optimizer other : others) {
            assertNotEquals(plain, other);
        }
        assertEquals(plain, plain.scheduler(scheduler).scheduler(null));
        assertEquals(scheduler, plain.scheduler(scheduler).scheduler());
        KVStoreException exception =
                Expect.code(INVALID_ARGUMENT, () -> Optimizer.adaGrad().momentum(0.9));
        assertTrue(exception.getMessage().contains("`momentum`"), exception.getMessage());
    }

    @Test
    void schedulesAreFunctions() {
        LrScheduler factor = LrScheduler.factor(2, 0.5);
        double[] rates = {0.1, 0.1, 0.05, 0.05, 0.025};
        for (int n = 1; n <= rates.length; n++) {
            assertEquals(rates[n - 1], factor.learningRate(0.1, n), 1e-15);
        }
        assertEquals(0.06, factor.stop(0.06).learningRate(0.1, 5), 1e-15);
        LrScheduler steps = LrScheduler.multiFactor(new long[] {1, 3}, 0.1);
        assertEquals(0.01, steps.learningRate(1, 4), 1e-15);
        assertEquals(0.25, LrScheduler.poly(4, 2, 0).learningRate(1, 2), 1e-15);
        assertEquals(0.5, LrScheduler.cosine(4, 0).learningRate(1, 2), 1e-15);
        LrScheduler warm = factor.warmup(4, 0.2, LrScheduler.Warmup.LINEAR);
        assertEquals(0.6, warm.learningRate(1, 2), 1e-15);
        LrScheduler held = factor.warmup(4, 0.2, LrScheduler.Warmup.CONSTANT);
        assertEquals(0.2, held.learningRate(1, 3), 1e-15);
        assertEquals(LrScheduler.factor(2, 0.5), factor);
        assertNotEquals(warm, held);
    }

    @Test
    void anInvalidScheduleIsRejectedAtCreation() {
        Expect.code(INVALID_ARGUMENT, () -> LrScheduler.factor(0, 0.5));
        Expect.code(INVALID_ARGUMENT, () -> LrScheduler.factor(1, 1.5));
        Expect.code(INVALID_ARGUMENT, () -> LrScheduler.factor(-1, 0.5));
        Expect.code(INVALID_ARGUMENT, () -> LrScheduler.multiFactor(new long[] {3, 2}, 0.5));
        Expect.code(INVALID_ARGUMENT, () -> LrScheduler.poly(0, 2, 0));
        Expect.code(INVALID_ARGUMENT, () -> LrScheduler.cosine(4, Double.NaN));
        Expect.code(INVALID_ARGUMENT, () -> LrScheduler.cosine(4, 0).stop(0.1));
        Expect.code(INVALID_ARGUMENT,
                () -> LrScheduler.cosine(4, 0).warmup(5, 0, LrScheduler.Warmup.LINEAR));
    }

    @Test
    void schedulesAndMultipliersRunOnTheStore() {
        Optimizer optimizer = Optimizer.sgd().weightDecay(0).learningRate(0.5)
                .scheduler(LrScheduler.factor(1, 0.5)).learningRateMultiplier("b", 0.5);
        try (KVStore store = KVStore.create();
                NDArray one = NDArray.ones(SHAPE)) {
            store.init("a", one).init("b", one).setOptimizer(optimizer);
            store.push("a", one).push("a", one).push("b", one);
            assertArrayEquals(new float[] {0.25f, 0.25f}, store.pull("a").toFloats());
            assertArrayEquals(new float[] {0.75f, 0.75f}, store.pull("b").toFloats());
        }
    }

    @Test
    void aStepWithoutAStoreGivesTheSameResult() {
        Optimizer optimizer = Optimizer.adam().learningRate(0.1);
        try (KVStore store = KVStore.create();
                NDArray weight = NDArray.ones(SHAPE);
                NDArray gradient = NDArray.of(new float[] {0.5f, -2}, SHAPE);
                OptimizerState state = optimizer.createState(weight)) {
            store.init("w", weight).setOptimizer(optimizer);
            assertEquals(0, state.numUpdates());
            for (int i = 0; i < 3; i++) {
                store.push("w", gradient);
                optimizer.update("w", weight, gradient, state);
            }
            assertArrayEquals(store.pull("w").toFloats(), weight.toFloats());
            assertEquals(3, state.numUpdates());
            assertEquals(2, state.arrays().size());
        }
    }

    @Test
    void aliasesEqualThoseOfTheNativeLibrary() {
        Map<String, String> aliases = Map.of(
                "lr", "learning_rate",
                "weight_decay", "wd",
                "num_update", "begin_num_update",
                "eps", "epsilon",
                "lambda", "lamda",
                "lambda1", "lamda1");
        try (KVStore store = KVStore.create()) {
            aliases.forEach((alias, name) -> {
                String optimizer = switch (name) {
                    case "lamda" -> "dcasgd";
                    case "lamda1" -> "ftrl";
                    default -> "adam";
                };
                assertEquals(2, Optimizer.of(optimizer).with(alias, 2).hyperParameters().get(name));
                store.setOptimizer(Optimizer.of(optimizer)).setHyperParameters(Map.of(alias, 1));
                assertEquals(1, store.hyperParameters().get(name));
                KVStoreException both = Expect.code(INVALID_ARGUMENT,
                        () -> store.setHyperParameters(new TreeMap<>(Map.of(alias, 0, name, 0))));
                assertTrue(both.getMessage().contains("`" + alias + "`"), both.getMessage());
                assertTrue(both.getMessage().contains("`" + name + "`"), both.getMessage());
                assertEquals(1, store.hyperParameters().get(name));
            });
        }
    }

    @Test
    void flagsEqualThoseOfTheNativeLibrary() {
        try (KVStore store = KVStore.create()) {
            for (String name : Optimizer.names()) {
                Optimizer optimizer = Optimizer.of(name);
                store.setOptimizer(optimizer);
                for (String parameter : optimizer.hyperParameters().keySet()) {
                    boolean isFlag = parameter.equals(flagIn(store, parameter));
                    assertEquals(isFlag, Optimizer.isFlag(parameter), parameter);
                    if (isFlag) {
                        assertEquals(0,
                                optimizer.with(parameter, false).hyperParameters().get(parameter));
                        store.setHyperParameters(Map.of(parameter, true));
                        assertEquals(1, store.hyperParameters().get(parameter));
                    } else {
                        Expect.code(INVALID_ARGUMENT, () -> optimizer.with(parameter, true));
                        KVStoreException thrown = Expect.code(INVALID_ARGUMENT,
                                () -> store.setHyperParameters(Map.of(parameter, true)));
                        assertTrue(thrown.getMessage().contains("expected a number"),
                                thrown.getMessage());
                    }
                    Expect.code(INVALID_ARGUMENT,
                            () -> store.setHyperParameters(Map.of(parameter, "x")));
                }
            }
        }
    }

    /** Returns the hyper-parameter if the native library accepts only 0 and 1 for it. */
    private static String flagIn(KVStore store, String parameter) {
        try {
            store.setHyperParameters(Map.of(parameter, 0.5));
            return null;
        } catch (KVStoreException exception) {
            return exception.getMessage().endsWith("expected 0 or 1") ? parameter : null;
        }
    }

    @Test
    void anInvalidStepChangesNothing() {
        Optimizer optimizer = Optimizer.sgd();
        NDArray weight = NDArray.ones(SHAPE);
        OptimizerState state = optimizer.createState(weight);
        NDArray longer = NDArray.ones(Shape.of(3));
        Expect.code(SPEC_MISMATCH, () -> optimizer.update("w", weight, longer, state));
        assertArrayEquals(new float[] {1, 1}, weight.toFloats());
        assertEquals(0, state.numUpdates());
        OptimizerState other = Optimizer.adam().createState(longer);
        Expect.code(SPEC_MISMATCH, () -> Optimizer.adam().update("w", weight, weight, other));
        NDArray integers = NDArray.ones(SHAPE, DType.INT32, Context.cpu());
        Expect.code(INVALID_ARGUMENT, () -> optimizer.createState(integers));
        state.close();
        state.close();
        Expect.code(CLOSED, () -> optimizer.update("w", weight, weight, state));
        Expect.code(CLOSED, state::numUpdates);
        Expect.nullParameter("state", () -> optimizer.update("w", weight, weight, null));
    }

    @Test
    void aStateFitsOnlyItsOptimizerAndWeight() {
        try (NDArray weight = NDArray.ones(Shape.of(2));
                NDArray half = weight.asType(DType.FLOAT16);
                NDArray longer = NDArray.ones(Shape.of(7));
                OptimizerState state = Optimizer.of("sgd").createState(weight)) {
            Expect.code(SPEC_MISMATCH, () -> Optimizer.of("sgd").update("w", half, half, state));
            Expect.code(SPEC_MISMATCH,
                    () -> Optimizer.of("sgd").update("w", longer, longer, state));
            Expect.code(INVALID_ARGUMENT,
                    () -> Optimizer.of("adam").update("w", weight, weight, state));
            Optimizer.of("sgd").update("w", weight, weight, state);
        }
    }
}
