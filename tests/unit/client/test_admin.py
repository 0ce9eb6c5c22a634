"""The administrator's client where things go wrong: brokers down, names wrong, NameServers gone."""

import pickle
from collections.abc import Coroutine
from typing import Any

import pytest

from rocketpipe.client.admin.values import BrokerRuntime, GroupProgress, QueueProgress
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import (
    BrokerError,
    BrokersFailed,
    ClientError,
    ConnectFailed,
    IllegalState,
    InvalidMessage,
    InvalidSetting,
    MQError,
    NoNameServer,
    NoRoute,
    NotFound,
)
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Outcome, Refusal
from rocketpipe.wire.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpipe.wire.bodies.offsets import TopicOffset, TopicStatsTable
from rocketpipe.wire.bodies.route import KVTable
from rocketpipe.wire.frame import RemotingCommand
from tests.simulated_cluster import SimulatedCluster, simulated


def refusing(code: ResponseCode, remark: str) -> Handler:
    def refuse(connection: Connection, request: RemotingCommand) -> Outcome:
        raise Refusal(code, remark)

    return refuse


def answering(body: bytes) -> Handler:
    return lambda connection, request: request.answer(ResponseCode.SUCCESS, body=body)


NO_TOPIC = refusing(ResponseCode.TOPIC_NOT_EXIST, "No topic in this broker.")
GROUPS = SubscriptionGroupWrapper(
    subscription_group_table={"readers": SubscriptionGroupConfig(group_name="readers")}
).encode()


def runtime(version: str) -> Handler:
    return answering(KVTable(table={"brokerVersionDesc": version}).encode())


async def error_of(work: Coroutine[Any, Any, object]) -> MQError:
    with pytest.raises(MQError) as raised:
        await work
    return raised.value


@simulated(brokers=2)
async def test_when_half_of_the_brokers_are_down_the_error_names_both_halves(
    cluster: SimulatedCluster,
) -> None:
    cluster.add_topic("orders")
    table = {MessageQueue("orders", "broker-b", 0): TopicOffset(min_offset=0, max_offset=3)}
    for broker in cluster.brokers:
        stats = answering(TopicStatsTable(offset_table=table).encode())
        broker.handlers[RequestCode.GET_TOPIC_STATS_INFO] = stats
    await cluster.crash(cluster.broker("broker-a"))
    async with cluster.admin() as admin:
        error = await error_of(admin.topic_stats("orders"))
        assert isinstance(error, BrokersFailed)
        ((name, failure),) = error.failures
        assert (name, error.done) == ("broker-a", ("broker-b",))
        assert isinstance(failure, ConnectFailed)
        text = str(error)
        assert text.startswith("ask what topic 'orders' holds failed on 1 of 2: broker-a: cannot")
        assert text.endswith("(done by broker-b)")
        assert str(pickle.loads(pickle.dumps(error))) == text
        # What does not need the dead one goes on.
        assert await admin.max_offset(MessageQueue("orders", "broker-b", 0)) == 0
        assert isinstance(
            await error_of(admin.max_offset(MessageQueue("orders", "broker-a", 0))), ConnectFailed
        )


@simulated(brokers=2)
async def test_a_refusal_says_what_where_which_code_and_remark(cluster: SimulatedCluster) -> None:
    for broker in cluster.brokers:
        broker.handlers[RequestCode.GET_TOPIC_CONFIG] = NO_TOPIC
        broker.handlers[RequestCode.UPDATE_AND_CREATE_TOPIC] = refusing(
            ResponseCode.NO_PERMISSION, "not you"
        )
    kv = cluster.name_servers[0].handlers
    kv[RequestCode.GET_KV_CONFIG] = refusing(ResponseCode.QUERY_NOT_FOUND, "none")
    async with cluster.admin() as admin:
        error = await error_of(admin.create_topic("orders"))
        assert isinstance(error, BrokersFailed)
        assert str(error) == (
            "create topic 'orders' failed on 2 of 2: "
            "broker-a: broker-a:10911 answered NO_PERMISSION: not you; "
            "broker-b: broker-b:10911 answered NO_PERMISSION: not you"
        )
        failure = error.failures[0][1]
        assert isinstance(failure, BrokerError)
        assert failure.code == ResponseCode.NO_PERMISSION
        assert str(failure) == (
            "create topic 'orders': broker-a:10911 answered NO_PERMISSION: not you"
        )


@simulated()
async def test_a_topic_is_made_only_once_and_waited_for(cluster: SimulatedCluster) -> None:
    broker = cluster.broker("broker-a")
    broker.handlers[RequestCode.GET_TOPIC_CONFIG] = NO_TOPIC
    kv = cluster.name_servers[0].handlers
    kv[RequestCode.GET_KV_CONFIG] = refusing(ResponseCode.QUERY_NOT_FOUND, "none")
    async with cluster.admin() as admin:
        error = await error_of(admin.create_topic("orders"))
        assert isinstance(error, NoRoute)
        assert "does not know yet" in str(error)
        assert broker.others[RequestCode.UPDATE_AND_CREATE_TOPIC] == 1
        cluster.add_topic("orders", queues=8)
        await admin.create_topic("orders")
        del broker.handlers[RequestCode.GET_TOPIC_CONFIG]
        broker.handlers[RequestCode.GET_TOPIC_CONFIG] = answering(b'{"topicName":"orders"}')
        assert "is on broker-a already" in str(await error_of(admin.create_topic("orders")))
        await admin.create_topic("orders", exist_ok=True)
        assert broker.others[RequestCode.UPDATE_AND_CREATE_TOPIC] == 2


