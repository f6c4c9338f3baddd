package dev.kvstore;

import static dev.kvstore.NativeMemory.allocate;
import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;

/**
 * Some rows of an array, with their numbers; the other rows are 0. It is what a batch of words gives for a large
 * embedding: pushing it, or pulling some rows, costs what these rows cost. It never changes.
 *
 * <pre>{@code
 * try (KVStore store = KVStore.create();
 *         NDArray embedding = NDArray.ones(Shape.of(1000, 2));
 *         RowSparse gradient = RowSparse.of(
 *                 new float[] {1, 1, 2, 2}, new long[] {3, 700}, embedding.shape())) {
 *     store.init("embedding", embedding)
 *             .setOptimizer(Optimizer.sgd().learningRate(0.5))
 *             .push("embedding", gradient);
 *     try (RowSparse rows = store.rowSparsePull("embedding", new long[] {700, 3, 4})) {
 *         System.out.println(Arrays.toString(rows.indices()));          // [3, 4, 700]
 *     }
 * }
 * }</pre>
 *
 * <p>It owns native memory until {@link #close}, as {@link NDArray} does.
 */
public final class RowSparse implements Value {
    private final NativeHandle handle;
    private final Shape shape;
    private final DType dtype;
    private final Context context;
    private final int numRows;

    private RowSparse(Description description) {
        this.dtype = description.dtype();
        this.context = description.context();
        this.shape = description.shape();
        this.handle = NativeHandle.owned(this, description.first(), NativeRowSparse::release);
        this.numRows = NativeRowSparse.numRows(description.first());
        ResourceScope.register(this);
    }

    /** Values from descriptions that stand one after the other. */
    static List<RowSparse> adoptAll(long[] descriptions) {
        List<RowSparse> values = new ArrayList<>();
        int position = 0;
        while (position < descriptions.length) {
            Description description = Description.at(descriptions, position);
            values.add(new RowSparse(description));
            position = description.end();
        }
        return values;
    }

    /**
     * Returns the value with these rows.
     *
     * @param rows the elements of the rows, one row after the other; they are copied
     * @param indices the numbers of the rows, ascending
     * @param shape the shape of the whole value
     * @return a float32 value on {@code cpu(0)}
     * @throws KVStoreException see {@link #of(NDArray, long[], Shape)}; with {@code LENGTH_MISMATCH} when there
     *     are not as many elements
     */
    public static RowSparse of(float[] rows, long[] indices, Shape shape) {
        requireNonNull(indices, "indices");
        try (NDArray array = NDArray.of(rows, rowsOf(shape, indices.length))) {
            return of(array, indices, shape);
        }
    }

    /**
     * Returns the value with these rows.
     *
     * @param rows the elements of the rows, one row after the other; they are copied and converted
     * @param indices the numbers of the rows, ascending
     * @param shape the shape of the whole value
     * @param dtype the data type
     * @param context the device
     * @return the value
     * @throws KVStoreException see {@link #of(float[], long[], Shape)}; with {@code DEVICE_UNAVAILABLE} when
     *     this machine has no such device
     */
    public static RowSparse of(
            double[] rows, long[] indices, Shape shape, DType dtype, Context context) {
        requireNonNull(indices, "indices");
        try (NDArray array = NDArray.of(rows, rowsOf(shape, indices.length), dtype, context)) {
            return of(array, indices, shape);
        }
    }

    /**
     * Returns the value with these rows.
     *
     * @param rows the rows, below each other; a later change of the array does not reach the value
     * @param indices the numbers of the rows, ascending
     * @param shape the shape of the whole value
     * @return the value, with the data type and on the device of the rows
     * @throws KVStoreException with {@code INVALID_ARGUMENT} for a shape without axes, and for numbers that do not
     *     ascend or are not rows of the shape; with {@code SPEC_MISMATCH} when there are not as many rows, or they
     *     have another shape
     */
    public static RowSparse of(NDArray rows, long[] indices, Shape shape) {
        return create(rows, indices, shape, false);
    }

    /**
     * Returns the value with these rows, whose numbers may come in any order. Rows of the same number are summed in
     * the order in which they stand: that is what a batch of words gives.
     *
     * @param rows the rows, below each other; a later change of the array does not reach the value
     * @param ids the numbers of the rows
     * @param shape the shape of the whole value
     * @return the value, with the data type and on the device of the rows
     * @throws KVStoreException see {@link #of(NDArray, long[], Shape)}
     */
    public static RowSparse fromIds(NDArray rows, long[] ids, Shape shape) {
        return create(rows, ids, shape, true);
    }

    private static RowSparse create(NDArray rows, long[] indices, Shape shape, boolean ids) {
        requireNonNull(rows, "rows");
        requireNonNull(indices, "indices");
        requireNonNull(shape, "shape");
        try {
            return adoptAll(allocate(0, () -> NativeRowSparse.create(
                            rows.handle(), indices, shape.dimensions(), ids)))
                    .get(0);
        } finally {
            Reference.reachabilityFence(rows);
        }
    }

    private static Shape rowsOf(Shape shape, int count) {
        long[] dimensions = requireNonNull(shape, "shape").dimensions().clone();
        if (dimensions.length == 0) {
            throw new KVStoreException(
                    KVStoreException.Code.INVALID_ARGUMENT, "shape " + shape + " has no rows");
        }
        dimensions[0] = count;
        return Shape.of(dimensions);
    }

    @Override
    public Shape shape() {
        return shape;
    }

    @Override
    public DType dtype() {
        return dtype;
    }

    @Override
    public Context context() {
        return context;
    }

    /**
     * Returns how many rows are there.
     *
     * @return their number
     */
    public int numRows() {
        return numRows;
    }

    /**
     * Returns the numbers of the rows that are there.
     *
     * @return a new array, ascending
     */
    public long[] indices() {
        try {
            return NativeRowSparse.indices(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the rows that are there.
     *
     * @return a new array with one row below the other
     */
    public NDArray rows() {
        try {
            return NDArray.adoptAll(allocate(0, () -> NativeRowSparse.rows(handle())))[0];
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the whole value.
     *
     * @return a new array of the shape
     * @throws KVStoreException with {@code OUT_OF_MEMORY}
     */
    public NDArray toDense() {
        try {
            long numBytes = dtype.inBytes(shape.product());
            return NDArray.adoptAll(allocate(context, numBytes, () -> NativeRowSparse.toDense(handle())))[0];
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Releases the rows. Harmless when repeated; any other use of them then throws {@code CLOSED}. */
    @Override
    public void close() {
        handle.close();
    }

    /**
     * Returns whether the value was closed.
     *
     * @return true after {@link #close}
     */
    @Override
    public boolean isClosed() {
        return handle.isClosed();
    }

    /**
     * Returns what this value is.
     *
     * @return for example {@code RowSparse[2 rows of float32 (1000,2) cpu(0)]}
     */
    @Override
    public String toString() {
        return "RowSparse[" + numRows + " rows of " + dtype + " " + shape + " " + context + "]";
    }

    long handle() {
        return handle.value(this);
    }

    long numBytes() {
        long rows = shape.dimensions()[0];
        return rows == 0 ? 0 : dtype.inBytes(shape.product() / rows * numRows);
    }
}
