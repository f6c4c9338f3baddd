package dev.kvstore;

/** Calls an {@link Updater} from the native library, once per key of a push. */
final class UpdaterCall {
    private final Updater updater;

    UpdaterCall(Updater updater) {
        this.updater = updater;
    }

    /** Called by the native library, which releases both arrays afterwards. */
    void update(String key, long[] descriptions) throws Exception {
        Description first = Description.at(descriptions, 0);
        NDArray pushed = NDArray.borrowed(first);
        NDArray stored = NDArray.borrowed(Description.at(descriptions, first.end()));
        try {
            updater.update(key, pushed, stored);
        } catch (KVStoreException exception) {
            exception.markFromUpdater();
            throw exception;
        } finally {
            pushed.close();
            stored.close();
        }
    }
}
