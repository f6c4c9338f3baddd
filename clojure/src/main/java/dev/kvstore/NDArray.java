package dev.kvstore;

import static dev.kvstore.NativeMemory.allocate;
import static dev.kvstore.NativeMemory.retry;
import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

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
 */
public final class NDArray implements Value {
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
        long size = ResultSize.ofRange(start, stop, step, repeat);
        return adopt(allocate(context, ResultSize.inBytes(size, dtype), () -> NativeNDArray.arange(
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
        long numBytes = shape.product() > length ? 0 : numBytes(shape, dtype);
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

    // ---- arithmetic -------------------------------------------------------------------------

    /**
     * Returns {@code this op other}, element by element.
     *
     * @param op the operation
     * @param other the right operand
     * @return a new array
     * @throws KVStoreException with {@code SPEC_MISMATCH} when the operands do not fit, with {@code
     *     INVALID_ARGUMENT} when an integer is divided by zero
     */
    public NDArray apply(BinaryOp op, NDArray other) {
        requireNonNull(op, "op");
        requireNonNull(other, "other");
        try {
            return adopt(allocate(context, ResultSize.inBytes(ResultSize.ofPairs(shape, other.shape), dtype),
                    () -> NativeNDArray.binary(handle(), op.ordinal(), other.handle())), this, other);
        } finally {
            Reference.reachabilityFence(this);
            Reference.reachabilityFence(other);
        }
    }

    /**
     * Returns {@code this op scalar}, element by element.
     *
     * @param op the operation
     * @param scalar the right operand
     * @return a new array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when an integer is divided by zero
     */
    public NDArray apply(BinaryOp op, double scalar) {
        return applyScalar(op, scalar, false);
    }

    /**
     * Returns {@code this op scalar}, element by element, exact beyond the 53 bits of a double.
     *
     * @param op the operation
     * @param scalar the right operand
     * @return a new array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when an integer is divided by zero
     */
    public NDArray apply(BinaryOp op, long scalar) {
        return applyScalar(op, scalar, false);
    }

    /**
     * Returns {@code scalar op this}, element by element.
     *
     * @param op the operation
     * @param scalar the left operand
     * @return a new array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when an integer is divided by zero
     */
    public NDArray applyReversed(BinaryOp op, double scalar) {
        return applyScalar(op, scalar, true);
    }

    /**
     * Returns {@code scalar op this}, element by element, exact beyond the 53 bits of a double.
     *
     * @param op the operation
     * @param scalar the left operand
     * @return a new array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when an integer is divided by zero
     */
    public NDArray applyReversed(BinaryOp op, long scalar) {
        return applyScalar(op, scalar, true);
    }

    private NDArray applyScalar(BinaryOp op, double scalar, boolean reversed) {
        requireNonNull(op, "op");
        return derive(context, () -> NativeNDArray.binaryDouble(handle(), op.ordinal(), scalar, reversed));
    }

    private NDArray applyScalar(BinaryOp op, long scalar, boolean reversed) {
        requireNonNull(op, "op");
        return derive(context, () -> NativeNDArray.binaryLong(handle(), op.ordinal(), scalar, reversed));
    }

    /**
     * Replaces the elements by {@code this op other}.
     *
     * @param op the operation
     * @param other the right operand
     * @return this array
     * @throws KVStoreException with {@code SPEC_MISMATCH} when the operands do not fit, with {@code
     *     INVALID_ARGUMENT} when an integer is divided by zero
     */
    public NDArray applyInPlace(BinaryOp op, NDArray other) {
        requireNonNull(op, "op");
        requireNonNull(other, "other");
        try {
            return change(() -> NativeNDArray.binaryAssign(handle(), op.ordinal(), other.handle()));
        } finally {
            Reference.reachabilityFence(other);
        }
    }

    /**
     * Replaces the elements by {@code this op scalar}.
     *
     * @param op the operation
     * @param scalar the right operand
     * @return this array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when an integer is divided by zero
     */
    public NDArray applyInPlace(BinaryOp op, double scalar) {
        requireNonNull(op, "op");
        return change(() -> NativeNDArray.binaryAssignDouble(handle(), op.ordinal(), scalar));
    }

    /**
     * Replaces the elements by {@code this op scalar}, exact beyond the 53 bits of a double.
     *
     * @param op the operation
     * @param scalar the right operand
     * @return this array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when an integer is divided by zero
     */
    public NDArray applyInPlace(BinaryOp op, long scalar) {
        requireNonNull(op, "op");
        return change(() -> NativeNDArray.binaryAssignLong(handle(), op.ordinal(), scalar));
    }

    /**
     * Returns the sum.
     *
     * @param other the right operand
     * @return a new array
     */
    public NDArray add(NDArray other) {
        return apply(BinaryOp.ADD, other);
    }

    /**
     * Returns the sum.
     *
     * @param scalar the right operand
     * @return a new array
     */
    public NDArray add(double scalar) {
        return apply(BinaryOp.ADD, scalar);
    }

    /**
     * Adds to this array.
     *
     * @param other the right operand
     * @return this array
     */
    public NDArray addInPlace(NDArray other) {
        return applyInPlace(BinaryOp.ADD, other);
    }

    /**
     * Adds to this array.
     *
     * @param scalar the right operand
     * @return this array
     */
    public NDArray addInPlace(double scalar) {
        return applyInPlace(BinaryOp.ADD, scalar);
    }

    /**
     * Returns the difference.
     *
     * @param other the right operand
     * @return a new array
     */
    public NDArray subtract(NDArray other) {
        return apply(BinaryOp.SUB, other);
    }

    /**
     * Returns the difference.
     *
     * @param scalar the right operand
     * @return a new array
     */
    public NDArray subtract(double scalar) {
        return apply(BinaryOp.SUB, scalar);
    }

    /**
     * Subtracts from this array.
     *
     * @param other the right operand
     * @return this array
     */
    public NDArray subtractInPlace(NDArray other) {
        return applyInPlace(BinaryOp.SUB, other);
    }

    /**
     * Subtracts from this array.
     *
     * @param scalar the right operand
     * @return this array
     */
    public NDArray subtractInPlace(double scalar) {
        return applyInPlace(BinaryOp.SUB, scalar);
    }

    /**
     * Returns the product, element by element.
     *
     * @param other the right operand
     * @return a new array
     */
    public NDArray multiply(NDArray other) {
        return apply(BinaryOp.MUL, other);
    }

    /**
     * Returns the product.
     *
     * @param scalar the right operand
     * @return a new array
     */
    public NDArray multiply(double scalar) {
        return apply(BinaryOp.MUL, scalar);
    }

    /**
     * Multiplies this array, element by element.
     *
     * @param other the right operand
     * @return this array
     */
    public NDArray multiplyInPlace(NDArray other) {
        return applyInPlace(BinaryOp.MUL, other);
    }

    /**
     * Multiplies this array.
     *
     * @param scalar the right operand
     * @return this array
     */
    public NDArray multiplyInPlace(double scalar) {
        return applyInPlace(BinaryOp.MUL, scalar);
    }

    /**
     * Returns the quotient, element by element.
     *
     * @param other the right operand
     * @return a new array
     */
    public NDArray divide(NDArray other) {
        return apply(BinaryOp.DIV, other);
    }

    /**
     * Returns the quotient.
     *
     * @param scalar the right operand
     * @return a new array
     */
    public NDArray divide(double scalar) {
        return apply(BinaryOp.DIV, scalar);
    }

    /**
     * Divides this array, element by element.
     *
     * @param other the right operand
     * @return this array
     */
    public NDArray divideInPlace(NDArray other) {
        return applyInPlace(BinaryOp.DIV, other);
    }

    /**
     * Divides this array.
     *
     * @param scalar the right operand
     * @return this array
     */
    public NDArray divideInPlace(double scalar) {
        return applyInPlace(BinaryOp.DIV, scalar);
    }

    /**
     * Returns a function of each element.
     *
     * @param op the function
     * @return a new array
     */
    public NDArray apply(UnaryOp op) {
        requireNonNull(op, "op");
        return derive(context, () -> NativeNDArray.unary(handle(), op.ordinal()));
    }

    /**
     * Returns one number made of all elements.
     *
     * @param reduction how
     * @return a new array of shape {@code (1)}
     */
    public NDArray reduce(Reduction reduction) {
        requireNonNull(reduction, "reduction");
        return derive(context, () -> NativeNDArray.reduce(handle(), reduction.ordinal()));
    }

    /**
     * Returns the elements, cut to a range.
     *
     * @param low the least value of the result
     * @param high the greatest value of the result
     * @return a new array
     */
    public NDArray clip(double low, double high) {
        return derive(context, () -> NativeNDArray.clip(handle(), low, high));
    }

    /**
     * Returns the inner product of two vectors or the product of two matrices.
     *
     * @param other the right operand
     * @return a new array, of shape {@code (1)} for two vectors
     * @throws KVStoreException with {@code SPEC_MISMATCH} when the operands do not fit
     */
    public NDArray dot(NDArray other) {
        requireNonNull(other, "other");
        try {
            return adopt(
                    allocate(context, ResultSize.inBytes(ResultSize.ofDot(shape, other.shape), dtype),
                            () -> NativeNDArray.dot(handle(), other.handle())), this, other);
        } finally {
            Reference.reachabilityFence(this);
            Reference.reachabilityFence(other);
        }
    }

    /**
     * Returns the matrix with rows and columns exchanged.
     *
     * @return a new array
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this array has not two dimensions
     */
    public NDArray transpose() {
        return derive(context, () -> NativeNDArray.transpose(handle()));
    }

    /**
     * Returns the column of the greatest element of each row.
     *
     * @return a new array with one dimension
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this array has not two dimensions
     */
    public NDArray argmaxChannel() {
        return derive(context, () -> NativeNDArray.argmaxChannel(handle()));
    }

    /**
     * Returns one element of each row of this matrix.
     *
     * @param columns the column of the element, for each row
     * @return a new array with one dimension
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this array has not two dimensions or there
     *     is no such column, with {@code LENGTH_MISMATCH} when there are not as many columns as rows
     */
    public NDArray chooseElements(NDArray columns) {
        requireNonNull(columns, "columns");
        NDArray chosen = new Rows(this, columns).chosen();
        chosen.ancestry().comesFrom(this, columns);
        return chosen;
    }

    /**
     * Sets one element of each row of this matrix to one and all others to zero.
     *
     * @param columns the column of the one, for each row
     * @return this array
     * @throws KVStoreException as {@link #chooseElements} does
     */
    public NDArray setOneHot(NDArray columns) {
        requireNonNull(columns, "columns");
        new Rows(this, columns).mark();
        return this;
    }

    // ---- views ------------------------------------------------------------------------------

    /**
     * Returns rows of this array. The result shares its elements with this array.
     *
     * @param start the first row
     * @param stop the row after the last one
     * @return a view of the same rank
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when there are no such rows
     */
    public NDArray slice(long start, long stop) {
        return view(() -> NativeNDArray.slice(handle(), start, stop));
    }

    /**
     * Returns one row of this array without its leading dimension. The result shares its elements
     * with this array.
     *
     * @param index the row
     * @return a view, of shape {@code (1)} when this array has one dimension
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when there is no such row
     */
    public NDArray at(long index) {
        return view(() -> NativeNDArray.at(handle(), index));
    }

    /**
     * Returns this array in another shape. The result shares its elements with this array.
     *
     * @param dimensions the new dimensions. -1 stands for the one that follows from the others, 0 for
     *     the dimension in the same place, -2 for all remaining ones, -3 for the product of the next
     *     two, and -4 splits the next one into the two numbers that follow
     * @return a view of the same size
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when the sizes differ
     */
    public NDArray reshape(long... dimensions) {
        requireNonNull(dimensions, "dimensions");
        return view(() -> NativeNDArray.reshape(handle(), dimensions));
    }

    // ---- copies -----------------------------------------------------------------------------

    /**
     * Returns a copy.
     *
     * @return a new array that shares nothing with this one
     */
    public NDArray copy() {
        return derive(context, () -> NativeNDArray.copy(handle()));
    }

    /**
     * Copies the elements into another array, converting them into its data type and moving them to
     * its device.
     *
     * @param destination the array to write
     * @return {@code destination}
     * @throws KVStoreException with {@code SPEC_MISMATCH} when the shapes differ
     */
    public NDArray copyTo(NDArray destination) {
        requireNonNull(destination, "destination");
        try {
            retry(() -> NativeNDArray.copyTo(handle(), destination.handle()));
            return destination;
        } finally {
            Reference.reachabilityFence(this);
            Reference.reachabilityFence(destination);
        }
    }

    /**
     * Returns the elements in another data type. A float becomes an integer by truncation, with the
     * low bits kept when it does not fit.
     *
     * @param dtype the data type
     * @return a new array
     */
    public NDArray asType(DType dtype) {
        requireNonNull(dtype, "dtype");
        try {
            return adopt(allocate(context, numBytes(shape, dtype),
                    () -> NativeNDArray.asType(handle(), dtype.code())), this);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the elements on a device.
     *
     * @param context the device
     * @return this very array when it is there already, otherwise a new one
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} when this machine has no such device
     */
    public NDArray asContext(Context context) {
        requireNonNull(context, "context");
        if (context.equals(this.context)) {
            handle();
            return this;
        }
        return derive(context, () -> NativeNDArray.toDevice(handle(), context.kind(), context.deviceId()));
    }

    // ---- writing and reading ----------------------------------------------------------------

    /**
     * Sets every element.
     *
     * @param value the value, converted into the data type
     * @return this array
     */
    public NDArray set(double value) {
        return change(() -> NativeNDArray.fill(handle(), value));
    }

    /**
     * Sets every element, exact beyond the 53 bits of a double.
     *
     * @param value the value, converted into the data type
     * @return this array
     */
    public NDArray set(long value) {
        return change(() -> NativeNDArray.fillLong(handle(), value));
    }

    /**
     * Copies the elements of another array into this one, see {@link #copyTo}.
     *
     * @param source the array to read
     * @return this array
     * @throws KVStoreException with {@code SPEC_MISMATCH} when the shapes differ
     */
    public NDArray set(NDArray source) {
        requireNonNull(source, "source");
        return source.copyTo(this);
    }

    /**
     * Sets the elements.
     *
     * @param data as many numbers as this array has elements, in row-major order; they are converted
     * @return this array
     * @throws KVStoreException with {@code LENGTH_MISMATCH} when these are more or fewer
     */
    public NDArray set(float[] data) {
        ElementCount.check(requireNonNull(data, "data").length, this);
        return change(() -> NativeNDArray.assignFloats(handle(), data));
    }

    /**
     * Sets the elements, see {@link #set(float[])}.
     *
     * @param data as many numbers as this array has elements, in row-major order; they are converted
     * @return this array
     */
    public NDArray set(double[] data) {
        ElementCount.check(requireNonNull(data, "data").length, this);
        return change(() -> NativeNDArray.assignDoubles(handle(), data));
    }

    /**
     * Sets the elements, see {@link #set(float[])}.
     *
     * @param data as many numbers as this array has elements, in row-major order; they are converted
     * @return this array
     */
    public NDArray set(int[] data) {
        ElementCount.check(requireNonNull(data, "data").length, this);
        return change(() -> NativeNDArray.assignInts(handle(), data));
    }

    /**
     * Sets the elements, see {@link #set(float[])}.
     *
     * @param data as many numbers as this array has elements, in row-major order; they are converted
     * @return this array
     */
    public NDArray set(long[] data) {
        ElementCount.check(requireNonNull(data, "data").length, this);
        return change(() -> NativeNDArray.assignLongs(handle(), data));
    }

    /**
     * Sets the elements, see {@link #set(float[])}.
     *
     * @param data as many numbers from -128 to 127 as this array has elements, in row-major order
     * @return this array
     */
    public NDArray set(byte[] data) {
        ElementCount.check(requireNonNull(data, "data").length, this);
        return set(ByteBuffer.wrap(data), DType.INT8);
    }

    /**
     * Sets the elements to those between the position and the limit of a buffer, which do not move; see
     * {@link #of(Buffer, Shape, DType, Context)}.
     *
     * @param data a float, double, int or long buffer with as many numbers as this array has elements, or a
     *     byte buffer with their bytes
     * @return this array
     * @throws KVStoreException with {@code LENGTH_MISMATCH} when these are more or fewer, with {@code
     *     INVALID_ARGUMENT} for a byte buffer in another byte order and for a buffer of another kind
     */
    public NDArray set(Buffer data) {
        return set(data, dtype);
    }

    private NDArray set(Buffer data, DType bytesOf) {
        HostBuffer source = HostBuffer.source(data, bytesOf.numBytes());
        handle();
        source.checkCount(shape, dtype);
        try {
            return change(() -> NativeBuffer.assign(
                    handle(), source.memory(), source.kind(), source.position(), source.remaining(),
                    bytesOf.code()));
        } finally {
            Reference.reachabilityFence(source);
        }
    }

    /**
     * Returns the elements without a copy, as they are now: a read-only direct buffer of row-major elements
     * in the byte order of the machine. Later changes of this array do not reach it, and it stays valid as
     * long as something can reach it or a buffer made from it, {@link #close} or not. Until then its memory
     * is not released. The elements of an array on a GPU are copied to the host first.
     *
     * <pre>{@code
     * FloatBuffer floats = array.asBuffer().asFloatBuffer();
     * }</pre>
     *
     * @return a buffer of {@code size() * dtype().numBytes()} bytes
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when these are 2 GiB or more, which no buffer
     *     can have: {@link #read(long, float[])} reads piece by piece
     */
    public ByteBuffer asBuffer() {
        if (numBytes() > Integer.MAX_VALUE) {
            throw KVStoreException.invalidArgument(
                    this + ": " + numBytes() + " bytes do not fit into a buffer, read it piece by piece");
        }
        try {
            return NativeHandle.buffer(ElementCopy.pin(this, handle()), numBytes());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Copies elements into a Java array, converted whatever the data type. So an array that is larger
     * than any Java array can be read piece by piece.
     *
     * @param first the first element that is read, in row-major order
     * @param destination as many elements are read as it has
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this array does not have as many
     */
    public void read(long first, float[] destination) {
        requireNonNull(destination, "destination");
        try {
            if (!ElementCopy.read(this, handle(), first, destination)) {
                NativeBuffer.readFloats(handle(), first, destination);
            }
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Copies elements into a Java array, see {@link #read(long, float[])}.
     *
     * @param first the first element that is read, in row-major order
     * @param destination as many elements are read as it has
     */
    public void read(long first, double[] destination) {
        requireNonNull(destination, "destination");
        try {
            if (!ElementCopy.read(this, handle(), first, destination)) {
                NativeBuffer.readDoubles(handle(), first, destination);
            }
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Copies elements into a Java array, see {@link #read(long, float[])}.
     *
     * @param first the first element that is read, in row-major order
     * @param destination as many elements are read as it has
     */
    public void read(long first, int[] destination) {
        requireNonNull(destination, "destination");
        try {
            if (!ElementCopy.read(this, handle(), first, destination)) {
                NativeBuffer.readInts(handle(), first, destination);
            }
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Copies elements into a Java array, see {@link #read(long, float[])}.
     *
     * @param first the first element that is read, in row-major order
     * @param destination as many elements are read as it has
     */
    public void read(long first, long[] destination) {
        requireNonNull(destination, "destination");
        try {
            if (!ElementCopy.read(this, handle(), first, destination)) {
                NativeBuffer.readLongs(handle(), first, destination);
            }
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Copies elements into a Java array, see {@link #read(long, float[])}. They become signed bytes; {@link
     * #toBytes} gives the bytes of elements of any data type.
     *
     * @param first the first element that is read, in row-major order
     * @param destination as many elements are read as it has
     */
    public void read(long first, byte[] destination) {
        requireNonNull(destination, "destination");
        try {
            NativeBuffer.readBytes(handle(), first, destination);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Copies elements to where a buffer has its position and its limit, which do not move; see {@link
     * #read(long, float[])}. The copy is quickest into a direct buffer in the byte order of the machine.
     *
     * @param first the first element that is read, in row-major order
     * @param destination a float, double, int or long buffer receives numbers, converted; a byte buffer
     *     receives the bytes of the elements
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this array does not have as many elements,
     *     when a byte buffer has no room for a whole number of them or is in another byte order, and for a
     *     buffer of another kind or one that is read-only
     */
    public void read(long first, Buffer destination) {
        HostBuffer host = HostBuffer.destination(destination, dtype.numBytes());
        try {
            NativeBuffer.read(
                    handle(), first, host.memory(), host.kind(), host.position(), host.remaining());
            host.finish();
        } finally {
            Reference.reachabilityFence(this);
            Reference.reachabilityFence(host);
        }
    }

    /**
     * Returns the elements as floats, whatever the data type.
     *
     * @return a new Java array in row-major order
     */
    public float[] toFloats() {
        try {
            float[] copied = ElementCopy.floats(this);
            return copied != null ? copied : NativeNDArray.toFloats(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the elements as doubles, whatever the data type.
     *
     * @return a new Java array in row-major order
     */
    public double[] toDoubles() {
        try {
            double[] copied = ElementCopy.doubles(this);
            return copied != null ? copied : NativeNDArray.toDoubles(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the elements as ints, whatever the data type; see {@link #asType} for the conversion.
     *
     * @return a new Java array in row-major order
     */
    public int[] toInts() {
        try {
            int[] copied = ElementCopy.ints(this);
            return copied != null ? copied : NativeNDArray.toInts(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the elements as longs, whatever the data type; see {@link #asType} for the conversion.
     *
     * @return a new Java array in row-major order
     */
    public long[] toLongs() {
        try {
            long[] copied = ElementCopy.longs(this);
            return copied != null ? copied : NativeNDArray.toLongs(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the elements as they are in memory.
     *
     * @return a new Java array in row-major order, each element in little-endian byte order
     */
    public byte[] toBytes() {
        try {
            return NativeNDArray.toBytes(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the only element.
     *
     * @return its value as a double
     * @throws KVStoreException with {@code INVALID_ARGUMENT} when this array has not one element
     */
    public double toScalar() {
        handle();
        if (size() != 1) {
            throw KVStoreException.invalidArgument(
                    "array of shape " + shape + " is not a scalar, expected one element");
        }
        return toDoubles()[0];
    }

    /** Blocks until every change of this array that was asked for so far is made. */
    public void waitToRead() {
        try {
            NativeNDArray.waitToRead(handle());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Blocks until every change of any array that was asked for so far is made. */
    public static void waitAll() {
        NativeLibrary.load();
        NativeRuntime.synchronize();
    }

    // ---- where it comes from ----------------------------------------------------------------

    /**
     * Returns the open arrays that this one was computed from, those that they were computed from, and so
     * on: {@code a.add(b.add(c))} has four. They are found as long as something else keeps them; an array
     * never keeps another one. Views and what is done in place add none.
     *
     * @return the arrays, each once, the nearest first
     */
    public List<NDArray> dependencies() {
        return ancestry().open();
    }

    /**
     * Closes all {@link #dependencies} and forgets them.
     *
     * @return this array
     */
    public NDArray closeDependencies() {
        return closeDependenciesExcept();
    }

    /**
     * Closes all {@link #dependencies} but some, and forgets those that it closed.
     *
     * @param kept arrays that stay open, with their own dependencies
     * @return this array
     */
    public NDArray closeDependenciesExcept(NDArray... kept) {
        ancestry().closeExcept(requireNonNull(kept, "kept"));
        return this;
    }

    Ancestry ancestry() {
        return Ancestry.of(this);
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
        return this == other || other instanceof NDArray that && SameElements.test(this, that);
    }

    /**
     * Returns a hash of the shape: the elements may change while the array stands in a hash table. For tables of
     * many arrays take an {@code IdentityHashMap}.
     */
    @Override
    public int hashCode() {
        return shape.hashCode();
    }

    // ---- the native border ------------------------------------------------------------------

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
        return numBytes(shape, dtype);
    }

    private static long numBytes(Shape shape, DType dtype) {
        return ResultSize.inBytes(shape.product(), dtype);
    }

    private NDArray derive(Context context, NativeMemory.Allocation allocation) {
        try {
            return adopt(allocate(context, numBytes(), allocation), this);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    private NDArray view(NativeMemory.Allocation allocation) {
        try {
            return adopt(allocation.run());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    private NDArray change(Runnable write) {
        try {
            NativeMemory.beforeChange();
            retry(write);
            return this;
        } finally {
            Reference.reachabilityFence(this);
        }
    }
}
