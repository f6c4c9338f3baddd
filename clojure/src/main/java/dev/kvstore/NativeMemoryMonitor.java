package dev.kvstore;

import java.lang.management.ManagementFactory;
import javax.management.InstanceAlreadyExistsException;
import javax.management.JMException;
import javax.management.ObjectName;

/**
 * Exposes {@link NativeMemory} to monitoring tools. This is a separate class, because not every
 * Java runtime has JMX.
 */
final class NativeMemoryMonitor implements NativeMemoryMXBean {
    private static final String NAME = "dev.kvstore:type=NativeMemory";

    private NativeMemoryMonitor() {}

    static void register() {
        try {
            ManagementFactory.getPlatformMBeanServer()
                    .registerMBean(new NativeMemoryMonitor(), new ObjectName(NAME));
        } catch (InstanceAlreadyExistsException done) {
            // The registered bean reports the same memory, or the memory of the library in another
            // class loader.
        } catch (JMException exception) {
            throw new KVStoreException(
                    KVStoreException.Code.INTERNAL, "MXBean " + NAME + ": " + exception);
        }
    }

    @Override
    public long getLiveBytes() {
        return NativeMemory.liveBytes();
    }

    @Override
    public long getPooledBytes() {
        return NativeMemory.pooledBytes();
    }

    @Override
    public long getSoftCap() {
        return NativeMemory.softCap();
    }

    @Override
    public void setSoftCap(long numBytes) {
        NativeMemory.setSoftCap(numBytes);
    }

    @Override
    public long getOpen() {
        return NativeMemory.open();
    }

    @Override
    public long getCollectedUnclosed() {
        return NativeMemory.collectedUnclosed();
    }

    @Override
    public void trim() {
        NativeMemory.trim();
    }
}
