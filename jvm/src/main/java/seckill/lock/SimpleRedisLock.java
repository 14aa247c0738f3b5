package seckill.lock;

import java.time.Duration;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Supplier;

import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.RedisScript;

import seckill.web.Problem;

/**
 * {@code SET key owner NX PX lease}, tried again every few milliseconds. The release is the
 * tutorial's first, second or third: each repairs the flaw of the one before it.
 */
public final class SimpleRedisLock implements PurchaseLock {

    /** How the key is deleted. */
    public enum Release {
        /** DEL without a look at the owner: it may be another holder by now. */
        BARE_DEL,
        /** GET, then DEL if it is ours: the key may change its owner in between. */
        OWNER_CHECK,
        /** Compare and delete in one script. */
        LUA
    }

    private static final RedisScript<Long> DELETE_IF_OWNER = RedisScript.of(
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end "
                    + "return 0",
            Long.class);
    private static final int LEAST_PAUSE_MS = 5;
    private static final int MOST_PAUSE_MS = 20;
    private final String process = UUID.randomUUID() + "-";
    private final StringRedisTemplate redis;
    private final Release release;
    private final Duration wait;
    private final Duration lease;

    public SimpleRedisLock(
            StringRedisTemplate redis, Release release, Duration wait, Duration lease) {
        this.redis = redis;
        this.release = release;
        this.wait = wait;
        this.lease = lease;
    }

    @Override
    public <T> T underLock(String name, HoldTimes times, Supplier<T> work) {
        String owner = process + Thread.currentThread().getId();
        if (!taken(name, owner)) {
            throw Problem.inProgress();
        }
        times.granted();
        try {
            return work.get();
        } finally {
            times.releasing();
            if (!released(name, owner)) {
                times.lost();
            }
        }
    }

    private boolean taken(String name, String owner) {
        long deadline = System.nanoTime() + wait.toNanos();
        while (true) {
            if (Boolean.TRUE.equals(redis.opsForValue().setIfAbsent(name, owner, lease))) {
                return true;
            }
            if (System.nanoTime() - deadline >= 0 || !paused()) {
                return false;
            }
        }
    }

    private static boolean paused() {
        try {
            Thread.sleep(ThreadLocalRandom.current().nextInt(LEAST_PAUSE_MS, MOST_PAUSE_MS));
            return true;
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    private boolean released(String name, String owner) {
        return switch (release) {
            case BARE_DEL -> redis.delete(name);
            case OWNER_CHECK ->
                owner.equals(redis.opsForValue().get(name)) && redis.delete(name);
            case LUA -> redis.execute(DELETE_IF_OWNER, List.of(name), owner) == 1;
        };
    }
}
