package dev.kvstore;

/** Calls a {@link CommandHandler} from the native library. */
final class CommandCall {
    private final CommandHandler handler;

    CommandCall(CommandHandler handler) {
        this.handler = handler;
    }

    /** Called by the native library. */
    void run(String head, String body) throws Exception {
        handler.handle(Integer.parseInt(head), body);
    }
}
