package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.lang.ref.WeakReference;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReferenceFieldUpdater;
import java.util.function.Predicate;

/**
 * An array as an ancestor of others: which arrays it was computed from, and those in turn. It keeps none
 * of them alive.
 *
 * <p>A loop such as {@code x = x.add(1)} makes a line of ancestors without end. Those that are closed or
 * collected are therefore taken out from time to time: after a quarter as many steps as arrays were still
 * there the last time, so that a step costs the same however long the line is.
 */
final class Ancestry extends WeakReference<NDArray> {
    private static final Line NONE = new Line(new Ancestry[0], 0, 0);

    /** The steps that are always made before ancestors are taken out. */
    private static final int MIN_STEPS = 8;

    private static final AtomicReferenceFieldUpdater<NDArray, Ancestry> OF_ARRAY =
            AtomicReferenceFieldUpdater.newUpdater(NDArray.class, Ancestry.class, "ancestry");

    /** Two threads may both take ancestors out: each of their results is right. */
    private volatile Line line = NONE;

    /**
     * What an array was computed from.
     *
     * @param parents the arrays, or those that are open among the nearest before them
     * @param numSteps the longest way, in arrays, to one after which ancestors were taken out
     * @param numOpen the number of ancestors that were open then
     */
    private record Line(Ancestry[] parents, int numSteps, int numOpen) {}

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

    /** Enters what the array was computed from. */
    void comesFrom(NDArray... operands) {
        Ancestry[] parents = new Ancestry[operands.length];
        int numSteps = 0;
        int numOpen = 0;
        for (int i = 0; i < operands.length; i++) {
            parents[i] = operands[i].ancestry();
            Line before = parents[i].line;
            numSteps = Math.max(numSteps, before.numSteps + 1);
            numOpen = Math.max(numOpen, before.numOpen);
        }
        line = new Line(parents, numSteps, numOpen);
        if (numSteps > numOpen / 4 + MIN_STEPS) {
            takeOut();
        }
    }

    /** Forgets what the array was computed from. */
    void forget() {
        line = NONE;
    }

    /** All ancestors that are open, each once, the nearest first. */
    List<NDArray> open() {
        return open(line.parents);
    }

    private static List<NDArray> open(Ancestry... nearest) {
        List<NDArray> found = new ArrayList<>();
        visit(nearest, ancestor -> {
            NDArray array = ancestor.get();
            if (array != null && !array.isClosed()) {
                found.add(array);
            }
            return true;
        });
        return Collections.unmodifiableList(found);
    }

    /** Closes them but for some arrays and what those come from. */
    void closeExcept(NDArray... kept) {
        Set<NDArray> spared = Collections.newSetFromMap(new IdentityHashMap<>());
        List<Ancestry> parents = new ArrayList<>();
        for (NDArray array : kept) {
            spared.add(requireNonNull(array, "kept"));
            Collections.addAll(parents, array.ancestry().line.parents);
        }
        spared.addAll(open(parents.toArray(Ancestry[]::new)));
        for (NDArray array : open()) {
            if (!spared.contains(array)) {
                array.close();
            }
        }
    }

    private boolean isGone() {
        NDArray array = get();
        return array == null || array.isClosed();
    }

    /**
     * Takes those that are closed or collected out of this line and of those of its open ancestors.
     *
     * <p>Which ones are open is asked once. The collector may take them all before the last line is
     * renewed, and then every line would be walked to its end.
     */
    private void takeOut() {
        Set<Ancestry> open = new LinkedHashSet<>();
        visit(line.parents, ancestor -> {
            if (!ancestor.isGone()) {
                open.add(ancestor);
            }
            return true;
        });
        renew(open);
        for (Ancestry ancestor : open) {
            ancestor.renew(open);
        }
    }

    private void renew(Set<Ancestry> open) {
        List<Ancestry> nearest = new ArrayList<>();
        visit(line.parents, ancestor -> {
            boolean isOpen = open.contains(ancestor);
            if (isOpen) {
                nearest.add(ancestor);
            }
            return !isOpen;
        });
        line = new Line(nearest.toArray(Ancestry[]::new), 0, open.size());
    }

    /** Visits ancestors, each once, the nearest first, and the parents of those where the visitor says so. */
    private static void visit(Ancestry[] nearest, Predicate<Ancestry> goesOn) {
        Set<Ancestry> reached = Collections.newSetFromMap(new IdentityHashMap<>());
        ArrayDeque<Ancestry> rest = new ArrayDeque<>(List.of(nearest));
        while (!rest.isEmpty()) {
            Ancestry ancestor = rest.remove();
            if (reached.add(ancestor) && goesOn.test(ancestor)) {
                Collections.addAll(rest, ancestor.line.parents);
            }
        }
    }
}
