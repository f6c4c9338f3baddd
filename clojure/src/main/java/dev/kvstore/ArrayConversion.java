package dev.kvstore;

import static dev.kvstore.NativeMemory.retry;
import static java.util.Objects.requireNonNull;

import java.lang.ref.Reference;

/** Copies an {@link NDArray}, optionally to another data type or device. */
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
     * Copies the elements into another array, converts them to its data type and moves them to its
     * device.
     *
     * @param destination the array to write
     * @return {@code destination}
     * @throws KVStoreException with {@code SPEC_MISMATCH} if the shapes differ
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
     * Returns the elements in another data type. Converting a float to an integer truncates it. If
     * the result does not fit, only its low bits are kept.
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
     * @return this array if it is already on that device, otherwise a new array
     * @throws KVStoreException with {@code DEVICE_UNAVAILABLE} if this machine has no such device
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
