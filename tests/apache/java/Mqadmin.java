import java.util.Arrays;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs several commands of mqadmin, one after another, with a line of `next` before each but the first. */
public class Mqadmin {
    static final String NEXT = "--next--";

    public static void main(String[] args) {
        for (int start = 0; start <= args.length; ) {
            int end = start;
            while (end < args.length && !args[end].equals(NEXT)) end++;
            MQAdminStartup.main(Arrays.copyOfRange(args, start, end));
            if (end < args.length) System.out.println("\n" + NEXT);
            start = end + 1;
        }
        System.exit(0);
    }
}
