import java.nio.charset.StandardCharsets;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Sends to a topic as each of the users `name:secret`, and prints how that ended. */
public class SignedSends {
    public static void main(String[] args) {
        try {
            for (int i = 1; i < args.length; i++) {
                String[] user = args[i].split(":");
                System.out.println(user[0] + "\t" + send(args[0], user));
            }
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static String send(String topic, String[] user) throws Exception {
        AclClientRPCHook hook = new AclClientRPCHook(new SessionCredentials(user[0], user[1]));
        DefaultMQProducer producer = new DefaultMQProducer("acl-java-" + user[0], hook);
        producer.setSendMsgTimeout(20000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setInstanceName(user[0]);
        producer.start();
        try {
            byte[] body = "from Java".getBytes(StandardCharsets.UTF_8);
            return producer.send(new Message(topic, body)).getSendStatus().toString();
        } catch (MQClientException error) {
            MQBrokerException cause = (MQBrokerException) error.getCause();
            return cause.getResponseCode() + " " + cause.getErrorMessage();
        } finally {
            producer.shutdown();
        }
    }
}
