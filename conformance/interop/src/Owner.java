package interop;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** A thread that holds locks: for both libraries that is who owns them. */
final class Owner {
    private final ExecutorService thread =
        Executors.newSingleThreadExecutor(work -> {
            var made = new Thread(work);
            made.setDaemon(true);
            return made;
        });
    private int holds;

    /** One after the other, in the order in which they come. */
    void run(Runnable work) {
        thread.execute(work);
    }

    /** Called by the thread alone: another hold, or one less. Without any the thread ends. */
    void count(int more) {
        holds += more;
        if (holds == 0) {
            thread.shutdown();
        }
    }
}
