package dev.kvstore;

import static dev.kvstore.NativeMemory.allocate;
import static dev.kvstore.NativeMemory.retry;
import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.nio.Buffer;
import java.util.ArrayList;
import java.util.List;
import java.util.function.LongConsumer;
import java.util.function.LongFunction;

/**
 * A dense, row-major array of numbers on one device. Shape, data type and device never change; the
 * elements do, through the methods that say so.
 *
 * <pre>{@code
 * try (NDArray a = NDArray.of(new float[] {1, 2, 3, 4}, Shape.of(2, 2));
 *         NDArray b = a.multiply(10)) {
 *     a.addInPlace(b);
 *     System.out.println(Arrays.toString(a.toFloats()));   // [11.0, 22.0, 33.0, 44.0]
 * }
 * }</pre>
 *
 * <p>An array owns native memory until {@link #close}; one that was forgotten is released after the
 * garbage collector has found it. Every method but {@link #shape}, {@link #dtype}, {@link #context},
 * {@link #size}, {@link #dependencies}, {@link #isClosed}, {@link #equals}, {@link #toString} and {@link
 * #close} throws {@code CLOSED} after that. A close in one thread during a call in another lets the call finish.
 *
 * <p>Arithmetic between two arrays needs equal shapes, data types and devices, otherwise it throws
 * {@code SPEC_MISMATCH}; comparisons stretch a dimension of 1. A scalar is converted into the data
 * type of the array first, so an integer array truncates it. Methods that return a new array throw
 * {@code OUT_OF_MEMORY} when there is no room for it, see {@link NativeMemory}.
 *
 * <p>The methods are in interfaces by purpose, which only this class implements:
 *
 * <ul>
 *   <li>{@link ElementReader} and {@link ElementWriter}: elements out and in;
 *   <li>{@link ElementArithmetic} and {@link LinearAlgebra}: numbers, vectors and matrices;
 *   <li>{@link ArrayViews}: arrays that share the elements;
 *   <li>{@link ArrayConversion}: copies, data types and devices;
 *   <li>{@link ArrayDependencies}: the arrays that this one was computed from.
 * </ul>
 */
