package seckill.lock;

import java.util.function.Supplier;

/**
 * {@code synchronized} on the interned name: the same text is the same object, in this process.
 * Another replica has another object. The wait has no bound but that of those before it.
 */
public final class SynchronizedLock implements PurchaseLock {

    @Override
    public <T> T underLock(String name, HoldTimes times, Supplier<T> work) {
        synchronized (name.intern()) {
            times.granted();
            try {
                return work.get();
            } finally {
                times.releasing();
            }
        }
    }
}
