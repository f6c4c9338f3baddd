package dev.kvstore;

/** Entry points of the native library for files of arrays. */
final class NativeFile {
    private NativeFile() {}

    static native void saveList(String file, long[] arrays);

    static native void saveMap(String file, String[] names, long[] arrays);

    /** Returns the names, none for a file without, and the descriptions of the arrays. */
    static native Object[] load(String file);

    static native byte[] serialize(long array);

    static native long[] deserialize(byte[] bytes);
}
