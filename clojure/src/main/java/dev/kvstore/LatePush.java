package dev.kvstore;

import java.util.Locale;

/**
 * What happens to a push that misses its round, see {@link NetStoreOptions#late}: a push that is
 * based on values from before the last round, or that arrives after the round has closed.
 */
public enum LatePush {
    /** It fails with {@code LATE_PUSH}. */
    REJECT,
    /** It belongs to the next round. */
    NEXT;

    /** Returns the native name of this constant. */
    String option() {
        return name().toLowerCase(Locale.ROOT);
    }
}