public final class NDArray
        implements Value,
                ElementReader,
                ElementWriter,
                ElementArithmetic,
                LinearAlgebra,
                ArrayViews,
                ArrayConversion,
                ArrayDependencies {
    private final NativeHandle handle;
    private final Shape shape;
    private final DType dtype;
    private final Context context;
    /** Null until {@link Ancestry#of} sets it. */
    volatile Ancestry ancestry;

    private NDArray(Description description, boolean owned) {
        this.dtype = description.dtype();
        this.context = description.context();
        this.shape = description.shape();
        this.handle = owned
                ? NativeHandle.owned(this, description.first(), NativeNDArray::release)
                : NativeHandle.lent(description.first());
        if (owned) {
            ResourceScope.register(this);
        }
    }

    static NDArray adopt(long[] description) {
        return new NDArray(Description.at(description, 0), true);
    }

    private static NDArray adopt(long[] description, NDArray... operands) {
        NDArray array = adopt(description);
        array.ancestry().comesFrom(operands);
        return array;
    }

    /** Arrays from descriptions that stand one after the other. */
    static NDArray[] adoptAll(long[] descriptions) {
        List<NDArray> arrays = new ArrayList<>();
        int position = 0;
        while (position < descriptions.length) {
            Description description = Description.at(descriptions, position);
            arrays.add(new NDArray(description, true));
            position = description.end();
        }
        return arrays.toArray(NDArray[]::new);
    }

    /** An array for the time of one native call, which releases it. */
    static NDArray lent(Description description) {
        return new NDArray(description, false);
    }

    // ---- making arrays ----------------------------------------------------------------------

    /**
     * Returns a new array of zeros.
     *
     * @param shape the shape
     * @return float32 zeros on {@code cpu(0)}
     */
    public static NDArray zeros(Shape shape) {
        return full(shape, 0);
    }

    /**
     * Returns a new array of zeros.
     *
     * @param shape the shape
     * @param dtype the data type
     * @param context the device
     * @return the zeros
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} when this machine has no such device
     */
    public static NDArray zeros(Shape shape, DType dtype, Context context) {
        return full(shape, 0, dtype, context);
    }

    /**
     * Returns a new array of ones.
     *
     * @param shape the shape
     * @return float32 ones on {@code cpu(0)}
     */
    public static NDArray ones(Shape shape) {
        return full(shape, 1);
    }

    /**
     * Returns a new array of ones.
     *
     * @param shape the shape
     * @param dtype the data type
     * @param context the device
     * @return the ones
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} when this machine has no such device
     */
    public static NDArray ones(Shape shape, DType dtype, Context context) {
        return full(shape, 1, dtype, context);
    }

    /**
     * Returns a new array with one value in every place.
     *
     * @param shape the shape
     * @param value the value
     * @return a float32 array on {@code cpu(0)}
     */
    public static NDArray full(Shape shape, double value) {
        return full(shape, value, DType.FLOAT32, Context.cpu());
    }

    /**
     * Returns a new array with one value in every place.
     *
     * @param shape the shape
     * @param value the value, converted into the data type
     * @param dtype the data type
     * @param context the device
     * @return the array
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} when this machine has no such device
     */
    public static NDArray full(Shape shape, double value, DType dtype, Context context) {
        return create(shape, dtype, context, () -> NativeNDArray.full(
                shape.dimensions(), dtype.code(), context.kind(), context.deviceId(), value));
    }

    /**
     * Returns a new array with one integer in every place, exact beyond the 53 bits of a double.
     *
     * @param shape the shape
     * @param value the value, converted into the data type
     * @param dtype the data type
     * @param context the device
     * @return the array
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} when this machine has no such device
     */
    public static NDArray fullLong(Shape shape, long value, DType dtype, Context context) {
        return create(shape, dtype, context, () -> NativeNDArray.fullLong(
                shape.dimensions(), dtype.code(), context.kind(), context.deviceId(), value));
    }

    /**
     * Returns a new array with the given elements.
     *
     * @param data the elements in row-major order; they are copied
     * @param shape the shape
     * @return a float32 array on {@code cpu(0)}
     * @throws KVStoreException with {@code LENGTH_MISMATCH} when the shape has another size
     */
    public static NDArray of(float[] data, Shape shape) {
        return of(data, shape, DType.FLOAT32, Context.cpu());
    }

    /**
     * Returns a new array with the given elements.
     *
     * @param data the elements in row-major order; they are copied and converted
     * @param shape the shape
     * @param dtype the data type
     * @param context the device
     * @return the array
     * @throws KVStoreException with {@code LENGTH_MISMATCH} when the shape has another size, with
     *     {@code DEVICE_UNAVAILABLE} when this machine has no such device
     */
    public static NDArray of(float[] data, Shape shape, DType dtype, Context context) {
        ElementCount.check(requireNonNull(data, "data").length, shape, dtype);
        return create(shape, dtype, context, () -> NativeNDArray.fromFloats(
                data, shape.dimensions(), dtype.code(), context.kind(), context.deviceId()));
    }

    /**
     * Returns a new array with the given elements, see {@link #of(float[], Shape, DType, Context)}.
     *
     * @param data the elements in row-major order; they are copied and converted
     * @param shape the shape
     * @param dtype the data type
     * @param context the device
     * @return the array
     */
    public static NDArray of(double[] data, Shape shape, DType dtype, Context context) {
        ElementCount.check(requireNonNull(data, "data").length, shape, dtype);
        return create(shape, dtype, context, () -> NativeNDArray.fromDoubles(
                data, shape.dimensions(), dtype.code(), context.kind(), context.deviceId()));
    }

    /**
     * Returns a new array with the given elements, see {@link #of(float[], Shape, DType, Context)}.
     *
     * @param data the elements in row-major order; they are copied and converted
     * @param shape the shape
     * @param dtype the data type
     * @param context the device
     * @return the array
     */
    public static NDArray of(int[] data, Shape shape, DType dtype, Context context) {
        ElementCount.check(requireNonNull(data, "data").length, shape, dtype);
        return create(shape, dtype, context, () -> NativeNDArray.fromInts(
                data, shape.dimensions(), dtype.code(), context.kind(), context.deviceId()));
    }

    /**
     * Returns a new array with the given elements, see {@link #of(float[], Shape, DType, Context)}.
     *
     * @param data the elements in row-major order; they are copied and converted
     * @param shape the shape
     * @param dtype the data type
     * @param context the device
     * @return the array
     */
    public static NDArray of(long[] data, Shape shape, DType dtype, Context context) {
        ElementCount.check(requireNonNull(data, "data").length, shape, dtype);
        return create(shape, dtype, context, () -> NativeNDArray.fromLongs(
                data, shape.dimensions(), dtype.code(), context.kind(), context.deviceId()));
    }

    /**
     * Returns a new array with the given elements, see {@link #of(float[], Shape, DType, Context)}.
     *
     * @param data the elements in row-major order, numbers from -128 to 127; they are copied and converted
     * @param shape the shape
     * @param dtype the data type
     * @param context the device
     * @return the array
     */
    public static NDArray of(byte[] data, Shape shape, DType dtype, Context context) {
        ElementCount.check(requireNonNull(data, "data").length, shape, dtype);
        NDArray bytes = fromBytes(data, shape, DType.INT8, context);
        if (dtype == DType.INT8) {
            return bytes;
        }
        try (bytes) {
            NDArray converted = bytes.asType(dtype);
            converted.ancestry().forget();
            return converted;
        }
    }

    /**
     * Returns a new array with the elements between the position and the limit of a buffer, which do not
     * move. The copy is quickest from a direct buffer in the byte order of the machine.
     *
     * @param data a float, double, int or long buffer holds numbers, which are converted; a byte buffer
     *     holds the bytes of the array, as {@link #asBuffer} gives them, in the byte order of the machine
     * @param shape the shape
     * @param dtype the data type
     * @param context the device
     * @return the array
     * @throws KVStoreException with {@code LENGTH_MISMATCH} when the shape has another size, with {@code
     *     INVALID_ARGUMENT} for a byte buffer in another byte order and for a buffer of another kind, with
     *     {@code DEVICE_UNAVAILABLE} when this machine has no such device
     */
    public static NDArray of(Buffer data, Shape shape, DType dtype, Context context) {
        requireNonNull(dtype, "dtype");
        HostBuffer source = HostBuffer.source(data, dtype.numBytes());
        source.checkCount(shape, dtype);
        try {
            return create(source.remaining(), shape, dtype, context, () -> NativeBuffer.create(
                    source.memory(), source.kind(), source.position(), source.remaining(),
                    shape.dimensions(), dtype.code(), context.kind(), context.deviceId()));
        } finally {
            Reference.reachabilityFence(source);
        }
    }

    /**
     * Returns a new array from the bytes that {@link #toBytes} gives.
     *
     * @param littleEndian the elements in row-major order, each in little-endian byte order
     * @param shape the shape
     * @param dtype the data type of the bytes and of the array
     * @param context the device
     * @return the array
     * @throws KVStoreException with {@code LENGTH_MISMATCH} when the shape has another size, with
     *     {@code DEVICE_UNAVAILABLE} when this machine has no such device
     */
    public static NDArray fromBytes(
            byte[] littleEndian, Shape shape, DType dtype, Context context) {
        requireNonNull(littleEndian, "littleEndian");
        return create(littleEndian.length, shape, dtype, context, () -> NativeNDArray.fromBytes(
                littleEndian, shape.dimensions(), dtype.code(), context.kind(), context.deviceId()));
    }

    /**
     * Returns a new array of evenly spaced numbers: {@code start}, {@code start + step}, .. before
     * {@code stop}.
     *
     * @param start the first number
     * @param stop the end, not included
     * @param step the distance
     * @param repeat how often each number stands in the array
     * @param dtype the data type
     * @param context the device
     * @return an array with one dimension
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when that are no numbers at all
     */
    public static NDArray arange(
            double start, double stop, double step, int repeat, DType dtype, Context context) {
        requireNonNull(dtype, "dtype");
        requireNonNull(context, "context");
        return adopt(allocate(context, 0, () -> NativeNDArray.arange(
                start, stop, step, repeat, dtype.code(), context.kind(), context.deviceId())));
    }

    /**
     * Returns a new array that holds the given ones one after the other.
     *
     * @param arrays arrays that differ in no dimension but {@code axis}
     * @param axis the dimension along which they are joined
     * @return the joined array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when there are no arrays or no such axis,
     *     with {@code SPEC_MISMATCH} when the arrays do not fit
     */
    public static NDArray concatenate(List<NDArray> arrays, int axis) {
        requireNonNull(arrays, "arrays");
        NDArray[] parts = arrays.toArray(NDArray[]::new);
        long numBytes = 0;
        for (NDArray part : parts) {
            numBytes += requireNonNull(part, "arrays").numBytes();
        }
        Context context = parts.length == 0 ? Context.cpu() : parts[0].context;
        try {
            return adopt(
                    allocate(context, numBytes, () -> NativeNDArray.concatenate(handles(parts), axis)), parts);
        } finally {
            Reference.reachabilityFence(parts);
        }
    }

    static NDArray create(
            Shape shape, DType dtype, Context context, NativeMemory.Allocation allocation) {
        return create(Long.MAX_VALUE, shape, dtype, context, allocation);
    }

    /** A shape for which there is not enough data is refused by the call, not for want of memory. */
    private static NDArray create(
            long length,
            Shape shape,
            DType dtype,
            Context context,
            NativeMemory.Allocation allocation) {
        requireNonNull(shape, "shape");
        requireNonNull(dtype, "dtype");
        requireNonNull(context, "context");
        long numBytes =
                shape.product() > length ? 0 : dtype.inBytes(shape.product());
        return adopt(allocate(context, numBytes, allocation));
    }

    // ---- what it is -------------------------------------------------------------------------

    /**
     * Returns the shape.
     *
     * @return the shape
     */
    public Shape shape() {
        return shape;
    }

    /**
     * Returns the data type.
     *
     * @return the data type
     */
    public DType dtype() {
        return dtype;
    }

    /**
     * Returns the device that holds the elements.
     *
     * @return the context
     */
    public Context context() {
        return context;
    }

    /**
     * Returns the number of elements.
     *
     * @return the product of the dimensions
     */
    public long size() {
        return shape.product();
    }

    /** Blocks until every change of any array that was asked for so far is made. */
    public static void waitAll() {
        NativeLibrary.load();
        NativeRuntime.synchronize();
    }

    // ---- end of life ------------------------------------------------------------------------

    /**
     * Releases the elements. Closing again does nothing; views of this array stay usable.
     */
    @Override
    public void close() {
        handle.close();
    }

    /**
     * Returns whether {@link #close} was called.
     *
     * @return true once it was
     */
    @Override
    public boolean isClosed() {
        return handle.isClosed();
    }

    /**
     * Returns a number that no other array of this process has. It is no address.
     *
     * @return the number
     */
    public long id() {
        return handle();
    }

    /**
     * Returns what this array is, without its elements.
     *
     * @return for example {@code NDArray[float32 (2,3) cpu(0)]}
     */
    @Override
    public String toString() {
        return "NDArray[" + dtype + " " + shape + " " + context + "]";
    }

    /**
     * Returns whether the other one is an array of the same shape that holds the same numbers at the moment,
     * of whatever data type, on whatever device. NaN is no number: an array with one equals only itself. A closed
     * array equals only itself, too.
     *
     * @param other the other one
     */
    @Override
    public boolean equals(Object other) {
        return this == other || other instanceof NDArray that && hasEqualElements(that);
    }

    private boolean hasEqualElements(NDArray other) {
        try {
            return NativeNDArray.arrayEqual(handle(), other.handle());
        } catch (KVStoreException exception) {
            if (isClosed() || other.isClosed()) {
                return false;
            }
            throw exception;
        } finally {
            Reference.reachabilityFence(this);
            Reference.reachabilityFence(other);
        }
    }

    /**
     * Returns a hash of the shape: the elements may change while the array stands in a hash table. For tables of
     * many arrays take an {@code IdentityHashMap}.
     */
    @Override
    public int hashCode() {
        return shape.hashCode();
    }

    // ---- for the interfaces and native calls ------------------------------------------------

    Ancestry ancestry() {
        return Ancestry.of(this);
    }

    /** The handle for a native call, after which the caller needs a reachability fence. */
    long handle() {
        return handle.value(this);
    }

    static long[] handles(NDArray[] arrays) {
        long[] handles = new long[arrays.length];
        for (int i = 0; i < arrays.length; i++) {
            handles[i] = requireNonNull(arrays[i], "arrays").handle();
        }
        return handles;
    }

    long numBytes() {
        return dtype.inBytes(size());
    }

    /** Returns the result of a native call that reads this array. */
    <R> R query(LongFunction<R> call) {
        try {
            return call.apply(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Returns the new array, of about this size, that a native call computes from this one and {@code others}. */
    NDArray derive(LongFunction<long[]> call, NDArray... others) {
        return derive(context, numBytes(), call, others);
    }

    /** As {@link #derive(LongFunction, NDArray...)}, for a new array of about {@code numBytes}. */
    NDArray derive(long numBytes, LongFunction<long[]> call, NDArray... others) {
        return derive(context, numBytes, call, others);
    }

    NDArray derive(Context context, long numBytes, LongFunction<long[]> call, NDArray... others) {
        NDArray[] operands = new NDArray[1 + others.length];
        operands[0] = this;
        System.arraycopy(others, 0, operands, 1, others.length);
        try {
            return adopt(allocate(context, numBytes, () -> call.apply(handle())), operands);
        } finally {
            Reference.reachabilityFence(operands);
        }
    }

    /** Returns the array over the same elements that a native call makes. */
    NDArray view(LongFunction<long[]> call) {
        return adopt(query(call));
    }

    /** Runs a native call that changes the elements. */
    NDArray change(LongConsumer call) {
        try {
            NativeMemory.beforeChange();
            retry(() -> call.accept(handle()));
            return this;
        } finally {
            Reference.reachabilityFence(this);
        }
    }
}
