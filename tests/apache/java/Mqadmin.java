import java.util.Arrays;
import org.apache.rocketmq.common.ServiceThread;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs several commands of mqadmin, one after another, with a line of `next` before each but the first. */
public class Mqadmin {
    static final String NEXT = "--next--";

    public static void main(String[] args) {
        hurry(Thread.currentThread());
        for (int start = 0; start <= args.length; ) {
            int end = start;
            while (end < args.length && !args[end].equals(NEXT)) end++;
            MQAdminStartup.main(Arrays.copyOfRange(args, start, end));
            if (end < args.length) System.out.println("\n" + NEXT);
            start = end + 1;
        }
        System.exit(0);
    }

    /** A client that ends waits for a thread that looks only every 3 s whether it should: wake it. */
    static void hurry(Thread commands) {
        Thread watcher = new Thread(() -> {
            while (true) {
                boolean ending = Arrays.stream(commands.getStackTrace()).anyMatch(
                    each -> each.getClassName().equals(ServiceThread.class.getName()) && each.getMethodName().equals("shutdown"));
                if (ending)
                    Thread.getAllStackTraces().keySet().stream()
                        .filter(each -> each.getName().startsWith("NettyEventExecutor")).forEach(Thread::interrupt);
                try {
                    Thread.sleep(50);
                } catch (InterruptedException error) {
                    return;
                }
            }
        });
        watcher.setDaemon(true);
        watcher.start();
    }
}
