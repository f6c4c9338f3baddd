package dev.kvstore;

/**
 * What a key of a store holds, see {@link KVStore#stats}.
 *
 * @param key the key
 * @param shape the shape of the stored value
 * @param dtype its data type
 * @param context the device where it is
 * @param numBytes its size
 * @param stateBytes the bytes that an optimizer keeps for the key
 * @param numPushes how many pushes have changed it since it was initialised
 */
public record KeyStats(
        String key,
        Shape shape,
        DType dtype,
        Context context,
        long numBytes,
        long stateBytes,
        long numPushes) {}
