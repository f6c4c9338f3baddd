package dev.kvstore;

/** What the native library calls for each key that is pushed. */
final class UpdaterCall {
    private final Updater updater;

    UpdaterCall(Updater updater) {
        this.updater = updater;
    }

    /** Called by the native library, which releases both arrays afterwards. */
    void update(String key, long[] pushedDescription, long[] storedDescription) throws Exception {
        NDArray pushed = NDArray.lent(pushedDescription);
        NDArray stored = NDArray.lent(storedDescription);
        try {
            updater.update(key, pushed, stored);
        } finally {
            pushed.close();
            stored.close();
        }
    }
}
