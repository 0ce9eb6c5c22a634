import java.lang.management.ManagementFactory;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.namesrv.GetRouteInfoRequestHeader;

/** Asks a NameServer for a route with Java's own remoting client: ADDRESS THREADS SECONDS, after as long a warm-up. */
public class RouteRequests {
    static NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());

    public static void main(String[] args) throws Exception {
        client.start();
        int threads = Integer.parseInt(args[1]);
        double seconds = Double.parseDouble(args[2]);
        round(args[0], threads, seconds);
        System.out.println("rate and CPU: " + round(args[0], threads, seconds));
        System.exit(0);
    }

    static String round(String address, int threads, double seconds) throws Exception {
        AtomicLong asked = new AtomicLong();
        CountDownLatch done = new CountDownLatch(threads);
        long cpu = cpuNanos(), began = System.nanoTime(), end = began + (long) (seconds * 1e9);
        for (int i = 0; i < threads; i++)
            new Thread(() -> {
                try {
                    for (; System.nanoTime() < end; asked.incrementAndGet()) ask(address);
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                }
                done.countDown();
            }).start();
        done.await();
        double took = (System.nanoTime() - began) / 1e9;
        return asked.get() / took + " " + (cpuNanos() - cpu) / 1e3 / asked.get();
    }

    static void ask(String address) throws Exception {
        GetRouteInfoRequestHeader header = new GetRouteInfoRequestHeader();
        header.setTopic("TBW102");
        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, header);
        RemotingCommand answer = client.invokeSync(address, request, 10000);
        if (answer.getCode() != 0 || answer.getBody() == null) throw new IllegalStateException(answer.toString());
    }

    static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
