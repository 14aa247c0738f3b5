package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;

/**
 * Calls Redisson's semaphores and latch. Each line names a call and its object, as in
 * "RSemaphore.tryAcquire name". The answer is what the call returns, or what it throws.
 */
final class Synchronizers {
    private static final int NUMBER = 3;
    private final RedissonClient client;

    private Synchronizers(String url) {
        client = Redisson.create(RedissonPeer.config(url));
    }

    public static void main(String[] args) throws Exception {
        var synchronizers = new Synchronizers(args[0]);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            System.out.println(synchronizers.answer(words[0], words[1]).replace('\n', ' '));
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(String call, String name) {
        try {
            return String.valueOf(call(call, name));
        } catch (Exception error) {
            return "throws " + error;
        }
    }

    private Object call(String call, String name) throws InterruptedException {
        String[] parts = call.split("\\.");
        return switch (parts[0]) {
            case "RSemaphore" -> semaphore(parts[1], name);
            case "RPermitExpirableSemaphore" -> expirable(parts[1], name);
            case "RCountDownLatch" -> latch(parts[1], name);
            default -> throw new IllegalArgumentException(call);
        };
    }

    private Object semaphore(String call, String name) {
        var semaphore = client.getSemaphore(name);
        return switch (call) {
            case "trySetPermits" -> semaphore.trySetPermits(NUMBER);
            case "tryAcquire" -> semaphore.tryAcquire();
            case "drainPermits" -> semaphore.drainPermits();
            case "availablePermits" -> semaphore.availablePermits();
            case "delete" -> semaphore.delete();
            case "release" -> {
                semaphore.release();
                yield null;
            }
            default -> throw new IllegalArgumentException(call);
        };
    }

    private Object expirable(String call, String name) throws InterruptedException {
        var semaphore = client.getPermitExpirableSemaphore(name);
        return switch (call) {
            case "trySetPermits" -> semaphore.trySetPermits(NUMBER);
            case "tryAcquire" -> semaphore.tryAcquire(0, 1, TimeUnit.MINUTES);
            case "availablePermits" -> semaphore.availablePermits();
            default -> throw new IllegalArgumentException(call);
        };
    }

    private Object latch(String call, String name) throws InterruptedException {
        var latch = client.getCountDownLatch(name);
        return switch (call) {
            case "trySetCount" -> latch.trySetCount(NUMBER);
            case "getCount" -> latch.getCount();
            case "await" -> latch.await(0, TimeUnit.MILLISECONDS);
            case "countDown" -> {
                latch.countDown();
                yield null;
            }
            default -> throw new IllegalArgumentException(call);
        };
    }
}
