package interop;

import java.util.Arrays;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson's locks of one kind. */
final class RedissonPeer implements LockClient {
    private final RedissonClient client;
    private final String kind;
    private final String id;

    RedissonPeer(String kind, String url) throws Exception {
        this.kind = kind;
        client = Redisson.create(config(url));
        id = client.getId();
        String unwanted = "lock:warm-up:" + UUID.randomUUID();
        lock(unwanted, 0, RENEWED);
        unlock(unwanted);
    }

    static Config config(String url) {
        var config = new Config();
        config.setLockWatchdogTimeout(Long.getLong("interop.watchdog_ms", 30_000));
        var server = config.useSingleServer();
        server.setAddress(url);
        if (Boolean.getBoolean("interop.small")) {
            config.setThreads(4);
            config.setNettyThreads(4);
            server.setConnectionMinimumIdleSize(2);
            server.setConnectionPoolSize(24);
            server.setSubscriptionConnectionMinimumIdleSize(1);
            server.setSubscriptionConnectionPoolSize(2);
        }
        return config;
    }

    @Override
    public boolean lock(String name, long waitMs, long leaseMs) throws InterruptedException {
        return find(name).tryLock(waitMs, leaseMs, TimeUnit.MILLISECONDS);
    }

    @Override
    public void unlock(String name) {
        find(name).unlock();
    }

    @Override
    public String owner() {
        return id + ":" + Thread.currentThread().getId();
    }

    @Override
    public long left(String name) {
        return find(name).remainTimeToLive();
    }

    @Override
    public boolean isLocked(String name) {
        return find(name).isLocked();
    }

    @Override
    public boolean forceUnlock(String name) {
        return find(name).forceUnlock();
    }

    /** The names of a multi lock are separated by commas. */
    private RLock find(String name) {
        return switch (kind) {
            case "redisson" -> client.getLock(name);
            case "fair" -> client.getFairLock(name);
            case "spin" -> client.getSpinLock(name);
            case "fenced" -> client.getFencedLock(name);
            case "write" -> client.getReadWriteLock(name).writeLock();
            case "read" -> client.getReadWriteLock(name).readLock();
            case "multi" -> client.getMultiLock(
                Arrays.stream(name.split(",")).map(client::getLock).toArray(RLock[]::new));
            default -> throw new IllegalArgumentException(kind);
        };
    }
}
