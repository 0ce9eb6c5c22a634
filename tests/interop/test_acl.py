"""Brokers that check who asks: the right key sends, and every other is told why not."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rocketpipe import (
    AsyncAdmin,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    ClientSettings,
    Credentials,
    Message,
    MessageQueue,
    Retry,
    SendResult,
    StoredMessage,
)
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import BrokersFailed, InvalidSetting, NoRoute, NotFound, SendFailed
from rocketpipe.testing import EmbeddedCluster
from rocketpipe.wire.bodies.groups import LockBatchRequest
from rocketpipe.wire.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests import admin, clients, pop, reading, sending
from tests.apache import programs
from tests.apache.require import require
from tests.interop.acl_clusters import (
    ADMIN,
    DENIED,
    DISABLED,
    FAR,
    FORBIDDEN,
    GROUP,
    KINDS,
    NEAR,
    READER,
    STRANGER,
    TOPIC,
    WRITER,
    AclCluster,
    acl_cluster_of,
    write_acl_file,
)
from tests.interop.clusters import JAVA, TIMEOUT, Reader, until

_MARKS = {kind: [pytest.mark.slow, *[pytest.mark.apache] * (kind[0] != "e")] for kind in KINDS}


@pytest.fixture(
    scope="module", params=[pytest.param(kind, marks=marks) for kind, marks in _MARKS.items()]
)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AclCluster]:
    """A broker with the users and rules of acl_clusters."""
    with acl_cluster_of(request.param, tmp_path_factory.mktemp("acl")) as cluster:
        yield cluster


def send(cluster: AclCluster, credentials: Credentials | None, topic: str = TOPIC) -> SendResult:
    async def main() -> SendResult:
        async with AsyncProducer(
            "acl-producer", namesrv=cluster.namesrv, credentials=credentials, send_timeout=TIMEOUT
        ) as producer:
            return await producer.send(Message(topic, b"x" * 5000, properties={"名": "值"}))

    return asyncio.run(main())


def answer_to(
    cluster: AclCluster, credentials: Credentials | None, command: RemotingCommand
) -> RemotingCommand:
    async def main() -> RemotingCommand:
        async with Reader(cluster.namesrv, credentials=credentials) as reader:
            broker = await reader.at(cluster.broker)
            return await broker.invoke(command, timeout=TIMEOUT)

    return asyncio.run(main())


def refusal(
    cluster: AclCluster, credentials: Credentials | None, command: RemotingCommand
) -> str | None:
    """A broker's words, without the name of a Java exception and a place in Java's code."""
    answer = answer_to(cluster, credentials, command)
    remark = answer.remark or ""
    if cluster.generation == 2:
        return remark if answer.code == ResponseCode.NO_PERMISSION else None
    if "AclException" not in remark:
        return None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark.startswith("org.apache.rocketmq.acl.common.AclException: ")
    return remark.split(": ", 1)[1].partition(", org.apache.")[0]


@pytest.mark.parametrize("user", [WRITER, ADMIN, NEAR, DENIED], ids=lambda user: user.access_key)
def test_the_right_key_sends(cluster: AclCluster, user: Credentials) -> None:
    result = send(cluster, user)
    assert result.queue.topic == TOPIC
    assert len(result.attempts) == 1


def test_heartbeats_and_farewells_are_signed_too(cluster: AclCluster) -> None:
    async def main() -> None:
        async with Reader(cluster.namesrv, credentials=ADMIN) as reader:

            async def is_known(group: str) -> bool:
                broker = await reader.broker((await reader.queues(TOPIC))[0])
                request = admin.GetProducerConnectionList(producer_group=group).to_command()
                answer = await broker.invoke(request, timeout=TIMEOUT)
                return answer.code == ResponseCode.SUCCESS

            async def signed_is_known() -> bool | None:
                return await is_known("acl-signed") or None

            namesrv = cluster.namesrv
            async with (
                AsyncProducer("acl-signed", namesrv=namesrv, credentials=ADMIN) as signed,
                AsyncProducer("acl-unsigned", namesrv=namesrv) as unsigned,
            ):
                with pytest.raises(SendFailed):
                    await unsigned.send(Message(TOPIC, b"x"))
                await signed.send(Message(TOPIC, b"x"))
                await until(signed_is_known)
                assert not await is_known("acl-unsigned")  # its heartbeats, too, were refused
            assert not await is_known("acl-signed")

    asyncio.run(main())


def test_who_may_read_a_topic_in_a_group_consumes_what_was_sent(cluster: AclCluster) -> None:
    async def main() -> None:
        sent = b"for those who may read"
        async with (
            AsyncPullConsumer(
                GROUP,
                namesrv=cluster.namesrv,
                credentials=READER,
                consume_from="first",
                request_timeout=TIMEOUT,
            ) as consumer,
            AsyncProducer(
                "acl-producer",
                namesrv=cluster.namesrv,
                credentials=WRITER,
                send_timeout=TIMEOUT,
            ) as producer,
        ):
            await consumer.subscribe(TOPIC)
            await producer.send(Message(TOPIC, sent))

            async def found() -> bool | None:
                polled = await consumer.poll(timeout=1.0)
                return any(message.body == sent for message in polled) or None

            await until(found)

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["concurrent", "orderly", "pop"])
def test_what_its_listener_fails_on_comes_again_and_then_is_a_dead_letter(
    cluster: AclCluster, mode: str
) -> None:
    """With no other right than to read: locks, offsets, sending back and burying need no more."""
    if mode == "pop" and cluster.generation == 1:
        pytest.skip("brokers that have POP have ACL 2")
    lame, hopeless = f"fails once: {mode}".encode(), f"fails always: {mode}".encode()
    given: list[StoredMessage] = []

    async def listen(messages: list[StoredMessage]) -> Retry | None:
        (message,) = messages
        given.append(message)
        is_fresh = message.reconsume_times == 0
        if message.body == hopeless or (message.body == lame and is_fresh):
            return Retry(delay_level=1)
        return None

    async def main() -> None:
        async with (
            AsyncPushConsumer(
                GROUP,
                listen,
                subscriptions={TOPIC: "*"},
                namesrv=cluster.namesrv,
                credentials=READER,
                consume_from="first",
                max_reconsume_times=1,
                request_timeout=TIMEOUT,
                orderly=mode == "orderly",
                pop=mode == "pop",
            ),
            AsyncProducer("acl-producer", namesrv=cluster.namesrv, credentials=WRITER) as producer,
            AsyncPullConsumer("acl-auditors", namesrv=cluster.namesrv, credentials=ADMIN) as dead,
        ):
            for body in (lame, hopeless):
                await producer.send(Message(TOPIC, body), timeout=TIMEOUT)

            async def is_buried() -> bool | None:
                try:
                    queues = await dead.queues(f"%DLQ%{GROUP}")
                except NoRoute:
                    return None
                await dead.assign(queues)
                for queue in queues:
                    await dead.seek_to_begin(queue)
                found = await dead.poll(timeout=2.0)
                return any(message.body == hopeless for message in found) or None

            await until(is_buried)

            async def came_again() -> bool | None:
                return [each.body for each in given].count(lame) == 2 or None

            await until(came_again)
        assert [each.reconsume_times for each in given if each.body == hopeless] == [0, 1]
        # Closed in order, it has stored how far it was.
        async with AsyncAdmin(namesrv=cluster.namesrv, credentials=ADMIN) as admin:
            assert (await admin.progress(GROUP, topic=TOPIC)).lag == 0

    asyncio.run(main())


# By generation of ACL: a broker's own words, in the error.
REFUSALS: Mapping[str, tuple[Credentials | None, str, Mapping[int, str | None]]] = {
    "a wrong key": (
        Credentials(WRITER.access_key, "not-the-secret"),
        TOPIC,
        {
            2: "check signature failed.",
            1: "Check signature failed for accessKey=writer-user",
        },
    ),
    "an unknown user": (
        Credentials("nobody-here", "secret"),
        TOPIC,
        {2: "User:nobody-here is not found.", 1: "No acl config for nobody-here"},
    ),
    "no key": (None, TOPIC, {2: "username cannot be null.", 1: "No accessKey is configured"}),
    "a user who is disabled": (DISABLED, TOPIC, {2: "User:disabled-user is disabled.", 1: None}),
    "another's topic": (
        WRITER,
        FORBIDDEN,
        {
            2: "User:writer-user has no permission to access Topic:acl-closed from 127.0.0.1,"
            " no matched policies.",
            1: "No default permission for topic:acl-closed",
        },
    ),
    "another right": (
        READER,
        TOPIC,
        {
            2: "User:reader-user has no permission to access Topic:acl-open from 127.0.0.1,"
            " no matched policies.",
            1: "No default permission for topic:acl-open",
        },
    ),
    "another place": (
        FAR,
        TOPIC,
        {
            2: "User:far-user has no permission to access Topic:acl-open from 127.0.0.1,"
            " no matched policies.",
            1: "No default permission for topic:acl-open",
        },
    ),
    "a denial": (
        DENIED,
        FORBIDDEN,
        {
            2: "User:denied-user has no permission to access Topic:acl-closed from 127.0.0.1,"
            " the decision is deny.",
            1: "No default permission for topic:acl-closed",
        },
    ),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_a_refusal_fails_the_send_with_the_brokers_own_words(cluster: AclCluster, why: str) -> None:
    """Each of the attempts is refused: as in Java, another broker might know the user."""
    credentials, topic, words = REFUSALS[why]
    expected = words[cluster.generation]
    if expected is None:
        pytest.skip("ACL 1 has no such thing")
    with pytest.raises(SendFailed) as caught:
        send(cluster, credentials, topic)
    codes = {2: ResponseCode.NO_PERMISSION, 1: ResponseCode.SYSTEM_ERROR}
    assert caught.value.code == codes[cluster.generation]
    assert expected in str(caught.value)
    assert len(caught.value.attempts) == 3
    if credentials is not None:
        assert credentials.secret_key not in str(caught.value)
    assert refusal(cluster, credentials, a_send(topic)) == expected


def test_the_most_exact_of_the_rules_decides(cluster: AclCluster) -> None:
    assert send(cluster, DENIED, f"{FORBIDDEN}-not").queue.topic == f"{FORBIDDEN}-not"


def test_who_comes_from_a_white_address_needs_no_right_key(cluster: AclCluster) -> None:
    wrong = Credentials(NEAR.access_key, "not-the-secret")
    expected = None if cluster.generation == 1 else "check signature failed."
    assert refusal(cluster, wrong, a_send(FORBIDDEN)) == expected


def a_send(topic: str) -> RemotingCommand:
    header = sending.SendMessageV2(
        producer_group="acl-producer",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
    )
    return header.to_command(b"x")


def a_pull(kind: type[reading.PullMessage], group: str, topic: str) -> RemotingCommand:
    return kind(
        consumer_group=group,
        topic=topic,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=reading.PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    ).to_command()


def test_a_group_is_refused_to_who_may_only_read_the_topic(cluster: AclCluster) -> None:
    pull = a_pull(reading.PullMessage, "acl-others", TOPIC)
    words = {
        2: "User:reader-user has no permission to access Group:acl-others from 127.0.0.1,"
        " no matched policies.",
        1: "No default permission for group:acl-others",
    }
    assert refusal(cluster, READER, pull) == words[cluster.generation]
    assert refusal(cluster, READER, a_pull(reading.PullMessage, GROUP, TOPIC)) is None


def subscribing(group: str, topic: str) -> bytes:
    consumer = ConsumerData(
        group_name=group,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=(SubscriptionData(topic=topic, sub_string="*"),),
    )
    return HeartbeatData(client_id="acl-client", consumer_data_set=(consumer,)).encode()


PRODUCING = HeartbeatData(
    client_id="acl-client", producer_data_set=(ProducerData(group_name="acl-producer"),)
).encode()
QUEUES = LockBatchRequest(
    client_id="acl-client",
    consumer_group="acl-g",
    mq_set=frozenset({MessageQueue(TOPIC, "broker-a", 0)}),
).encode()
T, G = f"Topic:{TOPIC}", "Group:acl-g"
CLUSTER = "Cluster:DefaultCluster"

# What someone without any right may not do, and what of it is named first; None: whoever is known
# may do it. Under ACL 2, then under ACL 1.
MATRIX: Mapping[str, tuple[RemotingCommand, str | None, str | None]] = {
    "send": (a_send(TOPIC), T, f"topic:{TOPIC}"),
    "send to a retry topic": (a_send("%RETRY%acl-g"), G, "group:acl-producer"),
    "send a batch": (
        RemotingCommand(
            RequestCode.SEND_BATCH_MESSAGE, ext_fields=a_send(TOPIC).ext_fields, body=b""
        ),
        T,
        None,
    ),
    "heartbeat of a producer": (clients.HeartBeat().to_command(PRODUCING), None, None),
    "heartbeat of a consumer": (
        clients.HeartBeat().to_command(subscribing("acl-g", TOPIC)),
        G,
        "group:acl-g",
    ),
    "unregister a producer": (
        clients.UnregisterClient(client_id="acl", producer_group="acl-p").to_command(),
        None,
        None,
    ),
    "unregister a consumer": (
        clients.UnregisterClient(client_id="acl", consumer_group="acl-g").to_command(),
        G,
        "group:acl-g",
    ),
    "pull": (a_pull(reading.PullMessage, "acl-g", TOPIC), T, "group:acl-g"),
    "pull of a retry topic": (
        a_pull(reading.PullMessage, "acl-g", "%RETRY%acl-g"),
        G,
        "group:acl-g",
    ),
    "members": (
        clients.GetConsumerListByGroup(consumer_group="acl-g").to_command(),
        G,
        "group:acl-g",
    ),
    "an offset": (
        reading.QueryConsumerOffset(consumer_group="acl-g", topic=TOPIC, queue_id=0).to_command(),
        T,
        None,
    ),
    "lock": (clients.LockBatchMq().to_command(QUEUES), G, None),
    "unlock": (clients.UnlockBatchMq().to_command(QUEUES), G, None),
    "the end of a queue": (reading.GetMaxOffset(topic=TOPIC, queue_id=0).to_command(), T, None),
    "an offset by time": (
        reading.SearchOffsetByTimestamp(topic=TOPIC, queue_id=0, timestamp=0).to_command(),
        T,
        None,
    ),
    "statistics of a topic": (admin.GetTopicStatsInfo(topic=TOPIC).to_command(), T, None),
    "progress of a group": (
        admin.GetConsumeStats(consumer_group="acl-g", topic=TOPIC).to_command(),
        G,
        None,
    ),
    "who consumes": (admin.QueryTopicConsumeByWho(topic=TOPIC).to_command(), T, None),
    "consumers": (admin.GetConsumerConnectionList(consumer_group="acl-g").to_command(), G, None),
    "producers": (
        admin.GetProducerConnectionList(producer_group="acl-p").to_command(),
        CLUSTER,
        None,
    ),
    "delete a topic": (
        admin.DeleteTopicInBroker(topic="acl-absent").to_command(),
        "Topic:acl-absent",
        "Need admin permission for request code=215, but accessKey=stranger-user is not",
    ),
    "delete a group": (
        admin.DeleteSubscriptiongroup(group_name="acl-absent").to_command(),
        "Group:acl-absent",
        "Need admin permission for request code=207, but accessKey=stranger-user is not",
    ),
    "change settings": (
        admin.UpdateBrokerConfig().to_command(b"nothing=that is known"),
        None,
        "Need admin permission for request code=25, but accessKey=stranger-user is not",
    ),
    "settings": (admin.GetBrokerConfig().to_command(), None, None),
}
MATRIX_OF_5 = {
    "lite pull": (a_pull(reading.LitePullMessage, "acl-g", TOPIC), None),
    "configuration of a topic": (admin.GetTopicConfig(topic=TOPIC).to_command(), T),
    "configuration of a group": (admin.GetSubscriptiongroupConfig(group="acl-g").to_command(), G),
    "how long a pop is polled": (
        pop.PollingInfo(consumer_group="acl-g", topic=TOPIC, queue_id=0).to_command(),
        G,
    ),
}


@pytest.mark.parametrize("what", [*MATRIX, *MATRIX_OF_5])
def test_what_is_asked_decides_which_right_is_needed(cluster: AclCluster, what: str) -> None:
    command: Any
    if what in MATRIX:
        command, *needs = MATRIX[what]
        need = needs[0 if cluster.generation == 2 else 1]
    elif cluster.version == "4.9.4":
        pytest.skip("4.9.4 does not know this request")
    else:
        command, need = MATRIX_OF_5[what]
        need = need if cluster.generation == 2 else None
    words = refusal(cluster, STRANGER, RemotingCommand.decode(command.encode()[4:]))
    if need is None:
        assert words is None
    elif cluster.generation == 2:
        assert words == (
            f"User:stranger-user has no permission to access {need} from 127.0.0.1,"
            " no matched policies."
        )
    else:
        assert words == (need if need.startswith("Need") else f"No default permission for {need}")


def test_an_administrator_may_do_all_and_others_are_told_why_not(cluster: AclCluster) -> None:
    async def main() -> None:
        settings = ClientSettings(namesrv=cluster.namesrv, request_timeout=TIMEOUT)
        topic = "acl-administered"
        async with AsyncAdmin(settings, credentials=ADMIN) as admin:
            await admin.create_topic(topic, queues=1)
            async with AsyncProducer(
                "acl-admins", namesrv=cluster.namesrv, credentials=ADMIN, send_timeout=TIMEOUT
            ) as producer:
                result = await producer.send(Message(topic, b"x"))

            async def found() -> bytes | None:
                try:
                    return (await admin.message(result.message_id, topic=topic)).body
                except NotFound:
                    return None

            assert await until(found) == b"x"
            assert (await admin.topic_stats(topic)).message_count == 1
        async with AsyncAdmin(settings, credentials=WRITER) as admin:
            with pytest.raises(BrokersFailed, match=f"topic '{topic}' failed on 1 of 1"):
                await admin.delete_topic(topic)

    asyncio.run(main())


def test_javas_producers_get_the_same_answers(cluster: AclCluster) -> None:
    users = (WRITER, ADMIN, STRANGER, Credentials(WRITER.access_key, "not-the-secret"))
    require(cluster.version)
    finished = programs.java_program(
        cluster.version,
        JAVA / "SignedSends.java",
        [TOPIC, *(f"{user.access_key}:{user.secret_key}" for user in users)],
        namesrv=cluster.namesrv,
        timeout=120,
    )
    assert finished.exit_code == 0, finished.output
    lines = [line.split("\t", 1)[1] for line in finished.output.splitlines() if "-user\t" in line]
    assert lines[:2] == ["SEND_OK", "SEND_OK"]
    exception = "org.apache.rocketmq.acl.common.AclException"
    refused = {
        2: "16 User:stranger-user has no permission to access Topic:acl-open from 127.0.0.1,",
        1: f"1 {exception}: No default permission for topic:acl-open",
    }[cluster.generation]
    wrong = {
        2: "16 check signature failed.",
        1: f"1 {exception}: Check signature failed for accessKey=writer-user",
    }[cluster.generation]
    assert lines[2].startswith(refused)
    assert lines[3].startswith(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("generation", [1, 2])
def test_slaves_of_the_embedded_cluster_ask_their_master_as_a_user(
    tmp_path: Path, generation: int
) -> None:
    path = tmp_path / "acl.toml"
    write_acl_file(path, generation=generation)
    path.write_text(f'innerClient = "{ADMIN.access_key}"\n' + path.read_text())
    turned_on = {
        1: {"aclEnable": True},
        2: {"authenticationEnabled": True, "authorizationEnabled": True},
    }

    async def main(cluster: EmbeddedCluster) -> None:
        async with Reader(cluster.namesrv, credentials=ADMIN) as reader:
            await reader.create_topic("acl-copied", [cluster.broker("broker-a")])
            # A message in a topic that a slave does not know lets it ask at once.
            await reader.send_unchecked(cluster.broker("broker-a").address, "acl-copied")
            slave = await reader.at(cluster.broker("broker-a", 1).address)

            async def is_copied() -> bool | None:
                command = admin.GetTopicConfig(topic="acl-copied").to_command()
                answer = await slave.invoke(command, timeout=TIMEOUT)
                return answer.code == ResponseCode.SUCCESS or None

            await until(is_copied)

    with EmbeddedCluster(slaves=1, settings={**turned_on[generation], "aclFile": path}) as cluster:
        asyncio.run(main(cluster))


@pytest.mark.slow
def test_the_embedded_cluster_takes_new_rules_while_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "acl.toml"
    write_acl_file(path, generation=1)
    with EmbeddedCluster(settings={"aclEnable": True, "aclFile": path}) as cluster:
        served = AclCluster(cluster.namesrv, cluster.brokers[0].address, 1, cluster.version)
        assert refusal(served, STRANGER, a_send("acl-new")) is not None
        newcomer = Credentials("newcomer", "newcomers-secret")
        with path.open("a") as file:
            file.write(
                f'\n[[accounts]]\naccessKey = "{newcomer.access_key}"\n'
                f'secretKey = "{newcomer.secret_key}"\ndefaultTopicPerm = "PUB"\n'
            )

        async def is_known() -> bool | None:
            command = a_send("acl-new")
            why = await asyncio.to_thread(refusal, served, newcomer, command)
            return why is None or None

        asyncio.run(until(is_known))


@pytest.mark.slow
def test_an_embedded_broker_does_not_start_without_its_rules(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(settings={"aclEnable": True, "aclFile": tmp_path / "nothing"})
    with pytest.raises(InvalidSetting, match="nothing: No such file"):
        cluster.start()
