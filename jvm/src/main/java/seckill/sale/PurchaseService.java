package seckill.sale;

import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;

import org.springframework.context.annotation.Lazy;
import org.springframework.dao.DuplicateKeyException;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

import seckill.Options;
import seckill.lock.HoldTimes;
import seckill.lock.PurchaseLock;
import seckill.web.Problem;

/** A purchase as the tutorials write it: look, lock, and a transaction under the lock. */
@Service
public class PurchaseService {
    private final SaleMapper mapper;
    private final OrderIds ids;
    private final PurchaseLock lock;
    private final Options options;
    /** This service through its proxy, which begins and commits transactions. */
    private final PurchaseService self;

    PurchaseService(SaleMapper mapper, OrderIds ids, PurchaseLock lock, Options options,
            @Lazy PurchaseService self) {
        this.mapper = mapper;
        this.ids = ids;
        this.lock = lock;
        this.options = options;
        this.self = self;
    }

    /** Sells one unit to the user, or throws a {@link Problem} that says why not. */
    public Order purchase(long user, long voucherId, Long price, HoldTimes times) {
        Voucher voucher = mapper.findVoucher(voucherId).orElseThrow(Problem::voucherNotFound);
        voucher.checkOpen(price);
        try {
            return switch (options.lockOrder()) {
                case OUTSIDE -> lock.underLock(
                        lockName(user, voucherId), times, () -> inTransaction(user, voucher));
                case INSIDE -> self.createOrderAndLock(user, voucher, times);
            };
        } catch (DuplicateKeyException error) {
            throw mapper.findOrder(user, voucherId).map(Problem::alreadyOrdered)
                    .orElseGet(Problem::overloaded);
        }
    }

    private Order inTransaction(long user, Voucher voucher) {
        if (options.bug() == Options.Bug.SELF_INVOCATION) {
            // A call on `this` does not pass the proxy: each statement commits by itself.
            return createOrder(user, voucher);
        }
        return self.createOrder(user, voucher);
    }

    /** One transaction: has the user an order, is a unit left, take it, write the order. */
    @Transactional
    public Order createOrder(long user, Voucher voucher) {
        mapper.findOrder(user, voucher.id()).ifPresent(order -> {
            throw Problem.alreadyOrdered(order);
        });
        if (options.guards()) {
            work();
            takeUnit(voucher.id());
        } else {
            readAndWriteStock(voucher.id());
        }
        LocalDateTime now = LocalDateTime.now(ZoneOffset.UTC).truncatedTo(ChronoUnit.MILLIS);
        var order = new Order(
                ids.draw(), user, voucher.id(), voucher.title(), voucher.priceCents(), now);
        mapper.insertOrder(order);
        return order;
    }

    /** The classic mistake: the lock is free when this returns, and the proxy commits after it. */
    @Transactional
    public Order createOrderAndLock(long user, Voucher voucher, HoldTimes times) {
        return lock.underLock(
                lockName(user, voucher.id()), times, () -> createOrder(user, voucher));
    }

    private void takeUnit(long voucher) {
        if (options.bug() == Options.Bug.NO_STOCK_CONDITION) {
            mapper.takeUnitUnchecked(voucher);
        } else if (!mapper.takeUnit(voucher)) {
            throw Problem.soldOut();
        }
    }

    /** The naive way: what was read, less one. */
    private void readAndWriteStock(long voucher) {
        int left = mapper.readStock(voucher).orElseThrow(Problem::voucherNotFound);
        if (left < 1) {
            throw Problem.soldOut();
        }
        work();
        mapper.writeStock(voucher, left - 1);
    }

    /** Extra time under the lock (laboratory). */
    private void work() {
        if (options.work().isZero()) {
            return;
        }
        try {
            Thread.sleep(options.work().toMillis());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private String lockName(long user, long voucher) {
        return switch (options.scope()) {
            case USER -> "lock:order:" + user;
            case VOUCHER -> "lock:voucher:" + voucher;
        };
    }
}
