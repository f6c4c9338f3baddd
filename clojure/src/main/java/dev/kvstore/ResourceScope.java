package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;

/**
 * Closes the resources that a thread creates inside the scope, except its result.
 *
 * <pre>{@code
 * NDArray sum = ResourceScope.using(() -> {
 *     NDArray squares = a.multiply(a);          // freed at the end
 *     return squares.reduce(Reduction.SUM);     // kept: it is the result
 * });
 * }</pre>
 *
 * <p>Stores, arrays and other resources that a thread creates belong to its innermost open scope.
 * When the scope ends, it closes them, except those that are reachable from the result: the result
 * itself, and the elements of arrays, {@link Iterable}s and {@link Map}s at any depth. These then
 * belong to the enclosing scope, if there is one.
 */
public final class ResourceScope implements AutoCloseable {
    private static final int FEW = 64;

    private static final ThreadLocal<ResourceScope> INNERMOST = new ThreadLocal<>();

    private final ResourceScope outer;
    private final Thread thread = Thread.currentThread();
    private List<NativeResource> resources = new ArrayList<>();
    /** The number of resources above which closed resources are removed from the list. */
    private int crowded = FEW;

    private ResourceScope() {
        outer = INNERMOST.get();
        INNERMOST.set(this);
    }

    /**
     * Opens a scope for this thread. The same thread must close it.
     *
     * @return the scope
     */
    public static ResourceScope open() {
        return new ResourceScope();
    }

    /**
     * Runs {@code body} in a new scope.
     *
     * @param <T> the type of the result
     * @param body the code to run
     * @return the result of {@code body}, which stays open
     * @throws Exception if {@code body} throws it, after the resources of the scope have been
     *     closed
     */
    public static <T> T using(Callable<T> body) throws Exception {
        requireNonNull(body, "body");
        try (ResourceScope scope = open()) {
            return scope.keep(body.call());
        }
    }

    /** Adds a resource to the innermost scope of this thread, if there is one. */
    static void register(NativeResource resource) {
        ResourceScope scope = INNERMOST.get();
        if (scope != null) {
            scope.add(resource);
        }
    }

    private void add(NativeResource resource) {
        resources.add(resource);
        if (resources.size() > crowded) {
            resources.removeIf(NativeResource::isClosed);
            crowded = FEW + 2 * resources.size();
        }
    }

    /** Returns the number of resources in the list. */
    int size() {
        return resources.size();
    }

    /**
     * Removes everything that is reachable from {@code result} from this scope, so that it stays
     * open.
     *
     * @param <T> the type of the result
     * @param result a resource, or arrays, iterables and maps that contain resources
     * @return {@code result}
     * @throws IllegalStateException if the scope is closed
     */
    public <T> T keep(T result) {
        if (resources == null) {
            throw new IllegalStateException("the resource scope is closed");
        }
        Set<Object> kept = Collections.newSetFromMap(new IdentityHashMap<>());
        collect(result, kept);
        List<NativeResource> others = new ArrayList<>();
        for (NativeResource resource : resources) {
            if (!kept.contains(resource)) {
                others.add(resource);
            } else if (outer != null) {
                outer.add(resource);
            }
        }
        resources = others;
        return result;
    }

    /**
     * Adds everything that is reachable from {@code root} to {@code reached}, including containers,
     * so that a container that contains itself is visited once.
     */
    private static void collect(Object root, Set<Object> reached) {
        List<Object> rest = new ArrayList<>();
        rest.add(root);
        while (!rest.isEmpty()) {
            Object object = rest.remove(rest.size() - 1);
            if (object == null || !reached.add(object)) {
                continue;
            }
            if (object instanceof Map<?, ?> map) {
                rest.addAll(map.keySet());
                rest.addAll(map.values());
            } else if (object instanceof Iterable<?> items && !(object instanceof Path)) {
                items.forEach(rest::add);
            } else if (object instanceof Object[] items) {
                Collections.addAll(rest, items);
            }
        }
    }

    /**
     * Closes the resources of this scope, the newest first. Closing a closed scope does nothing.
     *
     * @throws IllegalStateException if another thread calls it
     * @throws IllegalStateException if an inner scope is open
     */
    @Override
    public void close() {
        if (resources == null) {
            return;
        }
        if (thread != Thread.currentThread() || INNERMOST.get() != this) {
            throw new IllegalStateException(
                    "cannot close the resource scope: "
                            + (thread == Thread.currentThread()
                                    ? "close its inner scope first"
                                    : "expected " + thread + ", found "
                                            + Thread.currentThread()));
        }
        INNERMOST.set(outer);
        List<NativeResource> made = resources;
        resources = null;
        // A resource that fails to close must not keep the others open.
        Throwable failure = null;
        for (int i = made.size() - 1; i >= 0; i--) {
            try {
                made.get(i).close();
            } catch (RuntimeException | Error failed) {
                if (failure == null) {
                    failure = failed;
                } else {
                    failure.addSuppressed(failed);
                }
            }
        }
        if (failure instanceof Error error) {
            throw error;
        }
        if (failure != null) {
            throw (RuntimeException) failure;
        }
    }
}
