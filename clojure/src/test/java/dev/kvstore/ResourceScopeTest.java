package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.Test;

/** Tests which resources a scope closes, and when it may be closed itself. */
class ResourceScopeTest {
    private static NDArray one() {
        return NDArray.ones(Shape.of(1));
    }

    @Test
    void theResultStaysOpen() throws Exception {
        NDArray[] made = new NDArray[2];
        Map<String, List<NDArray>> kept = ResourceScope.using(() -> {
            made[0] = one();
            made[1] = made[0].add(1);
            return Map.of("result", List.of(made[1]));
        });
        assertTrue(made[0].isClosed());
        assertFalse(kept.get("result").get(0).isClosed());
    }

    @Test
    void aScopeMustBeClosedByItsThreadAfterInnerScopes() throws Exception {
        NDArray made;
        try (ResourceScope outer = ResourceScope.open()) {
            made = one();
            try (ResourceScope inner = ResourceScope.open()) {
                assertEquals(0, inner.size());
                assertThrows(IllegalStateException.class, outer::close);
                assertFalse(made.isClosed());
            }
            CompletableFuture<Void> other = CompletableFuture.runAsync(outer::close);
            ExecutionException exception = assertThrows(ExecutionException.class, other::get);
            assertEquals(IllegalStateException.class, exception.getCause().getClass());
            assertFalse(made.isClosed());
        }
        assertTrue(made.isClosed());
    }

    @Test
    void aClosedScopeKeepsNothing() {
        ResourceScope scope = ResourceScope.open();
        scope.close();
        scope.close();
        assertThrows(IllegalStateException.class, () -> scope.keep(null));
        try (NDArray array = one()) {
            assertEquals(1, array.toScalar());
        }
    }

    @Test
    void anErrorOfOneResourceClosesTheOthers() {
        NDArray[] made = new NDArray[1];
        OutOfMemoryError error = new OutOfMemoryError("of the test");
        OutOfMemoryError thrown = assertThrows(OutOfMemoryError.class, () -> {
            try (ResourceScope scope = ResourceScope.open()) {
                made[0] = one();
                ResourceScope.register(new NativeResource() {
                    @Override
                    public boolean isClosed() {
                        return false;
                    }

                    @Override
                    public void close() {
                        throw error;
                    }
                });
                assertEquals(2, scope.size());
            }
        });
        assertSame(error, thrown);
        assertTrue(made[0].isClosed());
    }

    /** A scope around a long loop does not keep the resources that the loop closes. */
    @Test
    void closedResourcesAreRemoved() {
        try (ResourceScope scope = ResourceScope.open()) {
            for (int i = 0; i < 10_000; i++) {
                one().close();
            }
            assertTrue(scope.size() < 1000, () -> scope.size() + " resources");
        }
    }
}
