package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.List;

/** Returns and closes the arrays that an {@link NDArray} was computed from. */
public sealed interface ArrayDependencies permits NDArray {
    /**
     * Returns the open arrays that this array was computed from, directly or indirectly. For
     * example, {@code a.add(b.add(c))} has four. An array keeps none of its dependencies alive, so
     * the result contains only arrays that something else keeps alive. Views and in-place
     * operations add no dependencies.
     *
     * @return the arrays, each once, the nearest first
     */
    default List<NDArray> dependencies() {
        return array().ancestry().open();
    }

    /**
     * Closes all {@link #dependencies} and removes them from the list.
     *
     * @return this array
     */
    default NDArray closeDependencies() {
        return closeDependenciesExcept();
    }

    /**
     * Closes all {@link #dependencies} except {@code kept} and the dependencies of {@code kept}.
     * Removes the closed arrays from the list.
     *
     * @param kept the arrays that stay open
     * @return this array
     */
    default NDArray closeDependenciesExcept(NDArray... kept) {
        NDArray array = array();
        array.ancestry().closeExcept(requireNonNull(kept, "kept"));
        return array;
    }

    private NDArray array() {
        return (NDArray) this;
    }
}
