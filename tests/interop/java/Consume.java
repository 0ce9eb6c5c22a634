import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/** Prints messages as Java's push consumer hands them out, a JSON object each: topics, how many, [namespace]. */
public class Consume {
    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("consume-" + System.nanoTime());
        if (args.length > 2) {
            consumer.setNamespace(args[2]);
        }
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        for (String topic : args[0].split(",")) {
            consumer.subscribe(topic, "*");
        }
        CountDownLatch missing = new CountDownLatch(Integer.parseInt(args[1]));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                print(message);
                missing.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean all = missing.await(50, TimeUnit.SECONDS);
        consumer.shutdown();
        System.exit(all ? 0 : 1);
    }

    private static void print(MessageExt message) {
        StringBuilder line = new StringBuilder("{");
        line.append("\"topic\":").append(quoted(message.getTopic()));
        line.append(",\"body\":").append(quoted(Base64.getEncoder().encodeToString(message.getBody())));
        line.append(",\"tags\":").append(quoted(message.getTags()));
        line.append(",\"keys\":").append(quoted(message.getKeys()));
        line.append(",\"flag\":").append(message.getFlag());
        line.append(",\"message_id\":").append(quoted(message.getMsgId()));
        line.append(",\"offset_message_id\":").append(quoted(((MessageClientExt) message).getOffsetMsgId()));
        line.append(",\"queue_id\":").append(message.getQueueId());
        line.append(",\"queue_offset\":").append(message.getQueueOffset());
        line.append(",\"wait_store_ok\":").append(message.isWaitStoreMsgOK());
        line.append(",\"properties\":{");
        String comma = "";
        for (Map.Entry<String, String> each : new TreeMap<>(message.getProperties()).entrySet()) {
            line.append(comma).append(quoted(each.getKey())).append(':').append(quoted(each.getValue()));
            comma = ",";
        }
        System.out.println(line.append("}}"));
    }

    private static String quoted(String text) {
        if (text == null) {
            return "null";
        }
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c < ' ' || c > '~' || c == '"' || c == '\\') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
