package interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/**
 * Threads that each take a lock, add one to a number in a file without any other guard, release,
 * and so on.
 */
final class Contest {
    private final Peer peer;
    private final Want want;
    private final JsonNode contest;
    private final Counter counter;
    private final ArrayNode stays;
    private final Map<String, Long> failures = new TreeMap<>();

    Contest(Peer peer, JsonNode contest) throws Exception {
        this.peer = peer;
        this.contest = contest;
        want = new Want(contest.get("want"));
        counter = new Counter(contest.get("counter").textValue());
        stays = Speech.object().arrayNode();
    }

    JsonNode run() throws InterruptedException {
        var threads = new ArrayList<Thread>();
        for (int task = 0; task < contest.get("tasks").intValue(); task++) {
            int number = task;
            threads.add(new Thread(() -> rounds(number)));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        ObjectNode brought = Speech.object();
        brought.set("stays", stays);
        failures.forEach(brought.putObject("failures")::put);
        return Speech.word("contended", brought);
    }

    private void rounds(int task) {
        JsonNode until = contest.get("until_ns");
        for (long round = 0; round < contest.get("rounds").longValue(); round++) {
            if (!until.isNull() && Speech.now() >= until.longValue()) {
                return;
            }
            try {
                stay(task);
            } catch (Exception error) {
                System.err.println("contest: " + error);
                count("backend");
            }
        }
    }

    private void stay(int task) throws Exception {
        long asked = Speech.now();
        if (!peer.lock(want.name(), want.waitMs(), want.leaseMs())) {
            count("timed_out");
            return;
        }
        long acquired = Speech.now();
        long worked;
        try {
            long seen = counter.read();
            work(contest.get("hold_us").longValue());
            counter.write(seen + 1);
            worked = Speech.now();
        } finally {
            peer.unlock(want.name());
        }
        note(task, asked, acquired, worked, Speech.now());
    }

    private static void work(long holdUs) throws InterruptedException {
        if (holdUs == 0) {
            Thread.yield();
        } else {
            TimeUnit.MICROSECONDS.sleep(holdUs);
        }
    }

    /** A stay as it is written; the libraries do not say when a lock was busy. */
    private synchronized void note(
            int task, long asked, long acquired, long worked, long released) {
        ArrayNode stay = stays.addArray().add(task).add(asked);
        stay.addArray().add(0).add(0);
        stay.add(acquired).add(worked).add(released).add(true).add(0);
    }

    private synchronized void count(String failure) {
        failures.merge(failure, 1L, Long::sum);
    }
}
