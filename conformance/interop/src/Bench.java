package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Measures the throughput of Redisson's locks. Each line on stdin is a duration in ms, for which
 * each task takes and releases a lock of its own. The answer is the number of pairs and the time in ns.
 * Redisson has its defaults, and its watchdog renews.
 */
final class Bench {
    private final RedissonClient client;
    private final boolean blocks;
    private final int tasks;
    /** They stay from one slice to the next. */
    private final ExecutorService threads = Executors.newCachedThreadPool();

    private Bench(String mode, String url, int tasks) {
        var config = new Config();
        config.useSingleServer().setAddress(url);
        client = Redisson.create(config);
        blocks = switch (mode) {
            case "blocking" -> true;
            case "async" -> false;
            default -> throw new IllegalArgumentException(mode);
        };
        this.tasks = tasks;
    }

    public static void main(String[] args) throws Exception {
        var bench = new Bench(args[0], args[1], Integer.parseInt(args[2]));
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(bench.slice(Long.parseLong(line)));
        }
        Runtime.getRuntime().halt(0);
    }

    private String slice(long ms) throws Exception {
        long began = System.nanoTime();
        var slice = new Slice(began + TimeUnit.MILLISECONDS.toNanos(ms), tasks);
        for (int task = 0; task < tasks; task++) {
            RLock lock = client.getLock("lock:bench:" + task);
            long number = task + 1;
            if (blocks) {
                threads.execute(() -> slice.block(lock));
            } else {
                slice.chain(lock, number);
            }
        }
        slice.ended.await();
        if (slice.failure.get() != null) {
            throw new IllegalStateException(slice.failure.get());
        }
        return slice.count.sum() + " " + (System.nanoTime() - began);
    }

    private static final class Slice {
        private final long until;
        private final CountDownLatch ended;
        private final LongAdder count = new LongAdder();
        private final AtomicReference<Throwable> failure = new AtomicReference<>();

        Slice(long until, int tasks) {
            this.until = until;
            ended = new CountDownLatch(tasks);
        }

        void block(RLock lock) {
            try {
                while (System.nanoTime() < until) {
                    lock.lock();
                    lock.unlock();
                    count.increment();
                }
            } catch (RuntimeException error) {
                failure.set(error);
            }
            ended.countDown();
        }

        /** The owner of an asynchronous lock is a number that stands for a thread. */
        void chain(RLock lock, long owner) {
            if (System.nanoTime() >= until) {
                ended.countDown();
                return;
            }
            lock.lockAsync(owner)
                .thenCompose(taken -> lock.unlockAsync(owner))
                .whenComplete((freed, error) -> {
                    if (error != null) {
                        failure.set(error);
                        ended.countDown();
                    } else {
                        count.increment();
                        chain(lock, owner);
                    }
                });
        }
    }
}
