package dev.kvstore;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What happens when Java's own heap has no room. */
class FullHeapTest {
    /**
     * G1 of newer JDKs refuses an allocation after a time in which it has done little but collect, even
     * if there is room again. On a busy machine that happens to these programs.
     */
    private static final String NO_TIME_LIMIT = "-XX:-UseGCOverheadLimit";

    @ParameterizedTest
    @ValueSource(strings = {"-XX:+UseG1GC", "-XX:+UseSerialGC"})
    void isAnErrorOfJavaAndLeaksNothing(String collector) throws Exception {
        ChildJvm.Result result = new ChildJvm("-Xmx24m", collector, NO_TIME_LIMIT).run(FillsTheHeap.class);
        assertEquals("OutOfMemoryError\n25000\n0 bytes\n", result.output());
        assertEquals(0, result.status());
    }

    @Test
    void doesNotKeepTheLibraryFromBeingLoadedLater() throws Exception {
        // There is no room for the library on its way from the jar, and later there is.
        ChildJvm.Result result = new ChildJvm("-Xmx64m", NO_TIME_LIMIT).run(LoadsLate.class);
        assertEquals("OutOfMemoryError\n1.0\n", result.output());
    }

    /** Fills the heap to the last byte and returns what fills it. */
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
                // The next ones are smaller.
            }
        }
        return hog;
    }

    /** Its first failure of a native call is one for want of heap. */
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

    /** Uses the library for the first time when the heap is full. */
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
