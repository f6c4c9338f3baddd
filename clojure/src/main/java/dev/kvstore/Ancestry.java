package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.lang.ref.WeakReference;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReferenceFieldUpdater;
import java.util.function.Function;

/**
 * A node in the graph of operands. It refers to an array and to the nodes of the arrays that this
 * array was computed from. It keeps none of these arrays alive.
 *
 * <p>A loop such as {@code x = x.add(1)} creates an endless chain of ancestors. The graph is
 * therefore pruned: after pruning, edges skip the ancestors that are closed or garbage-collected.
 * Pruning visits all ancestors, so it waits until the number of steps since the last pruning is
 * proportional to the number of ancestors that were open then. The amortised cost of a step is
 * constant in such a loop.
 *
 * <p>Edges do not skip a closed ancestor with many operands, such as the sum of many open arrays.
 * Otherwise each array computed from that sum would have an edge to each of its operands.
 */
final class Ancestry extends WeakReference<NDArray> {
    private static final Operands NONE = new Operands(new Ancestry[0], 0, 0);

    /** The minimum number of steps between two prunings. */
    private static final int MIN_STEPS = 8;

    private static final AtomicReferenceFieldUpdater<NDArray, Ancestry> OF_ARRAY =
            AtomicReferenceFieldUpdater.newUpdater(NDArray.class, Ancestry.class, "ancestry");

    /**
     * Two threads may prune the same node at the same time. Both results are correct, so it does
     * not matter which one is stored.
     */
    private volatile Operands operands = NONE;

    /**
     * The number of arrays computed from this one. Counts no further than 2. It only guides
     * pruning, so a lost increment is harmless.
     */
    private int numUses;

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

    /**
     * Returns the node of an array, creating it on the first call. This is lock-free, because a
     * caller may hold the array's monitor while it waits for another thread.
     */
    static Ancestry of(NDArray array) {
        Ancestry present = array.ancestry;
        if (present != null) {
            return present;
        }
        Ancestry created = new Ancestry(array);
        return OF_ARRAY.compareAndSet(array, null, created) ? created : array.ancestry;
    }

