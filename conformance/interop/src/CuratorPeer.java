package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryNTimes;

/** Curator's locks of one kind; a name is the path of a znode. A session is all they have. */
final class CuratorPeer implements LockClient {
    private final CuratorFramework client;
    private final String kind;
    private final ConcurrentHashMap<String, InterProcessMutex> mutexes = new ConcurrentHashMap<>();
    /** The leases of semaphores, by name. */
    private final ConcurrentHashMap<String, Lease> leases = new ConcurrentHashMap<>();

    CuratorPeer(String kind, JsonNode addresses) throws InterruptedException {
        this.kind = kind;
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
        if (!isSemaphore()) {
            return find(name).acquire(waitMs, TimeUnit.MILLISECONDS);
        }
        var semaphore = new InterProcessSemaphoreV2(client, name, 1);
        Lease lease = semaphore.acquire(waitMs, TimeUnit.MILLISECONDS);
        if (lease != null) {
            leases.put(name, lease);
        }
        return lease != null;
    }

    @Override
    public void unlock(String name) throws Exception {
        if (isSemaphore()) {
            leases.remove(name).close();
        } else {
            find(name).release();
        }
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

    /** Curator only asks the holder to release it. */
    @Override
    public boolean forceUnlock(String name) throws Exception {
        var nodes = find(name).getParticipantNodes();
        for (String node : nodes) {
            Revoker.attemptRevoke(client, node);
        }
        return !nodes.isEmpty();
    }

    private boolean isSemaphore() {
        return kind.equals("zookeeper-semaphore");
    }

    private InterProcessMutex find(String name) {
        return mutexes.computeIfAbsent(name, path -> switch (kind) {
            case "zookeeper" -> new InterProcessMutex(client, path);
            case "zookeeper-write" -> new InterProcessReadWriteLock(client, path).writeLock();
            case "zookeeper-read" -> new InterProcessReadWriteLock(client, path).readLock();
            default -> throw new IllegalArgumentException(kind);
        });
    }
}
