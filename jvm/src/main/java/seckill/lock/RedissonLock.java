package seckill.lock;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

import seckill.web.Problem;

/** Redisson's {@link RLock}, which its watchdog renews while the holder lives. */
public final class RedissonLock implements PurchaseLock {
    private final RedissonClient redisson;
    private final Duration wait;

    public RedissonLock(RedissonClient redisson, Duration wait) {
        this.redisson = redisson;
        this.wait = wait;
    }

    @Override
    public <T> T underLock(String name, HoldTimes times, Supplier<T> work) {
        RLock lock = redisson.getLock(name);
        if (!taken(lock)) {
            throw Problem.inProgress();
        }
        times.granted();
        try {
            return work.get();
        } finally {
            times.releasing();
            release(lock, times);
        }
    }

    private boolean taken(RLock lock) {
        try {
            return lock.tryLock(wait.toMillis(), TimeUnit.MILLISECONDS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return false;
        }
    }

    private static void release(RLock lock, HoldTimes times) {
        try {
            lock.unlock();
        } catch (IllegalMonitorStateException error) {
            times.lost();
        }
    }
}
