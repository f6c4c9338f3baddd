package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** What an array was computed from. */
class DependenciesTest {
    private static NDArray ones() {
        return NDArray.ones(Shape.of(2));
    }

    @Test
    void theyAreAllAncestors() {
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
    void closingThemLeavesTheResult() {
        NDArray a = ones();
        NDArray sum = a.add(a);
        NDArray result = sum.multiply(3);
        assertSame(result, result.closeDependencies());
        assertTrue(a.isClosed() && sum.isClosed());
        assertEquals(6, result.toFloats()[0]);
        Expect.theSame(List.of(), result.dependencies());
    }

    @Test
    void whatIsKeptKeepsItsOwn() {
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
    void viewsAndWhatIsDoneInPlaceAddNone() {
        NDArray a = ones();
        NDArray b = ones();
        Expect.theSame(List.of(), a.slice(0, 1).dependencies());
        Expect.theSame(List.of(), a.reshape(2, 1).dependencies());
        Expect.theSame(List.of(), a.addInPlace(b).dependencies());
        Expect.theSame(List.of(), NDArray.of(new byte[2], a.shape(), a.dtype(), a.context()).dependencies());
    }

    @Test
    void whatIsComputedFromOneArrayOrMany() {
        NDArray a = NDArray.ones(Shape.of(2, 2));
        NDArray b = NDArray.ones(Shape.of(2, 2));
        for (NDArray one : List.of(
                a.apply(UnaryOp.EXP), a.reduce(Reduction.SUM), a.clip(0, 1), a.transpose(), a.copy(),
                a.argmaxChannel(), a.asType(DType.INT32), a.add(1), a.asContext(Context.cpu(1)))) {
            Expect.theSame(List.of(a), one.dependencies());
        }
        Expect.theSame(List.of(a, b), a.dot(b).dependencies());
        Expect.theSame(List.of(a, b), NDArray.concatenate(List.of(a, b), 0).dependencies());
    }

    @Test
    void anAncestorThatIsClosedIsPassedOver() {
        NDArray a = ones();
        NDArray middle = a.add(1);
        NDArray result = middle.add(1);
        middle.close();
        Expect.theSame(List.of(a), result.dependencies());
    }

    @Test
    void anArrayKeepsNoOther() {
        NDArray result = ones().add(1);
        WeakReference<?> collected = new WeakReference<>(new Object());
        while (collected.get() != null || !result.dependencies().isEmpty()) {
            System.gc();
        }
        assertEquals(2, result.toFloats()[0]);
    }

    /** Every array of the line is closed, or collected: neither may leave something behind for ever. */
    @Test
    @Tag("memory")
    void aLongLineTakesNoMemory() {
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

    /** At each step both operands are open. Only arrays of earlier steps are closed. */
    @Test
    @Tag("memory")
    void aLongRecurrenceOfTwoTermsTakesNoMemory() {
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
    void aSumOfManyArraysKnowsThemAll() {
        List<NDArray> all = new ArrayList<>();
        NDArray sum = ones();
        for (int i = 0; i < 200_000; i++) {
            NDArray one = ones();
            all.add(one);
            NDArray next = sum.add(one);
            sum.close();
            sum = next;
        }
        List<NDArray> found = sum.dependencies();
        assertEquals(all.size(), found.size());
        assertEquals(identitySet(all), identitySet(found));
        sum.closeDependencies();
        assertTrue(all.stream().allMatch(NDArray::isClosed));
        assertEquals(all.size() + 1, sum.toFloats()[0]);
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
