package seckill.web;

import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;

import org.springframework.stereotype.Component;

import seckill.Options;
import seckill.lock.HoldTimes;
import seckill.sale.Order;

/** What the laboratory asks of a replica, in the text format of Prometheus. */
@Component
class Metrics {
    private final String kind;
    private final AtomicLong inProgress = new AtomicLong();
    private final AtomicLong acquired = new AtomicLong();

    Metrics(Options options) {
        kind = Options.name(options.lock());
    }

    /** Counts a purchase while it runs, and the lock that it has taken. */
    Order count(HoldTimes times, Supplier<Order> purchase) {
        inProgress.incrementAndGet();
        try {
            return purchase.get();
        } finally {
            if (times.wasHeld()) {
                acquired.incrementAndGet();
            }
            inProgress.decrementAndGet();
        }
    }

    String page() {
        return "# TYPE seckill_purchases_in_progress gauge\n"
                + "seckill_purchases_in_progress " + inProgress + "\n"
                + "# TYPE distlock_acquisitions_total counter\n"
                + "distlock_acquisitions_total{kind=\"" + kind + "\"} " + acquired + "\n";
    }
}
