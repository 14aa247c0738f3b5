package seckill.lock;

import java.util.function.Supplier;

/** Nothing is held. */
public final class NoLock implements PurchaseLock {

    @Override
    public <T> T underLock(String name, HoldTimes times, Supplier<T> work) {
        return work.get();
    }
}
