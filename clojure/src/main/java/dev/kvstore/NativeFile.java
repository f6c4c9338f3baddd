package dev.kvstore;

/** Native methods for array files. */
final class NativeFile {
    private NativeFile() {}

    static native void saveList(String file, long[] arrays);

    static native void saveMap(String file, String[] names, long[] arrays);

    /**
     * Returns the names and the descriptions of the arrays. The list of names is empty if the
     * arrays have none.
     */
    static native Object[] load(String file);

    static native byte[] serialize(long array);

    static native long[] deserialize(byte[] bytes);
}
