package dev.kvstore;

/**
 * How many elements the result of an operation has, for {@link NativeMemory}: none where the operands do not
 * fit, which the call itself says.
 */
final class ResultSize {
    private ResultSize() {}

    /** Element by element, where dimensions of 1 are repeated. */
    static long ofPairs(Shape left, Shape right) {
        if (left.length() != right.length()) {
            return 0;
        }
        long size = 1;
        for (int axis = 0; axis < left.length(); axis++) {
            long one = left.get(axis);
            long other = right.get(axis);
            if (one != other && one != 1 && other != 1) {
                return 0;
            }
            size = multiply(size, Math.max(one, other));
        }
        return size;
    }

    /** The last dimension of the left operand against the first one of the right. */
    static long ofDot(Shape left, Shape right) {
        if (left.length() == 0 || right.length() == 0) {
            return 0;
        }
        long inner = left.get(left.length() - 1);
        if (inner == 0 || inner != right.get(0)) {
            return 0;
        }
        return multiply(left.product() / inner, right.product() / inner);
    }

    /** From {@code start} to before {@code stop}; none when that are no numbers at all. */
    static long ofRange(double start, double stop, double step, int repeat) {
        double steps = Math.max(0, Math.ceil((stop - start) / step));
        return Double.isFinite(steps) ? (long) (steps * Math.max(0, repeat)) : 0;
    }

    /** The bytes of so many elements, or more than there can be. */
    static long inBytes(long size, DType dtype) {
        return multiply(size, dtype.numBytes());
    }

    private static long multiply(long one, long other) {
        return Math.multiplyHigh(one, other) == 0 && one * other >= 0 ? one * other : Long.MAX_VALUE;
    }
}
