package dev.kvstore;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * What a key of a store holds, see {@link KVStore#stats} and {@link Snapshot#stats}.
 *
 * @param key the key
 * @param shape the shape of the stored value
 * @param dtype its data type
 * @param context the device where it is
 * @param numBytes its size; where only some rows of it are there, that of those and of their numbers
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
        long numPushes) {
    /** Returns what the native library says of keys: their names; then for each some numbers. */
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
