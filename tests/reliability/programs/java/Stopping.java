import java.io.IOException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** When a program is to stop: its stdin has ended. */
final class Stopping {
    private final CountDownLatch ended = new CountDownLatch(1);

    Stopping() {
        Thread reader = new Thread(this::read, "stopping");
        reader.setDaemon(true);
        reader.start();
    }

    boolean isSet() {
        return ended.getCount() == 0;
    }

    /** Waits for so long, or until it is time to stop. */
    void rest(long ms) throws InterruptedException {
        ended.await(ms, TimeUnit.MILLISECONDS);
    }

    private void read() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException error) {
            // Nobody is at the other end any more.
        }
        ended.countDown();
    }
}
