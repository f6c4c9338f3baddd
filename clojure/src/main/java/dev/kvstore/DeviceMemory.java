package dev.kvstore;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * The memory of a device, see {@link NativeMemory#devices}. All CPU contexts are one device, {@code cpu(0)}.
 *
 * @param context the device
 * @param liveBytes what arrays and stores use there
 * @param pooledBytes what is kept for reuse there
 * @param totalBytes all memory of a GPU, whoever uses it; -1 for the host
 */
public record DeviceMemory(Context context, long liveBytes, long pooledBytes, long totalBytes) {
    private static final int NUMBERS = 5;

    /** Reads what the native library says of devices. */
    static List<DeviceMemory> of(long[] numbers) {
        List<DeviceMemory> devices = new ArrayList<>();
        for (int i = 0; i + NUMBERS <= numbers.length; i += NUMBERS) {
            devices.add(new DeviceMemory(
                    Context.ofKind(numbers[i], numbers[i + 1]),
                    numbers[i + 2], numbers[i + 3], numbers[i + 4]));
        }
        return Collections.unmodifiableList(devices);
    }
}
