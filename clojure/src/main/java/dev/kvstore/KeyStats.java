package dev.kvstore;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * The statistics of a key, see {@link KVStore#stats} and {@link Snapshot#stats}.
 *
 * @param key the key
 * @param shape the shape of the stored value
 * @param dtype the data type of the stored value
 * @param context the device of the stored value
 * @param numBytes the size of the stored value; for a row-sparse value, the size of its rows and
 *     row indices
 * @param stateBytes the size of the optimizer state of the key
 * @param numPushes the number of pushes that have changed the value since it was initialized
 */
public record KeyStats(
        String key,
        Shape shape,
        DType dtype,
        Context context,
        long numBytes,
        long stateBytes,
        long numPushes) {
    /**
     * Decodes the statistics of the native library: the names of the keys and an array with the
     * numbers of all keys.
     */
    static List<KeyStats> of(Object[] found) {
        long[] numbers = (long[]) found[1];
        List<KeyStats> stats = new ArrayList<>();
        int position = 0;
        for (String key : (String[]) found[0]) {
            Description value = Description.at(numbers, position + 2);
            stats.add(new KeyStats(
                    key, value.shape(), value.dtype(), value.context(), value.first(),
                    numbers[position + 1], numbers[position]));
            position = value.end();
        }
        return Collections.unmodifiableList(stats);
    }
}
