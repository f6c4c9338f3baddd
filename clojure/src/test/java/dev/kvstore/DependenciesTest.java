package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Timeout.ThreadMode.SEPARATE_THREAD;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Tests {@link NDArray#dependencies} and related methods. */
class DependenciesTest {
    private static NDArray ones() {
        return NDArray.ones(Shape.of(2));
    }

    @Test
    void dependenciesAreAllAncestors() {
        NDArray a = ones();
        NDArray b = ones();
        NDArray c = ones();
        NDArray sum = b.add(c);
        NDArray result = a.add(sum);
        assertEquals(4, result.dependencies().size());
        Expect.theSame(List.of(a, sum, b, c), result.dependencies());
        Expect.theSame(List.of(), a.dependencies());
    }

    @Test
    void closingDependenciesKeepsTheResultOpen() {
        NDArray a = ones();
        NDArray sum = a.add(a);
        NDArray result = sum.multiply(3);
        assertSame(result, result.closeDependencies());
        assertTrue(a.isClosed() && sum.isClosed());
        assertEquals(6, result.toFloats()[0]);
        Expect.theSame(List.of(), result.dependencies());
    }

    @Test
    void keptArraysKeepTheirDependencies() {
        NDArray a = ones();
        NDArray kept = a.add(1);
        NDArray b = ones();
        NDArray result = kept.multiply(b);
        result.closeDependenciesExcept(kept);
        assertFalse(a.isClosed() || kept.isClosed());
        assertTrue(b.isClosed());
        Expect.theSame(List.of(a), kept.dependencies());
        Expect.theSame(List.of(kept, a), result.dependencies());
        Expect.nullParameter("kept", () -> result.closeDependenciesExcept((NDArray) null));
    }

    @Test
    void viewsAndInPlaceOperationsAddNoDependencies() {
        NDArray a = ones();
        NDArray b = ones();
        Expect.theSame(List.of(), a.slice(0, 1).dependencies());
        Expect.theSame(List.of(), a.reshape(2, 1).dependencies());
        Expect.theSame(List.of(), a.addInPlace(b).dependencies());
        Expect.theSame(List.of(),
                NDArray.of(new byte[2], a.shape(), a.dtype(), a.context()).dependencies());
    }

    @Test
    void resultsDependOnOneArrayOrSeveral() {
        NDArray a = NDArray.ones(Shape.of(2, 2));
        NDArray b = NDArray.ones(Shape.of(2, 2));
        for (NDArray one : List.of(
                a.apply(UnaryOp.EXP), a.reduce(Reduction.SUM), a.clip(0, 1), a.transpose(),
                a.copy(), a.argmaxChannel(), a.asType(DType.INT32), a.add(1),
                a.asContext(Context.cpu(1)))) {
            Expect.theSame(List.of(a), one.dependencies());
        }
        Expect.theSame(List.of(a, b), a.dot(b).dependencies());
        Expect.theSame(List.of(a, b), NDArray.concatenate(List.of(a, b), 0).dependencies());
    }

    @Test
    void closedAncestorsAreSkipped() {
        NDArray a = ones();
        NDArray middle = a.add(1);
        NDArray result = middle.add(1);
        middle.close();
        Expect.theSame(List.of(a), result.dependencies());
    }

    @Test
    void anArrayKeepsNoOtherArrayAlive() {
        NDArray result = ones().add(1);
        WeakReference<?> collected = new WeakReference<>(new Object());
        while (collected.get() != null || !result.dependencies().isEmpty()) {
            System.gc();
        }
        assertEquals(2, result.toFloats()[0]);
    }

    /** Compares random graphs with a model that keeps all operands. */
    @Test
    void pruningKeepsAllOpenAncestors() {
        for (int seed = 0; seed < 100; seed++) {
            Random random = new Random(seed);
            List<NDArray> open = new ArrayList<>();
            Map<NDArray, Set<NDArray>> ancestors = new IdentityHashMap<>();
            for (int i = 0; i < 400; i++) {
                Collections.shuffle(open, random);
                List<NDArray> operands =
                        List.copyOf(open.subList(0, Math.min(open.size(), random.nextInt(7))));
                NDArray array = ones();
                array.ancestry().comesFrom(operands.toArray(NDArray[]::new));
                Set<NDArray> all = identitySet(operands);
                operands.forEach(operand -> all.addAll(ancestors.get(operand)));
                ancestors.put(array, all);
                open.add(array);
                while (open.size() > 5 + seed % 20) {
                    open.remove(random.nextInt(open.size())).close();
                }
            }
            for (NDArray array : open) {
                Set<NDArray> expected = identitySet(List.copyOf(ancestors.get(array)));
                expected.removeIf(NDArray::isClosed);
                assertEquals(expected, identitySet(array.dependencies()));
            }
        }
    }

    /**
     * Every array of the chain is closed or garbage-collected. In both cases, it must not leave
     * memory behind.
     */
    @Test
    @Tag("memory")
    void aLongChainTakesNoMemory() {
        NDArray x = ones();
        for (int i = 0; i < 2_000_000; i++) {
            NDArray next = x.add(1);
            if (i % 2 == 0) {
                x.close();
            }
            if (i % 100_000 == 0) {
                System.gc();
            }
            x = next;
        }
        assertSmall(x);
        assertTrue(x.dependencies().size() <= 1);
    }

    /** Both operands of each step are open. Only arrays of earlier steps are closed. */
    @Test
    @Tag("memory")
    void aLongRecurrenceWithTwoOperandsTakesNoMemory() {
        NDArray before = ones();
        NDArray x = before.add(1);
        for (int i = 0; i < 2_000_000; i++) {
            NDArray next = x.add(before);
            before.close();
            before = x;
            x = next;
        }
        assertSmall(x);
        Expect.theSame(List.of(before), x.dependencies());
    }

    /** Takes minutes if each step copies all ancestors. */
    @Test
    @Tag("memory")
    @Timeout(value = 60, threadMode = SEPARATE_THREAD)
    void aSumOfManyArraysDependsOnAllOfThem() {
        List<NDArray> all = openArrays(200_000);
        NDArray sum = sum(all);
        List<NDArray> found = sum.dependencies();
        assertEquals(all.size(), found.size());
        assertEquals(identitySet(all), identitySet(found));
        sum.closeDependencies();
        assertTrue(all.stream().allMatch(NDArray::isClosed));
        assertEquals(all.size(), sum.toFloats()[0]);
    }

    /** Takes gigabytes if each quotient has an edge to each operand of the closed sum. */
    @Test
    @Tag("memory")
    @Timeout(value = 60, threadMode = SEPARATE_THREAD)
    void quotientsByAClosedSumTakeLinearMemory() {
        List<NDArray> all = openArrays(50_000);
        NDArray total = sum(all);
        List<NDArray> quotients = new ArrayList<>();
        for (NDArray one : List.copyOf(all)) {
            quotients.add(one.divide(total));
        }
        total.close();
        NDArray sum = sum(quotients);
        all.addAll(quotients);
        assertSmall(sum);
        assertEquals(identitySet(all), identitySet(sum.dependencies()));
        List<NDArray> first = quotients.get(0).dependencies();
        assertEquals(identitySet(all.subList(0, 50_000)), identitySet(first));
        sum.closeDependencies();
        assertTrue(all.stream().allMatch(NDArray::isClosed));
        assertEquals(1, sum.toFloats()[0], 0.01);
    }

    /**
     * Like the test above, but with an array with five operands between each result and the closed
     * sum.
     */
    @Test
    @Tag("memory")
    @Timeout(value = 60, threadMode = SEPARATE_THREAD)
    void aClosedSumBehindClosedArraysTakesLinearMemory() {
        List<NDArray> all = openArrays(20_000);
        NDArray total = sum(all);
        List<NDArray> results = new ArrayList<>();
        for (int i = 0; i + 3 < 20_000; i++) {
            NDArray rows = NDArray.concatenate(
                    List.of(total, all.get(i), all.get(i + 1), all.get(i + 2), all.get(i + 3)), 0);
            results.add(rows.add(1));
            results.add(rows.add(2));
            rows.close();
        }
        total.close();
        NDArray sum = sum(results);
        all.addAll(results);
        assertSmall(sum);
        assertEquals(identitySet(all), identitySet(sum.dependencies()));
    }

    /** Each step closes an array whose operands are all open arrays, and which two results use. */
    @Test
    @Tag("memory")
    @Timeout(value = 60, threadMode = SEPARATE_THREAD)
    void aLoopOverManyOpenArraysTakesNoMemory() {
        List<NDArray> open = openArrays(100);
        NDArray x = NDArray.concatenate(open, 0);
        NDArray y = x.add(1);
        for (int i = 0; i < 50_000; i++) {
            NDArray rows = NDArray.concatenate(open, 0);
            NDArray nextX = sum(List.of(x, y, rows));
            NDArray nextY = sum(List.of(y, x, rows));
            for (NDArray used : List.of(rows, x, y)) {
                used.close();
            }
            x = nextX;
            y = nextY;
        }
        assertSmall(x);
        assertEquals(identitySet(open), identitySet(x.dependencies()));
    }

    private static List<NDArray> openArrays(int count) {
        List<NDArray> arrays = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            arrays.add(ones());
        }
        return arrays;
    }

    /** Adds the arrays one by one, and closes every sum except the last. */
    private static NDArray sum(List<NDArray> arrays) {
        NDArray sum = arrays.get(0).copy();
        for (NDArray array : arrays.subList(1, arrays.size())) {
            NDArray next = sum.add(array);
            sum.close();
            sum = next;
        }
        return sum;
    }

    private static Set<NDArray> identitySet(List<NDArray> arrays) {
        Set<NDArray> set = Collections.newSetFromMap(new IdentityHashMap<>());
        set.addAll(arrays);
        return set;
    }

    private static void assertSmall(NDArray x) {
        x.add(1).close();
        Runtime runtime = Runtime.getRuntime();
        System.gc();
        long used = runtime.totalMemory() - runtime.freeMemory();
        assertTrue(used < 100L << 20, () -> used + " bytes");
    }
}
