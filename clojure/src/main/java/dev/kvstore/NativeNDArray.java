package dev.kvstore;

/**
 * Native methods for arrays. Methods that create an array return its description: handle, dtype
 * code, device kind, device ordinal, rank, dimensions.
 */
final class NativeNDArray {
    private NativeNDArray() {}

    static native long[] full(
            long[] dimensions, int dtype, int deviceKind, int deviceId, double value);

    static native long[] fullLong(
            long[] dimensions, int dtype, int deviceKind, int deviceId, long value);

    static native long[] fromFloats(
            float[] data, long[] dimensions, int dtype, int deviceKind, int deviceId);

    static native long[] fromDoubles(
            double[] data, long[] dimensions, int dtype, int deviceKind, int deviceId);

    static native long[] fromInts(
            int[] data, long[] dimensions, int dtype, int deviceKind, int deviceId);

    static native long[] fromLongs(
            long[] data, long[] dimensions, int dtype, int deviceKind, int deviceId);

    static native long[] fromBytes(
            byte[] littleEndian, long[] dimensions, int dtype, int deviceKind, int deviceId);

    static native long[] arange(
            double start,
            double stop,
            double step,
            int repeat,
            int dtype,
            int deviceKind,
            int deviceId);

    static native long[] concatenate(long[] handles, int axis);

    static native long[] binary(long left, int op, long right);

    static native long[] binaryDouble(long array, int op, double scalar, boolean reversed);

    static native long[] binaryLong(long array, int op, long scalar, boolean reversed);

    static native void binaryAssign(long left, int op, long right);

    static native void binaryAssignDouble(long array, int op, double scalar);

    static native void binaryAssignLong(long array, int op, long scalar);

    static native long[] unary(long array, int op);

    static native long[] reduce(long array, int reduction);

    static native long[] clip(long array, double low, double high);

    static native long[] dot(long left, long right);

    static native long[] transpose(long array);

    static native long[] argmaxChannel(long array);

    static native long[] chooseElements(long matrix, long columns);

    static native void setOneHot(long matrix, long columns);

    static native boolean arrayEqual(long left, long right);

    static native long[] slice(long array, long start, long stop);

    static native long[] at(long array, long index);

    static native long[] reshape(long array, long[] dimensions);

    static native long[] copy(long array);

    static native long[] asType(long array, int dtype);

    static native long[] toDevice(long array, int deviceKind, int deviceId);

    static native void copyTo(long source, long destination);

    static native void fill(long array, double value);

    static native void fillLong(long array, long value);

    static native void assignFloats(long array, float[] data);

    static native void assignDoubles(long array, double[] data);

    static native void assignInts(long array, int[] data);

    static native void assignLongs(long array, long[] data);

    static native float[] toFloats(long array);

    static native double[] toDoubles(long array);

    static native int[] toInts(long array);

    static native long[] toLongs(long array);

    static native byte[] toBytes(long array);

    static native void waitToRead(long array);

    static native void release(long array);
}
