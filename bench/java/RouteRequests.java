import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.namesrv.GetRouteInfoRequestHeader;

/** Java's own remoting client: asks a server for routes with N threads, in rounds started from standard input. */
public class RouteRequests {
    public static void main(String[] args) throws Exception {
        String address = args[0];
        NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
        client.start();
        byte[] buffer = new byte[64];
        for (int length; (length = System.in.read(buffer)) > 0; ) {
            String[] words = new String(buffer, 0, length).trim().split(" ");
            round(client, address, Integer.parseInt(words[0]), Integer.parseInt(words[1]));
        }
        System.exit(0);
    }

    static void round(NettyRemotingClient client, String address, int threads, int requests) throws Exception {
        AtomicLong left = new AtomicLong(requests);
        CountDownLatch done = new CountDownLatch(threads);
        long cpu = cpuNanos(), began = System.nanoTime();
        for (int i = 0; i < threads; i++)
            new Thread(() -> {
                try {
                    while (left.getAndDecrement() > 0) {
                        GetRouteInfoRequestHeader header = new GetRouteInfoRequestHeader();
                        header.setTopic("TBW102");
                        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, header);
                        if (client.invokeSync(address, request, 10000).getCode() != 0) throw new IllegalStateException();
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                }
                done.countDown();
            }).start();
        done.await();
        double seconds = (System.nanoTime() - began) / 1e9;
        System.out.println(requests / seconds + " " + (cpuNanos() - cpu) / 1e9 / requests);
    }

    static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) java.lang.management.ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
