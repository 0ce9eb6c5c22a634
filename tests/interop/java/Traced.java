import java.util.ArrayList;
import java.util.List;

import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends to a topic, with Java's own message trace, so many messages and a batch of three; prints the ids.
 * Closing the producer gives its trace half a second and drops the rest, so we first wait until it is stored.
 */
public class Traced {
    static final String TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC";

    static String stored(DefaultMQPullConsumer reader) throws Exception {
        StringBuilder bodies = new StringBuilder();
        for (MessageQueue queue : reader.fetchSubscribeMessageQueues(TRACE_TOPIC)) {
            PullResult found = reader.pull(queue, "*", reader.minOffset(queue), 1000);
            while (found.getMsgFoundList() != null) {
                for (MessageExt message : found.getMsgFoundList()) {
                    bodies.append(new String(message.getBody(), "UTF-8"));
                }
                found = reader.pull(queue, "*", found.getNextBeginOffset(), 1000);
            }
        }
        return bodies.toString();
    }

    static boolean hasTraceOf(List<String> ids, DefaultMQPullConsumer reader) throws Exception {
        try {
            return ids.stream().allMatch(stored(reader)::contains);
        } catch (MQClientException noRoute) { // the first trace makes the topic, on some brokers
            return false;
        }
    }

    static void waitForTraceOf(List<String> ids) throws Exception {
        DefaultMQPullConsumer reader = new DefaultMQPullConsumer("reads-the-trace");
        reader.setVipChannelEnabled(false);
        reader.start();
        long end = System.currentTimeMillis() + 60000;
        while (!hasTraceOf(ids, reader)) {
            if (System.currentTimeMillis() > end) {
                throw new Exception("no trace of some messages after a minute");
            }
            Thread.sleep(200);
        }
        reader.shutdown();
    }

    public static void main(String[] args) {
        try {
            DefaultMQProducer producer = new DefaultMQProducer("traced-by-java", null, true, null);
            producer.setVipChannelEnabled(false);
            producer.setSendMsgTimeout(20000);
            producer.start();
            List<String> ids = new ArrayList<>();
            for (int i = 0; i < Integer.parseInt(args[1]); i++) {
                Message message = new Message(args[0], "tag", "key-" + i, ("body " + i).getBytes("UTF-8"));
                ids.add(producer.send(message).getMsgId());
            }
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                batch.add(new Message(args[0], ("batch " + i).getBytes("UTF-8")));
            }
            ids.addAll(List.of(producer.send(batch).getMsgId().split(",")));
            for (String id : ids) {
                System.out.println("sent\t" + id);
            }
            waitForTraceOf(ids);
            producer.shutdown();
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1); // else the producer's threads would keep it going
        }
    }
}
