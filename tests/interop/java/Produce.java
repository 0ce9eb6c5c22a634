import java.util.Arrays;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends to a topic a body compressed in each way, and plain ones to queues by the hash of each of the other
 * arguments; prints what Java's producer says of each.
 */
public class Produce {
    public static void main(String[] args) {
        try {
            send(args);
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1); // else the producer's threads would keep it going
        }
    }

    private static void send(String[] args) throws Exception {
        for (String compression : new String[] {"ZLIB", "LZ4", "ZSTD"}) {
            System.setProperty("rocketmq.message.compressType", compression);
            DefaultMQProducer producer = started("produce-" + compression);
            Message message = new Message(args[0], compression, "k1 k2", body());
            message.setFlag(-5);
            message.putUserProperty("\u540d", "\u503c \u00e9");
            print(compression, producer.send(message));
            producer.shutdown();
        }
        DefaultMQProducer producer = started("produce-by-hash");
        for (String key : Arrays.asList(args).subList(1, args.length)) {
            Message message = new Message(args[0], "hash", ("key " + key).getBytes("UTF-8"));
            print("hash", producer.send(message, new SelectMessageQueueByHash(), key));
        }
        producer.shutdown();
    }

    private static DefaultMQProducer started(String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setVipChannelEnabled(false);
        producer.setSendMsgTimeout(20000);
        producer.start();
        return producer;
    }

    private static byte[] body() {
        byte[] body = new byte[64 * 1024];
        for (int i = 0; i < body.length; i++) {
            body[i] = (byte) (i / 7);
        }
        return body;
    }

    private static void print(String what, SendResult result) {
        System.out.println("sent\t" + what + "\t" + result.getMsgId() + "\t" + result.getMessageQueue().getBrokerName()
            + "\t" + result.getMessageQueue().getQueueId() + "\t" + result.getQueueOffset());
    }
}
