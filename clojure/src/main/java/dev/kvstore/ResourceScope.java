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
 * Frees what a thread made inside of it, but not what it keeps.
 *
 * <pre>{@code
 * NDArray sum = ResourceScope.using(() -> {
 *     NDArray squares = a.multiply(a);          // freed at the end
 *     return squares.reduce(Reduction.SUM);     // kept: it is the result
 * });
 * }</pre>
 *
 * <p>Stores, arrays and states of optimizers that the thread makes while a scope is its innermost one
 * belong to that scope. At its end they are closed, except those that can be reached from the result: the
 * result itself, and what is in arrays, {@link Iterable}s and {@link Map}s, at any depth. Those belong to
 * the scope around it from then on, if there is one.
 */
public final class ResourceScope implements AutoCloseable {
    private static final int FEW = 64;

    private static final ThreadLocal<ResourceScope> INNERMOST = new ThreadLocal<>();

    private final ResourceScope outer;
    private final Thread thread = Thread.currentThread();
    private List<NativeResource> resources = new ArrayList<>();
    /** At how many resources those that are closed already are forgotten. */
    private int crowded = FEW;

    private ResourceScope() {
        outer = INNERMOST.get();
        INNERMOST.set(this);
    }

    /**
     * Opens a scope for this thread, which closes it as well.
     *
     * @return the scope
     */
    public static ResourceScope open() {
        return new ResourceScope();
    }

    /**
     * Runs {@code body} in a scope of its own.
     *
     * @param <T> the type of the result
     * @param body what to run
     * @return what it returned, still open
     * @throws Exception what it threw, after everything that was made inside has been closed
     */
    public static <T> T using(Callable<T> body) throws Exception {
        requireNonNull(body, "body");
        try (ResourceScope scope = open()) {
            return scope.keep(body.call());
        }
    }

    /** Enters a resource into the innermost scope of this thread, if there is one. */
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

    /** How many resources it would look at if it ended now. */
    int size() {
        return resources.size();
    }

    /**
     * Lets what can be reached from {@code result} outlive this scope.
     *
     * @param <T> the type of the result
     * @param result a resource, or arrays, iterables and maps that hold some
     * @return the result
     * @throws IllegalStateException when the scope is closed
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

    /** Everything that can be reached, the containers included: one that holds itself has an end. */
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
     * Closes what was made inside and is not kept, the latest first. Harmless when repeated.
     *
     * @throws IllegalStateException in another thread, or when a scope inside of this one is open
     */
    @Override
    public void close() {
        if (resources == null) {
            return;
        }
        if (thread != Thread.currentThread() || INNERMOST.get() != this) {
            throw new IllegalStateException(
                    "a resource scope is closed by its own thread, inner ones first");
        }
        INNERMOST.set(outer);
        List<NativeResource> made = resources;
        resources = null;
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
