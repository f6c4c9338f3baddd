package dev.kvstore;

import java.util.function.Consumer;

/** Calls a listener of a program from the native library, when a server was rewound. */
final class RewoundCall {
    private final Consumer<Rewound> listener;

    RewoundCall(Consumer<Rewound> listener) {
        this.listener = listener;
    }

    /** Called by the native library. Reports what the listener throws as Java does for threads. */
    void rewound(String server, String version) {
        try {
            listener.accept(new Rewound(server, Long.parseUnsignedLong(version)));
        } catch (Throwable failure) {
            Thread thread = Thread.currentThread();
            thread.getUncaughtExceptionHandler().uncaughtException(thread, failure);
        }
    }
}