    /** Records that this array was computed from {@code arrays}. */
    void comesFrom(NDArray... arrays) {
        Ancestry[] nearest = new Ancestry[arrays.length];
        int numSteps = 0;
        int numOpen = 0;
        for (int i = 0; i < arrays.length; i++) {
            nearest[i] = arrays[i].ancestry();
            nearest[i].numUses = Math.min(nearest[i].numUses + 1, 2);
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

    private void prune() {
        new Pruning().run(this);
    }

    private static Set<Ancestry> openAncestors(Ancestry... nearest) {
        Set<Ancestry> open = new LinkedHashSet<>();
        visit(nearest, ancestor -> {
            if (ancestor.isOpen()) {
                open.add(ancestor);
            }
            return ancestor.operands.nearest;
        });
        return open;
    }

    /**
     * Visits {@code nearest} and its ancestors breadth-first, each node once. {@code visitor}
     * returns the nodes to visit from a node.
     */
    private static void visit(Ancestry[] nearest, Function<Ancestry, Ancestry[]> visitor) {
        Set<Ancestry> visited = new HashSet<>();
        ArrayDeque<Ancestry> rest = new ArrayDeque<>(List.of(nearest));
        while (!rest.isEmpty()) {
            Ancestry ancestor = rest.remove();
            if (visited.add(ancestor)) {
                Collections.addAll(rest, visitor.apply(ancestor));
            }
        }
    }

    /**
     * One pruning of a node and its ancestors. After it, edges lead to open ancestors and to hubs.
     * A hub is a closed ancestor with several users and more than {@link #FEW} edges.
     *
     * <p>The edges of each node are computed once, after the edges of its operands. So the time is
     * linear in the size of the graph.
     */
    private static final class Pruning {
        private static final int FEW = 4;

        /**
         * The maximum number of hubs in a row. Without a limit, a loop that creates a hub at each
         * step would keep all of them.
         */
        private static final int MAX_HUBS = 32;

        private final Map<Ancestry, Node> nodes = new HashMap<>();

        void run(Ancestry root) {
            for (Ancestry ancestor : operandsFirst(root)) {
                Node node = nodes.get(ancestor);
                if (node.needsEdges()) {
                    connect(node);
                }
            }
            int numOpen = 0;
            for (Node node : nodes.values()) {
                numOpen += node.isOpen ? 1 : 0;
            }
            for (Map.Entry<Ancestry, Node> entry : nodes.entrySet()) {
                Node node = entry.getValue();
                if (node.edges != null && node.operands.length > 0) {
                    entry.getKey().operands = new Operands(node.edges, 0, numOpen);
                }
            }
        }

        /**
         * Creates the nodes of the graph and returns them in an order in which each node comes
         * after its operands.
         */
        private Set<Ancestry> operandsFirst(Ancestry root) {
            Set<Ancestry> order = new LinkedHashSet<>();
            // An explicit stack, because recursion would overflow on a long chain. A node stays on
            // the stack until its operands have been visited.
            ArrayDeque<Ancestry> path = new ArrayDeque<>(List.of(root));
            while (!path.isEmpty()) {
                Ancestry ancestor = path.peek();
                if (nodes.containsKey(ancestor)) {
                    order.add(path.pop());
                    continue;
                }
                Node node = new Node(ancestor);
                nodes.put(ancestor, node);
                for (Ancestry operand : node.operands) {
                    path.push(operand);
                }
            }
            for (Node node : nodes.values()) {
                for (Ancestry operand : node.operands) {
                    nodes.get(operand).numUses++;
                }
            }
            return order;
        }

        private void connect(Node node) {
            Set<Ancestry> edges = new LinkedHashSet<>();
            ArrayDeque<Ancestry> rest = new ArrayDeque<>(List.of(node.operands));
            while (!rest.isEmpty()) {
                Ancestry ancestor = rest.remove();
                Node found = nodes.get(ancestor);
                if (found.isOpen || found.isHub()) {
                    edges.add(ancestor);
                } else if (found.edges != null) {
                    Collections.addAll(edges, found.edges);
                } else {
                    Collections.addAll(rest, found.operands);
                }
            }
            node.edges = edges.toArray(Ancestry[]::new);
            for (Ancestry ancestor : node.edges) {
                Node found = nodes.get(ancestor);
                node.numHubs = Math.max(node.numHubs, found.isHub() ? found.numHubs + 1 : 0);
            }
            // Too many hubs in a row: skip them, so that they can be garbage-collected.
            if (node.numHubs > MAX_HUBS && !node.isOpen) {
                node.edges = openBehind(node.edges);
                node.numHubs = 0;
            }
        }

        /** Returns the open ancestors that these edges lead to, directly or through hubs. */
        private Ancestry[] openBehind(Ancestry[] edges) {
            List<Ancestry> open = new ArrayList<>();
            visit(edges, ancestor -> {
                Node found = nodes.get(ancestor);
                if (!found.isOpen) {
                    return found.edges;
                }
                open.add(ancestor);
                return NONE.nearest;
            });
            return open.toArray(Ancestry[]::new);
        }
    }

    /** A node before pruning, and its new edges. */
    private static final class Node {
        /** Read only once, because the garbage collector may free arrays during pruning. */
        private final boolean isOpen;

        private final Ancestry[] operands;

        /**
         * Whether the node has many operands and may have users outside the graph of this pruning.
         */
        private final boolean isShared;

        /** The number of uses in the graph of this pruning. */
        private int numUses;

        /** The new edges. Null if the node has a single user, whose edges then skip this node. */
        private Ancestry[] edges;

        /** The number of hubs on the longest path to an open ancestor. */
        private int numHubs;

        Node(Ancestry ancestry) {
            isOpen = ancestry.isOpen();
            operands = ancestry.operands.nearest;
            isShared = ancestry.numUses > 1 && operands.length > Pruning.FEW;
        }

        boolean needsEdges() {
            return isOpen || numUses != 1 || isShared;
        }

        boolean isHub() {
            return !isOpen && edges != null && edges.length > Pruning.FEW;
        }
    }
}
