import java.lang.management.ManagementFactory;
import java.lang.reflect.Field;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.example.benchmark.Consumer;

/**
 * Has Apache's own benchmark Consumer consume a topic with a new group: NAMESRV WARM_UP_TOPIC TOPIC GROUP.
 *
 * It prints its averages every ten seconds only, when a million messages are long consumed. So this looks
 * every millisecond how far it is: rate and CPU are of what came between the first look and the last message.
 */
public class ConsumeAll {
    public static void main(String[] args) throws Exception {
        consume(args[0], args[1], args[3] + "-warm-up");
        System.out.println("rate and CPU: " + consume(args[0], args[2], args[3]));
        System.exit(0);
    }

    static String consume(String namesrv, String topic, String group) throws Exception {
        Consumer.main(new String[] {"-n", namesrv, "-t", topic, "-g", group, "-p", "false"});
        DefaultMQPushConsumerImpl consumer = consumer(group);
        Set<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(topic);
        long all = 0;
        for (MessageQueue queue : queues) all += consumer.maxOffset(queue);
        long first = waitFor(1, consumer, queues), cpu = cpuNanos(), began = System.nanoTime();
        long last = waitFor(all, consumer, queues);
        double took = (System.nanoTime() - began) / 1e9;
        cpu = cpuNanos() - cpu;
        consumer.shutdown();
        return (last - first) / took + " " + cpu / 1e3 / (last - first);
    }

    static long waitFor(long count, DefaultMQPushConsumerImpl consumer, Set<MessageQueue> queues) throws Exception {
        while (true) {
            long consumed = 0;
            for (MessageQueue queue : queues)
                consumed += Math.max(0, consumer.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_MEMORY));
            if (consumed >= count) return consumed;
            Thread.sleep(1);
        }
    }

    /** The benchmark keeps it to itself. */
    static DefaultMQPushConsumerImpl consumer(String group) throws Exception {
        Field clients = MQClientManager.class.getDeclaredField("factoryTable");
        clients.setAccessible(true);
        for (Object client : ((Map<?, ?>) clients.get(MQClientManager.getInstance())).values()) {
            Object consumer = ((MQClientInstance) client).selectConsumer(group);
            if (consumer != null) return (DefaultMQPushConsumerImpl) consumer;
        }
        throw new IllegalStateException("no consumer of group " + group);
    }

    static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
