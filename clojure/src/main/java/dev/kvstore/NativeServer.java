package dev.kvstore;

/** Native methods for servers. Options and environment variables are names with their values. */
final class NativeServer {
    private NativeServer() {}

    static native long start(String[] options, String[] values);

    /** Does not wait for the calls that run. */
    static native void release(long server);

    /** Completes the calls that run, and closes all connections. */
    static native void shutDown(long server);

    static native String address(long server);

    /** Returns an empty string if the server has no HTTP endpoint. */
    static native String metricsAddress(long server);

    /** Returns the handle of the store that holds the values. */
    static native long store(long server);

    /** Returns the same as {@link NativeGroup#members}. */
    static native Object[] members(long server);

    static native void onCommand(long server, CommandCall handler);

    /** Returns the role, or an empty string if no launcher has started the process. */
    static native String role(String[] variables, String[] values);

    /** Starts the server or the scheduler of the job that the variables describe. */
    static native long launch(
            String[] variables, String[] values, String[] options, String[] settings);

    /**
     * Joins the job that the variables describe as a worker. Returns the handle of the store.
     */
    static native long join(
            String name,
            String[] variables,
            String[] values,
            String[] options,
            String[] settings);

    /** Returns when the job has ended. Shuts the server down. */
    static native void waitForJob(long server, String[] variables, String[] values);
}
