import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pulls whatever the queues of a topic hold, from the first to the last; with tags if they are given. */
public class PullAll {
    public static void main(String[] args) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("pull-all");
        consumer.start();
        Set<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(args[0]);
        for (MessageQueue queue : queues) {
            long offset = consumer.minOffset(queue);
            while (offset < consumer.maxOffset(queue)) {
                PullResult result = consumer.pull(queue, args.length > 1 ? args[1] : "*", offset, 32);
                if (result.getPullStatus() == PullStatus.FOUND) System.out.println(result.getMsgFoundList());
                offset = result.getNextBeginOffset();
            }
            consumer.updateConsumeOffset(queue, offset);
            System.out.println(queue + " ends at " + offset);
        }
        consumer.shutdown();
        System.exit(0);
    }
}
