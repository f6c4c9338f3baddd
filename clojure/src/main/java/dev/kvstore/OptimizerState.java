package dev.kvstore;

import java.lang.ref.Reference;
import java.util.List;

/**
 * The optimizer state of one weight that is not in a store, see {@link Optimizer#createState}. A
 * store manages the states of its keys itself; {@link Snapshot#optimizerState} returns a copy of
 * such a state.
 */
public final class OptimizerState implements NativeResource {
    private final NativeHandle handle;

    OptimizerState(long state) {
        this.handle = NativeHandle.owned(this, state, NativeOptimizer::releaseState);
        ResourceScope.register(this);
    }

    /**
     * Returns the number of updates so far.
     *
     * @return the number
     */
    public long numUpdates() {
        try {
            return NativeOptimizer.numUpdates(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns copies of the arrays of the state, in the order in which they appear in the
     * optimizer's formula. For a half-precision weight, the first array is its {@code float32}
     * copy.
     *
     * @return new arrays
     */
    public List<NDArray> arrays() {
        try {
            long[] descriptions =
                    NativeMemory.allocate(0, () -> NativeOptimizer.stateArrays(handle()));
            return List.of(NDArray.adoptAll(descriptions));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Releases the state. Closing a closed state does nothing; other methods then throw
     * {@code CLOSED}.
     */
    @Override
    public void close() {
        handle.close();
    }

    /**
     * Returns whether the state was closed.
     *
     * @return true after {@link #close}
     */
    @Override
    public boolean isClosed() {
        return handle.isClosed();
    }

    long handle() {
        return handle.value(this);
    }

    @Override
    public String toString() {
        return "OptimizerState";
    }
}
