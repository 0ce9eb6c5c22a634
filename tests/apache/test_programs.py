"""Apache's own programs run against a cluster, and a test's own Java too."""

from pathlib import Path

import pytest

from tests.apache.cluster import ApacheCluster
from tests.apache.programs import JavaProgram, ProgramTimeout, java_program, mqadmin

_SENDER = """
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

public class Sender {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("sender-of-a-test");
        producer.setVipChannelEnabled(false);
        producer.start();
        System.out.println(producer.send(new Message(args[0], "hello".getBytes())).getSendStatus());
        producer.shutdown();
        System.exit(7);
    }
}
"""
_SLEEPER = """
public class Sleeper {
    public static void main(String[] args) throws Exception {
        System.out.println("asleep in " + System.getProperty("user.home"));
        Thread.sleep(60_000);
    }
}
"""


def test_mqadmin_lists_both_brokers(apache: ApacheCluster) -> None:
    finished = mqadmin(apache.version, apache.namesrv, "clusterList")
    assert finished.exit_code == 0
    for broker in apache.brokers:
        assert broker.name in finished.output
        assert broker.address in finished.output


def test_a_java_file_sends_with_apaches_client(apache: ApacheCluster, tmp_path: Path) -> None:
    source = tmp_path / "Sender.java"
    source.write_text(_SENDER)
    finished = java_program(apache.version, source, ["from-a-file"], namesrv=apache.namesrv)
    assert "SEND_OK" in finished.output
    assert finished.exit_code == 7


@pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)
def test_apaches_example_producer_sends_its_thousand_messages(apache: ApacheCluster) -> None:
    program = "org.apache.rocketmq.example.quickstart.Producer"
    finished = java_program(apache.version, program, namesrv=apache.namesrv)
    assert finished.exit_code == 0
    assert finished.output.count("sendStatus=SEND_OK") == 1000


def test_a_program_that_does_not_end_is_killed_and_its_output_kept(
    tmp_path: Path, apache_version: str
) -> None:
    source = tmp_path / "Sleeper.java"
    source.write_text(_SLEEPER)
    with JavaProgram(apache_version, source) as program:
        program.wait_for("asleep in")
        with pytest.raises(ProgramTimeout, match="asleep in") as caught:
            program.wait(timeout=0.1)
        home = Path(caught.value.output.split()[-1])
        assert home.exists()
    assert program._process.returncode == -9
    assert not home.exists()
