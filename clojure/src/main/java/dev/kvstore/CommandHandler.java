package dev.kvstore;

/** Runs for each command that workers send to a server, see {@link KVStoreServer#onCommand}. */
@FunctionalInterface
public interface CommandHandler {
    /**
     * Handles a command. If this throws, the worker gets an error with the class and the message of
     * the exception.
     *
     * @param head the number of the command
     * @param body the string of the command
     * @throws Exception to report a failure
     */
    void handle(int head, String body) throws Exception;
}
