package dev.kvstore;

import java.util.List;
import java.util.function.Consumer;

/** Calls a listener of a program from the native library, when the members of a group change. */
final class MembersCall {
    private final Consumer<List<Member>> listener;

    MembersCall(Consumer<List<Member>> listener) {
        this.listener = listener;
    }

    /** Called by the native library. Reports what the listener throws as Java does for threads. */
    void changed(Object[] members) {
        try {
            listener.accept(Member.of(members));
        } catch (Throwable failure) {
            Thread thread = Thread.currentThread();
            thread.getUncaughtExceptionHandler().uncaughtException(thread, failure);
        }
    }
}
