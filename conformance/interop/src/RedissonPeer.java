package interop;

import com.fasterxml.jackson.databind.JsonNode;
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

    /** Redisson waits for replicas that it sees, unless it is told that none has to confirm. */
    RedissonPeer(String kind, JsonNode addresses) throws Exception {
        this.kind = kind;
        var config = config(addresses.get("redis").textValue());
        JsonNode replicas = addresses.get("redis_replicas");
        config.setCheckLockSyncedSlaves(replicas.isNull() || replicas.intValue() > 0);
        client = Redisson.create(config);
        id = client.getId();
        String unwanted = "lock:warm-up:" + UUID.randomUUID();
        lock(unwanted, 0, RENEWED);
        unlock(unwanted);
    }

    static Config config(String url) {
        var config = new Config();
        config.setLockWatchdogTimeout(Long.getLong("interop.watchdog_ms", 30_000));
        boolean isSmall = Boolean.getBoolean("interop.small");
        if (isSmall) {
            config.setThreads(4);
            config.setNettyThreads(4);
        }
        if (url.contains("+sentinel://")) {
            useSentinels(config, url, isSmall);
            return config;
        }
        var server = config.useSingleServer();
        server.setAddress(url);
        if (isSmall) {
            server.setConnectionMinimumIdleSize(2);
            server.setConnectionPoolSize(24);
            server.setSubscriptionConnectionMinimumIdleSize(1);
            server.setSubscriptionConnectionPoolSize(2);
        }
        return config;
    }

    /** {@code redis+sentinel://user:password@host:port,host:port/service/database} */
    private static void useSentinels(Config config, String url, boolean isSmall) {
        int login = url.indexOf("://") + "://".length();
        int hosts = url.lastIndexOf('@') + 1;
        String[] words = url.substring(login, hosts - 1).split(":", 2);
        String[] path = url.substring(hosts).split("/");
        var servers = config.useSentinelServers();
        servers.setMasterName(path[1]).setDatabase(Integer.parseInt(path[2]));
        for (String host : path[0].split(",")) {
            servers.addSentinelAddress("redis://" + host);
        }
        if (!words[0].isEmpty()) {
            servers.setUsername(words[0]);
        }
        servers.setPassword(words[1]);
        if (isSmall) {
            servers.setMasterConnectionMinimumIdleSize(2).setMasterConnectionPoolSize(24);
            servers.setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(2);
            servers.setSubscriptionConnectionMinimumIdleSize(1);
            servers.setSubscriptionConnectionPoolSize(2);
        }
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
