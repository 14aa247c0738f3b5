package seckill.lock;

import java.util.function.Supplier;

/** What is held around a purchase. */
public interface PurchaseLock {

    /** Does the work under the lock of that name; a lock that stays taken is a refusal. */
    <T> T underLock(String name, HoldTimes times, Supplier<T> work);
}
