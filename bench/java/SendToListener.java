import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * From the call of send to that of the listener, in one process: NAMESRV TOPIC GROUP RATE SECONDS WARM_UP_SECONDS.
 *
 * The twin of latency.py. A body holds the message's number and the time, by the clock of this process.
 */
public class SendToListener {
    static final int BODY_BYTES = 200;

    public static void main(String[] args) throws Exception {
        int rate = Integer.parseInt(args[3]);
        int warmUp = (int) (rate * Double.parseDouble(args[5])), all = warmUp + (int) (rate * Double.parseDouble(args[4]));
        AtomicLongArray latencies = new AtomicLongArray(all);
        CountDownLatch missing = new CountDownLatch(all), ready = new CountDownLatch(1);

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[2]);
        consumer.setNamesrvAddr(args[0]);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long now = System.nanoTime();
            ByteBuffer body = ByteBuffer.wrap(messages.get(0).getBody());
            int number = body.getInt();
            if (number < 0) ready.countDown();
            else if (latencies.compareAndSet(number, 0, now - body.getLong())) missing.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer(args[2]);
        producer.setNamesrvAddr(args[0]);
        producer.start();
        while (ready.getCount() > 0) {
            producer.send(new Message(args[1], body(-1)), 30000);
            Thread.sleep(200);
        }

        long began = System.nanoTime();
        Random dice = new Random(1); // as the sends of the twin, out of step with the broker
        for (int number = 0; number < all; number++) {
            long due = began + (long) ((number + dice.nextDouble()) * 1e9 / rate);
            long pause = due - System.nanoTime();
            if (pause > 0) Thread.sleep(pause / 1_000_000, (int) (pause % 1_000_000));
            producer.send(new Message(args[1], body(number)));
        }
        missing.await();
        long[] sorted = new long[all - warmUp];
        for (int i = 0; i < sorted.length; i++) sorted[i] = latencies.get(warmUp + i);
        Arrays.sort(sorted);
        double p50 = sorted[sorted.length / 2] / 1e3, p99 = sorted[sorted.length * 99 / 100] / 1e3;
        System.out.println("p50 and p99: " + p50 + " " + p99);
        System.exit(0);
    }

    static byte[] body(int number) {
        return ByteBuffer.allocate(BODY_BYTES).putInt(number).putLong(System.nanoTime()).array();
    }
}
