package interop;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** A thread that holds locks: in both libraries the thread is the owner. */
final class Owner {
    private final ExecutorService thread =
        Executors.newSingleThreadExecutor(work -> {
            var made = new Thread(work);
            made.setDaemon(true);
            return made;
        });
    private int holds;

    /** Runs work one after the other, in the order of its arrival. */
    void run(Runnable work) {
        thread.execute(work);
    }

    /** Adds to the count of holds; only the thread calls it. At zero the thread ends. */
    void count(int more) {
        holds += more;
        if (holds == 0) {
            thread.shutdown();
        }
    }
}
