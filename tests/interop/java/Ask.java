import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.common.message.Message;

/** Sends a request to a topic, and prints the reply. */
public class Ask {
    public static void main(String[] args) {
        try {
            ask(args[0], args[1]);
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void ask(String topic, String question) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(topic + "-asks");
        producer.setMqClientApiTimeout(20000);
        producer.start();
        CompletableFuture<Message> reply = new CompletableFuture<>();
        byte[] body = question.getBytes(StandardCharsets.UTF_8);
        // The blocking call of 4.9.4 returns the request in place of its reply; and all callbacks are
        // called a first time, with nothing, when the request was sent.
        producer.request(new Message(topic, body), new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                if (message != null) {
                    reply.complete(message);
                }
            }

            @Override
            public void onException(Throwable error) {
                reply.completeExceptionally(error);
            }
        }, 20000);
        System.out.println("reply: " + new String(reply.get().getBody(), StandardCharsets.UTF_8));
        producer.shutdown();
    }
}
