package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.lang.ref.WeakReference;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReferenceFieldUpdater;

/**
 * An array as an ancestor of others: which arrays it was computed from, and those in turn. It keeps none
 * of them alive.
 *
 * <p>A loop such as {@code x = x.add(1)} makes a line of ancestors without end. Those that are closed or
 * collected are therefore passed over when the next array is computed, so that the line is never longer
 * than the arrays of it that are still there.
 */
final class Ancestry extends WeakReference<NDArray> {
    private static final Ancestry[] NONE = {};

    private static final AtomicReferenceFieldUpdater<NDArray, Ancestry> OF_ARRAY =
            AtomicReferenceFieldUpdater.newUpdater(NDArray.class, Ancestry.class, "ancestry");

    /** Two threads may both pass over some parents: they find the same ones. */
    private volatile Ancestry[] parents = NONE;

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
        Ancestry[] direct = new Ancestry[operands.length];
        for (int i = 0; i < operands.length; i++) {
            direct[i] = operands[i].ancestry();
            direct[i].livingParents();
        }
        parents = direct;
    }

    /** Forgets what the array was computed from. */
    void forget() {
        parents = NONE;
    }

    /** All ancestors that are open, each once, the nearest first. */
    List<NDArray> open() {
        return open(new ArrayDeque<>(List.of(livingParents())));
    }

    private static List<NDArray> open(ArrayDeque<Ancestry> rest) {
        List<NDArray> found = new ArrayList<>();
        Set<Ancestry> reached = identitySet();
        while (!rest.isEmpty()) {
            Ancestry ancestor = rest.remove();
            NDArray array = ancestor.get();
            if (reached.add(ancestor)) {
                Collections.addAll(rest, ancestor.livingParents());
                if (array != null && !array.isClosed()) {
                    found.add(array);
                }
            }
        }
        return Collections.unmodifiableList(found);
    }

    /** Closes them but for some arrays and what those come from. */
    void closeExcept(NDArray... kept) {
        Set<NDArray> spared = Collections.newSetFromMap(new IdentityHashMap<>());
        ArrayDeque<Ancestry> parents = new ArrayDeque<>();
        for (NDArray array : kept) {
            spared.add(requireNonNull(array, "kept"));
            Collections.addAll(parents, array.ancestry().livingParents());
        }
        spared.addAll(open(parents));
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

    private Ancestry[] livingParents() {
        Ancestry[] present = parents;
        for (Ancestry parent : present) {
            if (parent.isGone()) {
                parents = nearestLiving(present);
                return parents;
            }
        }
        return present;
    }

    private static Ancestry[] nearestLiving(Ancestry[] from) {
        Collection<Ancestry> living = new ArrayList<>();
        Set<Ancestry> reached = identitySet();
        ArrayDeque<Ancestry> rest = new ArrayDeque<>(List.of(from));
        while (!rest.isEmpty()) {
            Ancestry ancestor = rest.remove();
            if (!reached.add(ancestor)) {
                continue;
            }
            if (ancestor.isGone()) {
                Collections.addAll(rest, ancestor.parents);
            } else {
                living.add(ancestor);
            }
        }
        return living.toArray(Ancestry[]::new);
    }

    private static Set<Ancestry> identitySet() {
        return Collections.newSetFromMap(new IdentityHashMap<>());
    }
}
