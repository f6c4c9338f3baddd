package dev.kvstore;

import java.lang.ref.Reference;
import java.util.List;

/**
 * What an optimizer keeps for one weight outside of any store, see {@link Optimizer#createState}. In a
 * store every key has one of its own, which nobody needs to care for; {@link Snapshot#optimizerState} gives what
 * a copy of it would be.
 */
public final class OptimizerState implements NativeResource {
    private final NativeHandle handle;

    OptimizerState(long state) {
        this.handle = NativeHandle.owned(this, state, NativeOptimizer::releaseState);
        ResourceScope.register(this);
    }

    /**
     * Returns how many updates there have been.
     *
     * @return their number
     */
    public long numUpdates() {
        try {
            return NativeOptimizer.numUpdates(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns copies of the state's arrays, in the order of the optimizer's formula; for a weight of half
     * precision its {@code float32} copy comes first.
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

    /** Releases the state. Harmless when repeated; any other use of it then throws {@code CLOSED}. */
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
