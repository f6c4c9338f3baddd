package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.List;

/** Returns and closes the arrays that an {@link NDArray} was computed from. */
public sealed interface ArrayDependencies permits NDArray {
    /**
     * Returns the open arrays that this one was computed from, those that they were computed from,
     * and so on: {@code a.add(b.add(c))} has four. They are found as long as something else keeps
     * them; an array never keeps another one. Views and what is done in place add none.
     *
     * @return the arrays, each once, the nearest first
     */
    default List<NDArray> dependencies() {
        return array().ancestry().open();
    }

    /**
     * Closes all {@link #dependencies} and forgets them.
     *
     * @return this array
     */
    default NDArray closeDependencies() {
        return closeDependenciesExcept();
    }

    /**
     * Closes all {@link #dependencies} but some, and forgets those that it closed.
     *
     * @param kept arrays that stay open, with their own dependencies
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
