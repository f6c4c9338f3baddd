package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests what happens if the Java heap is full. */
class FullHeapTest {
    /**
     * Turns off the time limit of G1. In newer JDKs, an allocation fails after a period in which G1
     * has done little but collect, even if there is room again. On a busy machine, this would
     * happen to these programs.
     */
    private static final String NO_TIME_LIMIT = "-XX:-UseGCOverheadLimit";

    @ParameterizedTest
    @ValueSource(strings = {"-XX:+UseG1GC", "-XX:+UseSerialGC"})
    void aFullHeapThrowsAndLeaksNothing(String collector) throws Exception {
        ChildJvm.Result result =
                new ChildJvm("-Xmx24m", collector, NO_TIME_LIMIT).run(FillsTheHeap.class);
        assertEquals("OutOfMemoryError\n25000\n0 bytes\n", result.output());
        assertEquals(0, result.status());
    }

    @Test
    void theLibraryCanBeLoadedAfterTheHeapWasFull() throws Exception {
        // At first there is no room to unpack the library from the jar; later there is.
        ChildJvm.Result result = new ChildJvm("-Xmx64m", NO_TIME_LIMIT).run(LoadsLate.class);
        assertEquals("OutOfMemoryError\n1.0\n", result.output());
    }

    /** Fills the heap completely. Returns the objects that fill it. */
    private static Object[] fill() {
        Object[] hog = new Object[1 << 20];
        int next = 0;
        for (int size = 1 << 20; size >= 16; size /= 2) {
            try {
                while (next < hog.length) {
                    hog[next] = new byte[size - 16];
                    next++;
                }
            } catch (OutOfMemoryError full) {
                // Continue with smaller arrays.
            }
        }
        return hog;
    }

    /** The first failure of a native call in this program is a full heap. */
    static final class FillsTheHeap {
        private FillsTheHeap() {}

        public static void main(String[] arguments) {
            try (NDArray array = NDArray.ones(Shape.of(25_000))) {
                array.toFloats();
                Object[] hog = fill();
                OutOfMemoryError found = null;
                try {
                    array.toFloats();
                } catch (OutOfMemoryError error) {
                    found = error;
                }
                for (int i = 0; i < 100; i++) {
                    try {
                        array.add(1).close();
                    } catch (OutOfMemoryError error) {
                        found = error;
                    }
                }
                hog[0] = null;
                hog = null;
                System.out.println(found == null ? "nothing" : found.getClass().getSimpleName());
                System.out.println(array.toFloats().length);
            }
            System.out.println(NativeMemory.liveBytes() + " bytes");
        }
    }

    /** Uses the library for the first time while the heap is full. */
    static final class LoadsLate {
        private LoadsLate() {}

        public static void main(String[] arguments) {
            String found = "nothing";
            Object[] hog = fill();
            try {
                NativeMemory.liveBytes();
            } catch (OutOfMemoryError error) {
                hog = null;
                found = error.getClass().getSimpleName();
            }
            System.out.println(found);
            try (NDArray array = NDArray.ones(Shape.of(1))) {
                System.out.println(array.toScalar());
            }
        }
    }
}
