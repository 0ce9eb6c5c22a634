import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;

import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** Prints which queues Java's strategies give to each member: a line for every strategy, number of queues and member. */
public class Allocate {
    public static void main(String[] args) {
        AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
        rooms.setConsumeridcs(new HashSet<>(Arrays.asList("north", "south")));
        AllocateMessageQueueStrategy[] strategies = {
            new AllocateMessageQueueAveragely(), new AllocateMessageQueueAveragelyByCircle(),
            new AllocateMessageQueueConsistentHash(), rooms,
        };
        for (int queues = 1; queues <= 9; queues++) {
            List<MessageQueue> all = new ArrayList<>();
            for (String broker : new String[] {"north@a", "plain", "south@b", "west@c"}) {
                for (int id = 0; id < queues; id++) {
                    all.add(new MessageQueue("topic", broker, id));
                }
            }
            for (int clients = 1; clients <= 7; clients++) {
                List<String> ids = new ArrayList<>();
                for (int client = 0; client < clients; client++) {
                    ids.add("10.0.0." + client + "@4711#" + client * 7919);
                }
                for (AllocateMessageQueueStrategy strategy : strategies) {
                    for (String id : ids) {
                        StringBuilder line = new StringBuilder();
                        for (MessageQueue each : strategy.allocate("group", id, all, ids)) {
                            line.append(' ').append(each.getBrokerName()).append(':').append(each.getQueueId());
                        }
                        System.out.println("share " + strategy.getName() + ' ' + queues + ' ' + clients + ' ' + id + line);
                    }
                }
            }
        }
    }
}
