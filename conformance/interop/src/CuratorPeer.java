package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

/** Curator's InterProcessMutex; a name is the path of its znode. It has sessions, and no leases. */
final class CuratorPeer implements Peer {
    private final CuratorFramework client;
    private final ConcurrentHashMap<String, InterProcessMutex> mutexes = new ConcurrentHashMap<>();

    CuratorPeer(JsonNode addresses) throws InterruptedException {
        JsonNode session = addresses.get("zookeeper_session_ms");
        client = CuratorFrameworkFactory.builder()
            .connectString(addresses.get("zookeeper").textValue())
            .sessionTimeoutMs(session.isNull() ? 1000 : session.intValue())
            .connectionTimeoutMs(5000)
            .retryPolicy(new RetryNTimes(3, 100))
            .build();
        client.start();
        if (!client.blockUntilConnected(20, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no ZooKeeper in time");
        }
    }

    @Override
    public boolean lock(String name, long waitMs, long leaseMs) throws Exception {
        return find(name).acquire(waitMs, TimeUnit.MILLISECONDS);
    }

    @Override
    public void unlock(String name) throws Exception {
        find(name).release();
    }

    @Override
    public String owner() {
        return "thread " + Thread.currentThread().getId();
    }

    @Override
    public long left(String name) {
        throw new UnsupportedOperationException("a session has no lease");
    }

    @Override
    public boolean isLocked(String name) throws Exception {
        return !find(name).getParticipantNodes().isEmpty();
    }

    @Override
    public boolean forceUnlock(String name) {
        throw new UnsupportedOperationException("Curator has no such call");
    }

    private InterProcessMutex find(String name) {
        return mutexes.computeIfAbsent(name, path -> new InterProcessMutex(client, path));
    }
}
