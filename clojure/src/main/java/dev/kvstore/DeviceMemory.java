package dev.kvstore;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * The memory usage of a device, see {@link NativeMemory#devices}. All CPU contexts are one device,
 * {@code cpu(0)}.
 *
 * @param context the device
 * @param liveBytes the memory that arrays and stores use
 * @param pooledBytes the free memory that the library keeps for reuse
 * @param totalBytes the total memory of a GPU, including what other processes use; -1 for the host
 */
public record DeviceMemory(Context context, long liveBytes, long pooledBytes, long totalBytes) {
    private static final int NUMBERS = 5;

    /** Decodes the numbers of the native library. */
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
