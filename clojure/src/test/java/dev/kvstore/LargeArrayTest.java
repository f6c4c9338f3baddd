package dev.kvstore;

import static dev.kvstore.KVStoreException.Code.INVALID_ARGUMENT;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Tests an array with more elements than a Java array or buffer can have. */
@Tag("memory")
class LargeArrayTest {
    private static final long LENGTH = (1L << 31) + 5;

    /** The memory for the array, its copy in the store, and the copy of an updater. */
    private static final long NEEDED = 8L << 30;

    @Test
    void aLargeArrayWorksAndIsReadInPieces() throws Exception {
        assumeTrue(availableMemory() > NEEDED, "needs 8 GiB of free memory");
        long before = NativeMemory.liveBytes();
        try (NDArray array = NDArray.zeros(Shape.of(LENGTH), DType.UINT8, Context.cpu());
                KVStore store = KVStore.create()) {
            try (NDArray end = array.slice(LENGTH - 3, LENGTH)) {
                end.set(new float[] {1, 2, 3});
            }
            store.init("large", array).push("large", List.of(array, array));
            store.pull("large", array);
            float[] last = new float[4];
            array.read(LENGTH - 4, last);
            assertArrayEquals(new float[] {0, 2, 4, 6}, last);
            ByteBuffer bytes = ByteBuffer.allocateDirect(2);
            array.read(LENGTH - 2, bytes);
            assertEquals(6, bytes.get(1));
            try (NDArray start = array.slice(0, 1L << 31);
                    NDArray matrix = start.reshape(1 << 16, 1 << 15);
                    NDArray columns = NDArray.full(Shape.of(1 << 16), 32767);
                    NDArray ones = matrix.setOneHot(columns).chooseElements(columns);
                    NDArray floats = ones.asType(DType.FLOAT32);
                    NDArray sum = floats.reduce(Reduction.SUM)) {
                assertEquals(1 << 16, sum.toScalar());
            }
            long live = NativeMemory.liveBytes();
            for (Executable whole : List.<Executable>of(
                    array::toFloats, array::toDoubles, array::toInts, array::toLongs,
                    array::toBytes, array::asBuffer, () -> NDArrayFile.serialize(array))) {
                String text = Expect.code(INVALID_ARGUMENT, whole).getMessage();
                assertTrue(text.contains("piece by piece"), text);
            }
            assertEquals(live, NativeMemory.liveBytes());
        }
        NativeMemory.trim();
        assertTrue(NativeMemory.liveBytes() <= before);
    }

    private static long availableMemory() throws Exception {
        Path meminfo = Path.of("/proc/meminfo");
        if (!Files.exists(meminfo)) {
            return 0;
        }
        return Files.readAllLines(meminfo).stream()
                .filter(line -> line.startsWith("MemAvailable:"))
                .mapToLong(line -> Long.parseLong(line.replaceAll("[^0-9]", "")) << 10)
                .findFirst()
                .orElse(0);
    }
}
