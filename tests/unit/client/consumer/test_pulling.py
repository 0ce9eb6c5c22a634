"""One pull: where it goes, and what becomes of it when that does not answer."""

import asyncio
from typing import Any

import pytest

from rocketpipe.client.consumer.pulling import Puller, PullStatus
from rocketpipe.client.consumer.subscriptions import Sql92, subscription, wanted
from rocketpipe.client.instance import ClientInstance
from rocketpipe.client.settings import ClientSettings
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import BrokerError, ConnectionLost, InvalidSetting, NoRoute
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Outcome, Refusal
from rocketpipe.wire.bodies.route import BrokerData, Perm, QueueData, TopicRouteData
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.reading import PullMessage, PullMessageReply
from tests.simulated_cluster import BROKER_PORT, FakeBroker, SimulatedCluster, simulated
from tests.stored_message import stored_message

QUEUE = MessageQueue("orders", "broker-a", 0)
ALL = subscription("orders", "*", version=7)


class Answers:
    """What a fake broker answers to pulls, and what it was asked."""

    def __init__(self, broker: FakeBroker) -> None:
        self.suggests = 0
        self.refusal: Refusal | None = None
        self.hangs_up = False
        self.asked: list[PullMessage] = []
        broker.handlers[RequestCode.PULL_MESSAGE] = self._pull

    def _pull(self, connection: Connection, request: RemotingCommand) -> Outcome:
        self.asked.append(PullMessage.from_ext_fields(request.ext_fields))
        if self.refusal is not None:
            raise self.refusal
        if self.hangs_up:
            connection.abort()
            return None
        reply = PullMessageReply(
            suggest_which_broker_id=self.suggests, next_begin_offset=5, min_offset=1, max_offset=9
        )
        fields = reply.to_ext_fields()
        return request.answer(ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", fields)


def with_slave(cluster: SimulatedCluster) -> None:
    """Let broker-b be the slave of broker-a."""
    cluster.routes["orders"] = TopicRouteData(
        broker_datas=(
            BrokerData(
                cluster="c",
                broker_name="broker-a",
                broker_addrs={0: f"broker-a:{BROKER_PORT}", 1: f"broker-b:{BROKER_PORT}"},
            ),
        ),
        queue_datas=(
            QueueData(
                broker_name="broker-a",
                read_queue_nums=1,
                write_queue_nums=1,
                perm=Perm.READ | Perm.WRITE,
            ),
        ),
    )


async def puller(cluster: SimulatedCluster) -> tuple[ClientInstance, Puller]:
    settings = ClientSettings(namesrv=cluster.namesrv)
    instance = ClientInstance.join(settings, cluster.environment)
    return instance, Puller(instance, "group", timeout=30.0)


@simulated(brokers=2)
async def test_a_pull_goes_where_the_broker_suggested(cluster: SimulatedCluster) -> None:
    with_slave(cluster)
    master, slave = map(Answers, cluster.brokers)
    master.suggests = 1
    instance, pulls = await puller(cluster)
    for _ in range(2):
        pulled = await pulls.pull(QUEUE, 5, ALL, messages_max=32)
        assert pulled.status is PullStatus.NO_NEW
        assert (pulled.next_offset, pulled.min_offset, pulled.max_offset) == (5, 1, 9)
    assert (len(master.asked), len(slave.asked)) == (1, 1)  # and the slave suggested the master
    slave.hangs_up = True
    await pulls.pull(QUEUE, 5, ALL, messages_max=32)
    with pytest.raises(ConnectionLost):
        await pulls.pull(QUEUE, 5, ALL, messages_max=32)
    master.suggests = 0
    await pulls.pull(QUEUE, 5, ALL, messages_max=32)  # the master again
    assert (len(master.asked), len(slave.asked)) == (3, 2)
    await instance.leave()


@simulated()
async def test_what_a_pull_asks_for(cluster: SimulatedCluster) -> None:
    cluster.add_topic("orders")
    answers = Answers(cluster.brokers[0])
    instance, pulls = await puller(cluster)
    tags = subscription("orders", "a || b", version=7)
    await pulls.pull(QUEUE, 5, tags, messages_max=9, suspend=15.0)
    await pulls.pull(QUEUE, 5, tags, messages_max=9, suspend=15.0, is_member=True)
    await pulls.pull(QUEUE, 5, ALL, messages_max=9)
    alone, member, at_once = answers.asked
    assert (alone.sys_flag, member.sys_flag, at_once.sys_flag) == (2 | 4, 2, 4)
    assert (alone.subscription, member.subscription) == ("a || b", None)
    assert (alone.suspend_timeout_millis, at_once.suspend_timeout_millis) == (15_000, 0)
    assert (alone.queue_offset, alone.max_msg_nums, alone.sub_version) == (5, 9, 7)
    assert alone.consumer_group == "group"
    await instance.leave()


@simulated()
async def test_a_broker_that_goes_away_gets_a_new_connection(cluster: SimulatedCluster) -> None:
    (broker,) = cluster.brokers
    cluster.add_topic("orders")
    answers = Answers(broker)
    instance, pulls = await puller(cluster)
    answers.refusal = Refusal(ResponseCode.GO_AWAY, "going")
    with pytest.raises(BrokerError, match="going"):
        await pulls.pull(QUEUE, 5, ALL, messages_max=32)
    answers.refusal = None
    await pulls.pull(QUEUE, 5, ALL, messages_max=32)
    assert len(cluster.dials(broker.address)) == 2
    with pytest.raises(NoRoute, match="there is no broker 'broker-x'"):
        await pulls.pull(MessageQueue("orders", "broker-x", 0), 5, ALL, messages_max=32)
    await asyncio.sleep(5)
    await instance.leave()


def test_subscriptions() -> None:
    messages = [
        stored_message(properties={"TAGS": tags} if tags else {}) for tags in ("a", "b", "")
    ]
    assert wanted(ALL, messages) == messages
    assert wanted(subscription("orders", "b || c", version=1), messages) == messages[1:2]
    assert wanted(subscription("orders", Sql92("a > 1"), version=1), messages) == messages
    wrong: Any = 5
    with pytest.raises(InvalidSetting):
        Sql92(wrong)
    with pytest.raises(InvalidSetting, match="is no filter"):
        subscription("orders", wrong, version=1)
    with pytest.raises(InvalidSetting, match="says nothing"):
        Sql92("  ")


@pytest.mark.parametrize("topic", ["", "a b", "é", "x" * 256, 5, None])
def test_a_topic_that_none_can_have_is_refused(topic: Any) -> None:
    with pytest.raises(InvalidSetting, match="topic"):
        subscription(topic, "*", version=1)


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "%DLQ%" + "g" * 200])
def test_topics_to_which_only_brokers_write_can_be_read(topic: str) -> None:
    assert subscription(topic, "*", version=1).topic == topic
