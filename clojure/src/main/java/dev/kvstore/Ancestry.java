package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.lang.ref.WeakReference;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReferenceFieldUpdater;
import java.util.function.Predicate;

/**
 * A node in the graph of operands: it refers to an array and to the nodes of the arrays that one was
 * computed from. It keeps none of these arrays alive.
 *
 * <p>A loop such as {@code x = x.add(1)} makes an endless path of ancestors. The graph is therefore
 * pruned: edges then skip the ancestors that are closed or garbage-collected. Pruning visits all
 * ancestors, so it waits until the number of steps since the last pruning is proportional to the number
 * of ancestors that were open then. The amortised cost of a step is constant in such a loop.
 */
final class Ancestry extends WeakReference<NDArray> {
    private static final Operands NONE = new Operands(new Ancestry[0], 0, 0);

    /** The number of steps between two prunings, however few ancestors are open. */
    private static final int MIN_STEPS = 8;

    private static final AtomicReferenceFieldUpdater<NDArray, Ancestry> OF_ARRAY =
            AtomicReferenceFieldUpdater.newUpdater(NDArray.class, Ancestry.class, "ancestry");

    /** Two threads may prune the same node at once. Both results are correct, and either may stay. */
    private volatile Operands operands = NONE;

    /**
     * The edges of a node, and when they were last pruned.
     *
     * @param nearest the operands, or, after pruning, the nearest open ancestors
     * @param numSteps the length of the longest path back to a pruned node
     * @param numOpen the number of open ancestors at the last pruning
     */
    private record Operands(Ancestry[] nearest, int numSteps, int numOpen) {}

    private Ancestry(NDArray array) {
        super(array);
    }

    /** Lock-free, because a caller may hold the array's monitor while it waits for a thread. */
    static Ancestry of(NDArray array) {
        Ancestry present = array.ancestry;
        if (present != null) {
            return present;
        }
        Ancestry created = new Ancestry(array);
        return OF_ARRAY.compareAndSet(array, null, created) ? created : array.ancestry;
    }

    /** Records the arrays that this one was computed from. */
    void comesFrom(NDArray... arrays) {
        Ancestry[] nearest = new Ancestry[arrays.length];
        int numSteps = 0;
        int numOpen = 0;
        for (int i = 0; i < arrays.length; i++) {
            nearest[i] = arrays[i].ancestry();
            Operands before = nearest[i].operands;
            numSteps = Math.max(numSteps, before.numSteps + 1);
            numOpen = Math.max(numOpen, before.numOpen);
        }
        operands = new Operands(nearest, numSteps, numOpen);
        if (numSteps > numOpen / 4 + MIN_STEPS) {
            prune();
        }
    }

    /** Removes the record of what the array was computed from. */
    void forget() {
        operands = NONE;
    }

    /** Returns all open ancestors, each once, the nearest first. */
    List<NDArray> open() {
        return open(operands.nearest);
    }

    private static List<NDArray> open(Ancestry... nearest) {
        List<NDArray> arrays = new ArrayList<>();
        for (Ancestry ancestor : openAncestors(nearest)) {
            NDArray array = ancestor.get();
            if (array != null) {
                arrays.add(array);
            }
        }
        return Collections.unmodifiableList(arrays);
    }

    /** Closes all ancestors except {@code kept} and the ancestors of {@code kept}. */
    void closeExcept(NDArray... kept) {
        Set<NDArray> spared = Collections.newSetFromMap(new IdentityHashMap<>());
        List<Ancestry> nearest = new ArrayList<>();
        for (NDArray array : kept) {
            spared.add(requireNonNull(array, "kept"));
            Collections.addAll(nearest, array.ancestry().operands.nearest);
        }
        spared.addAll(open(nearest.toArray(Ancestry[]::new)));
        for (NDArray array : open()) {
            if (!spared.contains(array)) {
                array.close();
            }
        }
    }

    private boolean isOpen() {
        NDArray array = get();
        return array != null && !array.isClosed();
    }

    /**
     * Prunes this node and its open ancestors.
     *
     * <p>The set of open ancestors is computed once, before any node changes. The garbage collector may
     * free arrays meanwhile; if each node asked again, it would walk past all of them.
     */
    private void prune() {
        Set<Ancestry> open = openAncestors(operands.nearest);
        skipAllBut(open);
        for (Ancestry ancestor : open) {
            ancestor.skipAllBut(open);
        }
    }

    private void skipAllBut(Set<Ancestry> open) {
        List<Ancestry> nearest = new ArrayList<>();
        visit(operands.nearest, ancestor -> {
            boolean isOpen = open.contains(ancestor);
            if (isOpen) {
                nearest.add(ancestor);
            }
            return !isOpen;
        });
        operands = new Operands(nearest.toArray(Ancestry[]::new), 0, open.size());
    }

    private static Set<Ancestry> openAncestors(Ancestry... nearest) {
        Set<Ancestry> open = new LinkedHashSet<>();
        visit(nearest, ancestor -> {
            if (ancestor.isOpen()) {
                open.add(ancestor);
            }
            return true;
        });
        return open;
    }

    /**
     * Visits {@code nearest} and its ancestors breadth-first, each node once. Goes on to the operands of
     * the nodes for which {@code visitor} returns true.
     */
    private static void visit(Ancestry[] nearest, Predicate<Ancestry> visitor) {
        Set<Ancestry> visited = new HashSet<>();
        ArrayDeque<Ancestry> rest = new ArrayDeque<>(List.of(nearest));
        while (!rest.isEmpty()) {
            Ancestry ancestor = rest.remove();
            if (visited.add(ancestor) && visitor.test(ancestor)) {
                Collections.addAll(rest, ancestor.operands.nearest);
            }
        }
    }
}