@simulated()
async def test_what_a_broker_is_too_old_for_is_refused_before_anything_changes(
    cluster: SimulatedCluster,
) -> None:
    cluster.add_topic("orders")
    broker = cluster.broker("broker-a")
    broker.handlers |= {
        RequestCode.GET_TOPIC_CONFIG: NO_TOPIC,
        RequestCode.GET_BROKER_RUNTIME_INFO: runtime("V4_9_4"),
    }
    queue = MessageQueue("orders", "broker-a", 0)
    async with cluster.admin() as admin:
        error = await error_of(admin.create_topic("orders", message_type="FIFO"))
        assert "broker of 4.9.4: topics have no attributes there" in str(error)
        error = await error_of(admin.search_offset(queue, 1, boundary="upper"))
        assert "broker of 4.9.4: it knows no upper boundary" in str(error)
        assert await admin.search_offset(queue, 1) == 0
        assert not broker.others[RequestCode.UPDATE_AND_CREATE_TOPIC]


@simulated()
async def test_what_does_not_exist_is_named(cluster: SimulatedCluster) -> None:
    cluster.add_topic("orders")
    broker = cluster.broker("broker-a")
    broker.handlers[RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] = answering(GROUPS)
    async with cluster.admin() as admin:
        for work, kind, text in (
            (admin.route("nothing"), NoRoute, "'nothing'"),
            (admin.min_offset(MessageQueue("nothing", "broker-a", 0)), NoRoute, "'nothing'"),
            (admin.min_offset(MessageQueue("orders", "broker-x", 0)), NoRoute, "'broker-x'"),
            (admin.delete_topic("nothing"), NoRoute, "'nothing'"),
            (admin.brokers(cluster="c"), NotFound, "knows cluster DefaultCluster"),
            (admin.topics(cluster="c"), NotFound, "there is no cluster 'c'"),
            (admin.broker_runtime("broker-x"), NotFound, "knows broker broker-a"),
            (admin.wipe_write_permission("broker-x"), NotFound, "no broker 'broker-x'"),
            (admin.create_topic("t", brokers=["broker-x"]), NotFound, "no broker 'broker-x'"),
            (admin.create_topic("a b"), InvalidMessage, "letters"),
            (admin.create_topic("t", brokers="broker-a"), ClientError, "a list of names"),
            (admin.create_group("a b"), InvalidSetting, "letters"),
            (admin.delete_group("nobody"), NotFound, "group 'nobody'"),
            (admin.reset_offsets("nobody", "orders", 0), NotFound, "group 'nobody'"),
            (admin.reset_offsets("readers", "nothing", 0), NoRoute, "'nothing'"),
            (admin.message("0" * 32), NotFound, "say which topic"),
            (admin.query("orders", "k", limit=0), ClientError, "from 1"),
        ):
            error = await error_of(work)
            assert isinstance(error, kind), error
            assert text in str(error)


@simulated(name_servers=2)
async def test_a_change_of_nameservers_is_told_to_all_of_them(cluster: SimulatedCluster) -> None:
    told: list[str] = []
    for server in cluster.name_servers:

        def put(_: Connection, request: RemotingCommand, name: str = server.name) -> Outcome:
            told.append(name)
            return request.answer(ResponseCode.SUCCESS)

        server.handlers[RequestCode.PUT_KV_CONFIG] = put
    async with cluster.admin() as admin:
        await admin.put_kv("ns", "key", "value")
        assert sorted(told) == ["namesrv-0", "namesrv-1"]
        await cluster.crash(cluster.name_servers[1])
        error = await error_of(admin.put_kv("ns", "key", "value"))
        assert isinstance(error, BrokersFailed)
        assert error.done == ("namesrv-0:9876",)
        # Reading needs only one of them.
        assert [broker.name for broker in await admin.brokers()] == ["broker-a"]


@simulated()
async def test_without_a_nameserver_the_error_says_what_was_asked_for(
    cluster: SimulatedCluster,
) -> None:
    await cluster.crash(cluster.name_servers[0])
    async with cluster.admin() as admin:
        for work in (admin.brokers(), admin.topics(), admin.groups(), admin.route("orders")):
            error = await error_of(work)
            assert isinstance(error, NoNameServer)
            assert "namesrv-0:9876" in str(error)
        assert "asked for the brokers" in str(await error_of(admin.brokers()))


@simulated()
async def test_it_has_a_life_like_any_client(cluster: SimulatedCluster) -> None:
    with pytest.raises(InvalidSetting, match="no setting colour"):
        cluster.admin(colour="red")
    admin = cluster.admin()
    with pytest.raises(IllegalState, match="start it first"):
        await admin.topics()
    async with admin:
        await admin.brokers()
    await admin.close()
    with pytest.raises(IllegalState, match="make a new one"):
        await admin.topics()


def test_lag_is_never_more_than_what_there_is() -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    progress = GroupProgress("g", {queue: QueueProgress(5, -1, None)}, 0.0)
    assert progress.lag == 5  # -1: it never consumed anything
    assert GroupProgress("g", {}, 0.0).lag == 0


@pytest.mark.parametrize(
    ("text", "version", "release"),
    [
        ("V5_5_0", "5.5.0", (5, 5, 0)),
        ("V5_1_0_SNAPSHOT", "5.1.0.SNAPSHOT", (5, 1, 0)),
        ("", "", ()),
    ],
)
def test_releases_are_compared_by_their_numbers(
    text: str, version: str, release: tuple[int, ...]
) -> None:
    told = BrokerRuntime(
        {"brokerVersionDesc": text, "putTps": "1.5 2.0 ", "getTransferredTps": " "}
    )
    assert (told.version, told.release) == (version, release)
    assert (told.put_tps, told.get_tps, told.earliest_message_ms) == (1.5, 0.0, None)
