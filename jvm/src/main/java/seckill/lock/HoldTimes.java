package seckill.lock;

import java.util.Optional;

/**
 * When a purchase held its lock, for the judge of the laboratory.
 *
 * <p>Four readings of {@code System.nanoTime()}: the request has arrived, the lock is granted, it
 * is about to be given back, the answer is written. {@code granted} is read after the grant and
 * {@code released} before the release, so a thread that is preempted between two readings makes
 * the hold look shorter, never longer. Each moment is read once.
 *
 * <p>One thread carries a request from its arrival to its answer, so nothing here is shared.
 */
public final class HoldTimes {
    private final long arrived = System.nanoTime();
    private long granted;
    private long released;
    private boolean held;
    private boolean lost;

    /** The lock was granted. */
    public void granted() {
        granted = System.nanoTime();
        held = true;
    }

    /** Whether the lock was granted. */
    public boolean wasHeld() {
        return held;
    }

    /** The lock is about to be given back. */
    public void releasing() {
        released = System.nanoTime();
    }

    /** The lock was not held any more when it was given back. */
    public void lost() {
        lost = true;
    }

    /** The header of an answer that is written now: waited, held and since, in microseconds. */
    public Optional<String> report() {
        if (!held) {
            return Optional.empty();
        }
        long waited = micros(granted - arrived);
        long since = micros(System.nanoTime() - released);
        return Optional.of(
                waited + "-" + micros(released - granted) + "-" + since + (lost ? "-lost" : ""));
    }

    private static long micros(long nanos) {
        return nanos / 1000;
    }
}
