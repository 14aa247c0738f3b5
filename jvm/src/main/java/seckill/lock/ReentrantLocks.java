package seckill.lock;

import java.time.Duration;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

import seckill.web.Problem;

/**
 * A map of {@link ReentrantLock}. As in the tutorial its entries stay: removing one while another
 * thread waits on it would hand out two locks of one name.
 */
public final class ReentrantLocks implements PurchaseLock {
    private final ConcurrentMap<String, ReentrantLock> locks = new ConcurrentHashMap<>();
    private final Duration wait;

    public ReentrantLocks(Duration wait) {
        this.wait = wait;
    }

    @Override
    public <T> T underLock(String name, HoldTimes times, Supplier<T> work) {
        ReentrantLock lock = locks.computeIfAbsent(name, key -> new ReentrantLock());
        if (!taken(lock)) {
            throw Problem.inProgress();
        }
        times.granted();
        try {
            return work.get();
        } finally {
            times.releasing();
            lock.unlock();
        }
    }

    private boolean taken(ReentrantLock lock) {
        try {
            return lock.tryLock(wait.toMillis(), TimeUnit.MILLISECONDS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return false;
        }
    }
}
