package interop;

import com.fasterxml.jackson.databind.JsonNode;

/** The locks of a library of the JVM. As there, the calling thread is the owner. */
interface LockClient {
    /** A lease that the library renews. */
    long RENEWED = -1;

    static LockClient of(JsonNode setup) throws Exception {
        String kind = setup.get("kind").textValue();
        JsonNode addresses = setup.get("addresses");
        return kind.startsWith("zookeeper")
            ? new CuratorPeer(kind, addresses)
            : new RedissonPeer(kind, addresses);
    }

    /** Returns whether it was taken in time. */
    boolean lock(String name, long waitMs, long leaseMs) throws Exception;

    /** Throws IllegalMonitorStateException if it is not the thread's. */
    void unlock(String name) throws Exception;

    /** The calling thread, as the server sees it. */
    String owner();

    /** The rest of the lease in ms, as PTTL says it. */
    long left(String name);

    boolean isLocked(String name) throws Exception;

    /** Frees it, or asks the holder for that. Returns whether it was held. */
    boolean forceUnlock(String name) throws Exception;
}
