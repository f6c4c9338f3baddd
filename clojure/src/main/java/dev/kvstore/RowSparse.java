package dev.kvstore;

import static dev.kvstore.NativeMemory.allocate;
import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;

/**
 * A row-sparse value: some rows of a large array and their row indices. All other rows are 0. For
 * example, the gradient of an embedding for a batch of words is row-sparse. Pushing such a value,
 * or pulling some rows, costs only these rows. A row-sparse value is immutable.
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
 * <p>Like {@link NDArray}, it owns native memory until {@link #close}.
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

    /** Returns the values of concatenated descriptions. */
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
     * Returns a value with the given rows.
     *
     * @param rows the elements of the rows, one row after the other; they are copied
     * @param indices the row indices, in ascending order
     * @param shape the shape of the dense value
     * @return a float32 value on {@code cpu(0)}
     * @throws KVStoreException see {@link #of(NDArray, long[], Shape)}
     * @throws KVStoreException with {@code LENGTH_MISMATCH} if the number of elements does not
     *     match the row count
     */
    public static RowSparse of(float[] rows, long[] indices, Shape shape) {
        requireNonNull(indices, "indices");
        try (NDArray array = NDArray.of(rows, rowsOf(shape, indices.length))) {
            return of(array, indices, shape);
        }
    }

    /**
     * Returns a value with the given rows.
     *
     * @param rows the elements of the rows, one row after the other; they are copied and converted
     * @param indices the row indices, in ascending order
     * @param shape the shape of the dense value
     * @param dtype the data type
     * @param context the device
     * @return the value
     * @throws KVStoreException see {@link #of(float[], long[], Shape)}
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} if this machine has no such device
     */
    public static RowSparse of(
            double[] rows, long[] indices, Shape shape, DType dtype, Context context) {
        requireNonNull(indices, "indices");
        try (NDArray array = NDArray.of(rows, rowsOf(shape, indices.length), dtype, context)) {
            return of(array, indices, shape);
        }
    }

    /**
     * Returns a value with the given rows.
     *
     * @param rows an array of the rows; changing it later does not change the value
     * @param indices the row indices, in ascending order
     * @param shape the shape of the dense value
     * @return the value, with the data type and device of the rows
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the shape has no dimensions
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the row indices are not in
     *     ascending order or out of range
     * @throws KVStoreException with {@code SPEC_MISMATCH} if the number or the shape of the rows
     *     does not match
     */
    public static RowSparse of(NDArray rows, long[] indices, Shape shape) {
        return create(rows, indices, shape, false);
    }

    /**
     * Returns a value with the given rows, whose indices may have any order. Rows with the same
     * index are summed in the order in which they appear, as for the gradient of a batch of words.
     *
     * @param rows an array of the rows; changing it later does not change the value
     * @param ids the row indices
     * @param shape the shape of the dense value
     * @return the value, with the data type and device of the rows
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
     * Returns the number of stored rows.
     *
     * @return the number
     */
    public int numRows() {
        return numRows;
    }

    /**
     * Returns the indices of the stored rows.
     *
     * @return a new array, in ascending order
     */
    public long[] indices() {
        try {
            return NativeRowSparse.indices(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the stored rows.
     *
     * @return a new array with one row per index
     */
    public NDArray rows() {
        try {
            return NDArray.adoptAll(allocate(0, () -> NativeRowSparse.rows(handle())))[0];
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the dense form of this value.
     *
     * @return a new array of this shape
     * @throws KVStoreException with {@code OUT_OF_MEMORY} if there is not enough memory
     */
    public NDArray toDense() {
        try {
            long numBytes = dtype.inBytes(shape.product());
            return NDArray.adoptAll(
                    allocate(context, numBytes, () -> NativeRowSparse.toDense(handle())))[0];
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Releases the rows. Closing a closed value does nothing; other methods then throw
     * {@code CLOSED}.
     */
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
     * Returns the row count, data type, shape and device.
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
