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
 * A dense, row-major array of numbers on one device. Its shape, data type and device never change.
 * Its elements change only by methods that are documented to change them.
 *
 * <pre>{@code
 * try (NDArray a = NDArray.of(new float[] {1, 2, 3, 4}, Shape.of(2, 2));
 *         NDArray b = a.multiply(10)) {
 *     a.addInPlace(b);
 *     System.out.println(Arrays.toString(a.toFloats()));   // [11.0, 22.0, 33.0, 44.0]
 * }
 * }</pre>
 *
 * <p>An array owns native memory until {@link #close}. An array that is not closed is released
 * after it has been garbage-collected. After {@code close}, all methods throw {@code CLOSED} except
 * {@link #shape}, {@link #dtype}, {@link #context}, {@link #size}, {@link #dependencies},
 * {@link #isClosed}, {@link #equals}, {@link #toString} and {@link #close}. Running calls finish.
 *
 * <p>Arithmetic between two arrays throws {@code SPEC_MISMATCH} unless their shapes, data types and
 * devices are equal. Comparisons also broadcast dimensions of size 1. A scalar is first converted
 * to the data type of the array, so for an integer array it is truncated. Methods that return a new
 * array throw {@code OUT_OF_MEMORY} if there is not enough memory for it, see {@link NativeMemory}.
 *
 * <p>The methods are grouped into interfaces, which only this class implements:
 *
 * <ul>
 * <li>{@link ElementReader} and {@link ElementWriter}: reading and writing elements;
 * <li>{@link ElementArithmetic} and {@link LinearAlgebra}: element-wise, vector and matrix
 *     operations;
 * <li>{@link ArrayViews}: arrays that share the elements;
 * <li>{@link ArrayConversion}: copies, data types and devices;
 * <li>{@link ArrayDependencies}: the arrays that this array was computed from.
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
                : NativeHandle.borrowed(description.first());
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

    /** Returns the arrays of consecutive descriptions. */
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

    /** Returns an array that is valid during one native call. The native library releases it. */
    static NDArray borrowed(Description description) {
        return new NDArray(description, false);
    }

    // ---- creating arrays --------------------------------------------------------------------

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
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} if this machine has no such device
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
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} if this machine has no such device
     */
    public static NDArray ones(Shape shape, DType dtype, Context context) {
        return full(shape, 1, dtype, context);
    }

    /**
     * Returns a new array in which every element has the same value.
     *
     * @param shape the shape
     * @param value the value
     * @return a float32 array on {@code cpu(0)}
     */
    public static NDArray full(Shape shape, double value) {
        return full(shape, value, DType.FLOAT32, Context.cpu());
    }

    /**
     * Returns a new array in which every element has the same value.
     *
     * @param shape the shape
     * @param value the value, which is converted to the data type
     * @param dtype the data type
     * @param context the device
     * @return the array
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} if this machine has no such device
     */
    public static NDArray full(Shape shape, double value, DType dtype, Context context) {
        return create(shape, dtype, context, () -> NativeNDArray.full(
                shape.dimensions(), dtype.code(), context.kind(), context.deviceId(), value));
    }

    /**
     * Returns a new array in which every element has the same value. Unlike {@link #full}, this is
     * exact for more than 53 bits.
     *
     * @param shape the shape
     * @param value the value, which is converted to the data type
     * @param dtype the data type
     * @param context the device
     * @return the array
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} if this machine has no such device
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
     * @throws KVStoreException with {@code LENGTH_MISMATCH} if data and shape differ in size
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
     * @throws KVStoreException with {@code LENGTH_MISMATCH} if data and shape differ in size
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} if this machine has no such device
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
     * @param data the elements in row-major order as signed bytes; they are copied and converted
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
     * Returns a new array with the elements between the position and the limit of a buffer.
     * Position and limit do not change. Copying is fastest from a direct buffer in the byte order
     * of the machine.
     *
     * @param data a float, double, int or long buffer with numbers, which are converted; or a byte
     *     buffer with the bytes of the array, as {@link #asBuffer} returns them
     * @param shape the shape
     * @param dtype the data type
     * @param context the device
     * @return the array
     * @throws KVStoreException with {@code LENGTH_MISMATCH} if data and shape differ in size
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the buffer is of another type
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if a byte buffer has another byte
     *     order
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} if this machine has no such device
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
     * Returns a new array from bytes as {@link #toBytes} returns them.
     *
     * @param littleEndian the elements in row-major order, each in little-endian byte order
     * @param shape the shape
     * @param dtype the data type of the bytes and of the array
     * @param context the device
     * @return the array
     * @throws KVStoreException with {@code LENGTH_MISMATCH} if the shape has another size
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} if this machine has no such device
     */
    public static NDArray fromBytes(
            byte[] littleEndian, Shape shape, DType dtype, Context context) {
        requireNonNull(littleEndian, "littleEndian");
        return create(littleEndian.length, shape, dtype, context, () -> NativeNDArray.fromBytes(
                littleEndian, shape.dimensions(), dtype.code(), context.kind(),
                context.deviceId()));
    }

    /**
     * Returns a new array of evenly spaced numbers: {@code start}, {@code start + step} and so on,
     * up to but excluding {@code stop}.
     *
     * @param start the first number
     * @param stop the end of the range, which is not included
     * @param step the difference between two numbers
     * @param repeat the number of times that each number is repeated
     * @param dtype the data type
     * @param context the device
     * @return an array with one dimension
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if the range is empty
     */
    public static NDArray arange(
            double start, double stop, double step, int repeat, DType dtype, Context context) {
        requireNonNull(dtype, "dtype");
        requireNonNull(context, "context");
        return adopt(allocate(context, 0, () -> NativeNDArray.arange(
                start, stop, step, repeat, dtype.code(), context.kind(), context.deviceId())));
    }

    /**
     * Concatenates arrays along a dimension.
     *
     * @param arrays the arrays, whose dimensions are equal except along {@code axis}
     * @param axis the dimension along which the arrays are joined
     * @return a new array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} if there are no arrays or no such axis
     * @throws KVStoreException with {@code SPEC_MISMATCH} if types, devices or other sizes differ
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
            long[] joined = allocate(
                    context, numBytes, () -> NativeNDArray.concatenate(handles(parts), axis));
            return adopt(joined, parts);
        } finally {
            Reference.reachabilityFence(parts);
        }
    }

    static NDArray create(
            Shape shape, DType dtype, Context context, NativeMemory.Allocation allocation) {
        return create(Long.MAX_VALUE, shape, dtype, context, allocation);
    }

    /**
     * Requests no memory if {@code length} is too short for the shape, so that the call reports
     * that.
     */
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

    // ---- properties -------------------------------------------------------------------------

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

    /** Waits until every change of any array that was requested so far is complete. */
    public static void waitAll() {
        NativeLibrary.load();
        NativeRuntime.synchronize();
    }

    // ---- closing ----------------------------------------------------------------------------

    /**
     * Releases the elements. Views of this array stay usable. Closing a closed array does nothing.
     */
    @Override
    public void close() {
        handle.close();
    }

    /**
     * Returns whether {@link #close} was called.
     *
     * @return true after {@link #close}
     */
    @Override
    public boolean isClosed() {
        return handle.isClosed();
    }

    /**
     * Returns a number that is unique among the arrays of this process. It is not an address.
     *
     * @return the number
     */
    public long id() {
        return handle();
    }

    /**
     * Returns the data type, shape and device, but not the elements.
     *
     * @return for example {@code NDArray[float32 (2,3) cpu(0)]}
     */
    @Override
    public String toString() {
        return "NDArray[" + dtype + " " + shape + " " + context + "]";
    }

    /**
     * Returns whether {@code other} is an array with the same shape and, at this moment, the same
     * numbers. Data type and device may differ. An array that contains NaN and a closed array equal
     * only themselves.
     *
     * @param other the object to compare with
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
     * Returns a hash of the shape, because elements may change. For large tables use
     * {@code IdentityHashMap}.
     */
    @Override
    public int hashCode() {
        return shape.hashCode();
    }

    // ---- internals for the interfaces and native calls --------------------------------------

    Ancestry ancestry() {
        return Ancestry.of(this);
    }

    /**
     * Returns the handle for a native call. After the call, the caller needs a reachability fence.
     */
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

    /**
     * Returns the new array, of about this size, that a native call computes from this and
     * {@code others}.
     */
    NDArray derive(LongFunction<long[]> call, NDArray... others) {
        return derive(context, numBytes(), call, others);
    }

    /**
     * Like {@link #derive(LongFunction, NDArray...)}, for a new array of about {@code numBytes}.
     */
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

    /** Returns a view that a native call creates. */
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
