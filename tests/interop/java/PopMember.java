import java.util.List;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * A member of a group that pops, until it is killed; prints what it gets: group, topic, concurrent or orderly. The
 * first time it does not take what begins with "bad".
 */
public class PopMember {
    public static void main(String[] args) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.start();
        for (BrokerData broker : admin.examineTopicRouteInfo(args[1]).getBrokerDatas()) {
            for (String address : broker.getBrokerAddrs().values()) {
                admin.setMessageRequestMode(address, args[1], args[0], MessageRequestMode.POP, 8, 20_000);
            }
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        consumer.setClientRebalance(false);
        if (args[2].equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                print(messages) ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                print(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        System.out.println("client " + consumer.buildMQClientId());
        Thread.sleep(600_000);
    }

    private static synchronized boolean print(List<MessageExt> messages) {
        boolean good = true;
        for (MessageExt message : messages) {
            String body = new String(message.getBody());
            System.out.println("got\t" + body + "\t" + message.getTopic() + "\t" + message.getReconsumeTimes() + "\t"
                + message.getQueueId() + "\t" + message.getProperty("POP_CK"));
            good &= !body.startsWith("bad") || message.getReconsumeTimes() > 0;
        }
        return good;
    }
}
