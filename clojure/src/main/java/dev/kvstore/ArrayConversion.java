package dev.kvstore;

import static dev.kvstore.NativeMemory.retry;
import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;

/** Copies an {@link NDArray}, also to another data type or another device. */
public sealed interface ArrayConversion permits NDArray {
    /**
     * Returns a copy.
     *
     * @return a new array that shares nothing with this one
     */
    default NDArray copy() {
        return array().derive(NativeNDArray::copy);
    }

    /**
     * Copies the elements into another array, converting them into its data type and moving them to
     * its device.
     *
     * @param destination the array to write
     * @return {@code destination}
     * @throws KVStoreException with {@code SPEC_MISMATCH} when the shapes differ
     */
    default NDArray copyTo(NDArray destination) {
        requireNonNull(destination, "destination");
        NDArray source = array();
        try {
            retry(() -> NativeNDArray.copyTo(source.handle(), destination.handle()));
            return destination;
        } finally {
            Reference.reachabilityFence(source);
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
    default NDArray asType(DType dtype) {
        requireNonNull(dtype, "dtype");
        NDArray array = array();
        return array.derive(
                dtype.inBytes(array.size()),
                handle -> NativeNDArray.asType(handle, dtype.code()));
    }

    /**
     * Returns the elements on a device.
     *
     * @param context the device
     * @return this very array when it is there already, otherwise a new one
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} when this machine has no such device
     */
    default NDArray asContext(Context context) {
        requireNonNull(context, "context");
        NDArray array = array();
        if (context.equals(array.context())) {
            array.handle();
            return array;
        }
        return array.derive(
                context,
                array.numBytes(),
                handle -> NativeNDArray.toDevice(handle, context.kind(), context.deviceId()));
    }

    private NDArray array() {
        return (NDArray) this;
    }
}
