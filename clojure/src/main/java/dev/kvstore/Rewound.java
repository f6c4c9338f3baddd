package dev.kvstore;

/**
 * A server that was killed and continues from a recovery point, see {@link KVStore#onRewind}.
 *
 * @param server the address of the server
 * @param version the highest version of a key in the recovery point; with rounds, the number of the
 *     last round that is not lost
 */
public record Rewound(String server, long version) {}
