package dev.kvstore;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/** Reports what this library found on this machine, and why a part is not available. */
public final class Doctor {
    private Doctor() {}

    /**
     * Returns the findings as strings: the platform, the files that were tried for the native
     * library, its version, the devices or the reason why they are not available, and the memory in
     * use. This method never throws.
     *
     * <pre>{@code
     * Doctor.report().forEach((name, value) -> System.out.println(name + ": " + value));
     * }</pre>
     *
     * @return an unmodifiable map, in the order in which to print it
     */
    public static Map<String, String> report() {
        Map<String, String> report = new LinkedHashMap<>();
        report.put("platform", NativeLibrary.platform());
        report.put("java", System.getProperty("java.version"));
        report.put("library", String.join("; ", NativeLibrary.attempts()));
        if (NativeLibrary.isLoaded()) {
            addNative(report);
        }
        return Collections.unmodifiableMap(report);
    }

    private static void addNative(Map<String, String> report) {
        try {
            String[] facts = NativeRuntime.doctor();
            for (int i = 0; i + 1 < facts.length; i += 2) {
                report.put(facts[i], facts[i + 1]);
            }
            report.put("native memory in use", NativeMemory.size(NativeMemory.liveBytes()));
            report.put("native memory kept", NativeMemory.size(NativeMemory.pooledBytes()));
            report.put("native memory soft cap", NativeMemory.size(NativeMemory.softCap()));
            for (DeviceMemory memory : NativeMemory.devices()) {
                if (!memory.context().isHost()) {
                    report.put("memory of gpu " + memory.context().deviceId(), words(memory));
                }
            }
            report.put(
                    "collected without close", Long.toString(NativeMemory.collectedUnclosed()));
        } catch (RuntimeException | LinkageError exception) {
            report.put("problem", exception.toString());
        }
    }

    private static String words(DeviceMemory memory) {
        return NativeMemory.size(memory.liveBytes()) + " in use, "
                + NativeMemory.size(memory.pooledBytes()) + " kept, of "
                + NativeMemory.size(memory.totalBytes());
    }
}
