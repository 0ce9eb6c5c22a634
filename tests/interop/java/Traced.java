import java.util.ArrayList;
import java.util.List;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends to a topic, with Java's own message trace, so many messages and a batch of three; prints the ids.
 * Closing the producer sends what is left of the trace.
 */
public class Traced {
    public static void main(String[] args) {
        try {
            DefaultMQProducer producer = new DefaultMQProducer("traced-by-java", null, true, null);
            producer.setVipChannelEnabled(false);
            producer.setSendMsgTimeout(20000);
            producer.start();
            for (int i = 0; i < Integer.parseInt(args[1]); i++) {
                Message message = new Message(args[0], "tag", "key-" + i, ("body " + i).getBytes("UTF-8"));
                System.out.println("sent\t" + producer.send(message).getMsgId());
            }
            List<Message> batch = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                batch.add(new Message(args[0], ("batch " + i).getBytes("UTF-8")));
            }
            for (String id : producer.send(batch).getMsgId().split(",")) {
                System.out.println("sent\t" + id);
            }
            producer.shutdown();
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1); // else the producer's threads would keep it going
        }
    }
}
