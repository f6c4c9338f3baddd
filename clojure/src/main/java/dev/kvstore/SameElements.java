package dev.kvstore;

import java.util.Arrays;

/** Whether two arrays hold the same numbers in the same shape, read piece by piece. */
final class SameElements {
    private static final int PIECE = 1 << 20;

    private SameElements() {}

    static boolean test(NDArray one, NDArray other) {
        if (!one.shape().equals(other.shape())) {
            return false;
        }
        try {
            return holds(one, other);
        } catch (KVStoreException exception) {
            if (one.isClosed() || other.isClosed()) {
                return false;
            }
            throw exception;
        }
    }

    private static boolean holds(NDArray one, NDArray other) {
        boolean isLong = one.dtype() == DType.INT64 && other.dtype() == DType.INT64;
        for (long first = 0; first < one.size(); first += PIECE) {
            int length = (int) Math.min(PIECE, one.size() - first);
            if (isLong ? !longs(one, other, first, length) : !doubles(one, other, first, length)) {
                return false;
            }
        }
        return true;
    }

    private static boolean longs(NDArray one, NDArray other, long first, int length) {
        long[] left = new long[length];
        long[] right = new long[length];
        one.read(first, left);
        other.read(first, right);
        return Arrays.equals(left, right);
    }

    private static boolean doubles(NDArray one, NDArray other, long first, int length) {
        double[] left = new double[length];
        double[] right = new double[length];
        one.read(first, left);
        other.read(first, right);
        for (int i = 0; i < length; i++) {
            if (left[i] != right[i]) {
                return false;
            }
        }
        return true;
    }
}
