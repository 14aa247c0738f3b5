package interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

/**
 * Threads that contend for a lock. In each round a thread takes it, adds one to a number in a file
 * without any other guard, and releases it.
 */
final class Contest {
    private final LockClient peer;
    private final LockRequest request;
    private final JsonNode contest;
    private final Counter counter;
    private final ArrayNode records;
    private final Map<String, Long> failures = new TreeMap<>();

    Contest(LockClient peer, JsonNode contest) throws Exception {
        this.peer = peer;
        this.contest = contest;
        request = new LockRequest(contest.get("request"));
        counter = new Counter(contest.get("counter").textValue());
        records = Protocol.object().arrayNode();
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
        ObjectNode brought = Protocol.object();
        brought.set("records", records);
        failures.forEach(brought.putObject("failures")::put);
        return Protocol.response("contended", brought);
    }

    private void rounds(int task) {
        JsonNode until = contest.get("until_ns");
        for (long round = 0; round < contest.get("rounds").longValue(); round++) {
            if (!until.isNull() && Protocol.now() >= until.longValue()) {
                return;
            }
            try {
                enterSection(task);
            } catch (Exception error) {
                System.err.println("contest: " + error);
                count("backend");
            }
        }
    }

    private void enterSection(int task) throws Exception {
        long asked = Protocol.now();
        if (!peer.lock(request.name(), request.waitMs(), request.leaseMs())) {
            count("timed_out");
            return;
        }
        long acquired = Protocol.now();
        long worked = -1;
        try {
            long seen = counter.read();
            work(contest.get("hold_us").longValue());
            counter.write(seen + 1);
            worked = Protocol.now();
        } finally {
            try {
                peer.unlock(request.name());
            } finally {
                // What was counted has a record, also if the release fails.
                if (worked != -1) {
                    note(task, asked, acquired, worked, Protocol.now());
                }
            }
        }
    }

    private static void work(long holdUs) throws InterruptedException {
        if (holdUs == 0) {
            Thread.yield();
        } else {
            TimeUnit.MICROSECONDS.sleep(holdUs);
        }
    }

    /** Writes a section record. The libraries do not say when a lock was busy. */
    private synchronized void note(
            int task, long asked, long acquired, long worked, long released) {
        ArrayNode record = records.addArray().add(task).add(asked);
        record.addArray().add(0).add(0);
        record.add(acquired).add(worked).add(released).add(true).add(0);
    }

    private synchronized void count(String failure) {
        failures.merge(failure, 1L, Long::sum);
    }
}
