"""The same requests to a real broker and to ours: what reading and administration answer.

Each scenario is a sequence of requests that notes what came of them. What must differ, like ids,
times and addresses, is masked; all the rest has to be equal.
"""

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.clock import SystemClock
from rocketpipe.codes import RequestCode
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.wire.bodies import groups as bodies
from rocketpipe.wire.bodies.heartbeat import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rocketpipe.wire.fastjson import loads
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.headers import Request
from rocketpipe.wire.message_id import parse_offset_message_id
from rocketpipe.wire.properties import encode_properties
from rocketpipe.wire.record import decode_records
from rocketpipe.wire.requests.admin import (
    CloneGroupOffset,
    DeleteSubscriptiongroup,
    DeleteTopicInBroker,
    GetAllProducerInfo,
    GetConsumerConnectionList,
    GetConsumeStats,
    GetProducerConnectionList,
    GetSubscriptiongroupConfig,
    GetTopicConfig,
    GetTopicStatsInfo,
    InvokeBrokerToGetConsumerStatus,
    InvokeBrokerToResetOffset,
    QueryConsumeQueue,
    QueryConsumeTimeSpan,
    QueryTopicConsumeByWho,
    UpdateAndCreateSubscriptiongroup,
    UpdateAndCreateTopic,
)
from rocketpipe.wire.requests.callbacks import ConsumeMessageDirectly, GetConsumerRunningInfo
from rocketpipe.wire.requests.clients import (
    CheckClientConfig,
    GetConsumerListByGroup,
    HeartBeat,
    LockBatchMq,
    UnlockBatchMq,
    UnregisterClient,
)
from rocketpipe.wire.requests.reading import (
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    GetEarliestMsgStoretime,
    GetMaxOffset,
    GetMinOffset,
    LitePullMessage,
    PullMessage,
    QueryConsumerOffset,
    QueryMessage,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
    ViewMessageById,
)
from rocketpipe.wire.requests.sending import SendMessageV2
from tests.apache.cluster import ApacheCluster

TIMEOUT = 30.0
_numbers = itertools.count()
_now_ms = SystemClock().wall_ms


class Notes:
    """What came of the requests to one broker, without what must differ."""

    def __init__(self, address: Address, stack: AsyncExitStack) -> None:
        self.lines: list[object] = []
        self.asked: list[RemotingCommand] = []  # what the broker asked of us
        self.answers: Callable[[RemotingCommand], RemotingCommand | None] = lambda _: None
        self._address = address
        self._stack = stack
        self.connection: Connection

    async def connect(self) -> Connection:
        def take(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            self.asked.append(request)
            return self.answers(request)

        connection = await connect(AsyncioNetwork(), self._address, timeout=TIMEOUT, handler=take)
        self._stack.push_async_callback(connection.close)
        return connection

    async def ask(
        self,
        request: Request[Any],
        body: bytes = b"",
        *,
        of: Connection | None = None,
        with_remark: bool = True,
        with_body: bool = True,
    ) -> RemotingCommand:
        connection = of or self.connection
        answer = await connection.invoke(request.to_command(body), timeout=TIMEOUT)
        remark = masked_text(answer.remark) if with_remark and answer.remark else None
        line = (type(request).__name__, answer.code, remark, masked(answer.ext_fields))
        self.lines.append((*line, readable(answer.body) if with_body else None))
        return answer

    async def send(self, topic: str, body: bytes = b"x", **properties: str) -> RemotingCommand:
        queue_id = int(properties.pop("queue", "0"))
        header = SendMessageV2(
            producer_group="comparison",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=_now_ms(),
            flag=0,
            properties=encode_properties(properties),
        )
        answer = await self.connection.invoke(header.to_command(body), timeout=TIMEOUT)
        assert answer.code == 0, answer.remark
        # Apache's broker answers before the message can be read.
        end = GetMaxOffset(topic=topic, queue_id=queue_id)
        async with asyncio.timeout(TIMEOUT):
            while True:
                reached = await self.connection.request(end, timeout=TIMEOUT)
                if reached.offset > int(answer.ext_fields["queueOffset"]):
                    return answer
                await asyncio.sleep(0.01)


def readable(body: bytes) -> object:
    """A body without what must differ: JSON, or messages."""
    if not body:
        return None
    if body[:1] in b"{[":
        return masked(loads(body))
    return [
        (
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.body,
            message.sys_flag,
            masked({k: v for k, v in message.properties.items() if k != "UNIQ_KEY"}),
        )
        for message in decode_records(body, decompressing=False)
    ]


# Addresses, places, and rates that depend on the moment.
_ANY = {
    *("clientAddr", "remoteIP", "physicOffset", "physicSize", "topicPutTps", "consumeTps"),
    *("indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"),
}
# Of times, only whether there is one.
_TIMES = {
    *("lastUpdateTimestamp", "lastTimestamp", "consumeTimeStamp", "minTimeStamp", "maxTimeStamp"),
    *("delayTime", "timestamp"),
}


def masked(value: object) -> object:
    if isinstance(value, dict):
        return {
            masked_key(key): masked_value(key, each)
            for key, each in value.items()
            if not str(key).endswith("TimeStampStr")  # for people, and read by nobody
        }
    if isinstance(value, list):
        return sorted(map(masked, value), key=repr)
    return value


def masked_value(key: object, value: object) -> object:
    if key in _ANY or (key in _TIMES and value not in (0, -1, "-1")):
        return "any"
    return masked(value)


def masked_key(key: object) -> object:
    return tuple(sorted(key)) if isinstance(key, frozenset) else key


def masked_text(text: str | None) -> str | None:
    return None if text is None else re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)


Scenario = Callable[[Notes, str], Awaitable[None]]
SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    SCENARIOS.append(function)
    return function


def pull(topic: str, group: str = "", **changes: Any) -> PullMessage:
    kind = changes.pop("kind", PullMessage)
    fields: dict[str, Any] = {
        "consumer_group": group or f"{topic}-group",
        "topic": topic,
        "queue_id": 0,
        "queue_offset": 0,
        "max_msg_nums": 32,
        "sys_flag": PULL_SUBSCRIPTION,
        "commit_offset": 0,
        "suspend_timeout_millis": 0,
        "subscription": "*",
        "sub_version": 0,
    }
    made = kind(**(fields | changes))
    assert isinstance(made, PullMessage)
    return made


def beat(
    group: str,
    *topics: str,
    client_id: str = "comparison@1",
    expression: str = "*",
    version: int = 1,
    model: MessageModel = MessageModel.CLUSTERING,
) -> bytes:
    consumer = ConsumerData(
        group_name=group,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=model,
        subscription_data_set=tuple(
            SubscriptionData.of_tags(topic, expression, sub_version=version) for topic in topics
        ),
    )
    return HeartbeatData(client_id=client_id, consumer_data_set=(consumer,)).encode()


def new_topic(topic: str, **changes: Any) -> UpdateAndCreateTopic:
    fields: dict[str, Any] = {
        "topic": topic,
        "default_topic": "TBW102",
        "read_queue_nums": 4,
        "write_queue_nums": 4,
        "perm": 6,
        "topic_filter_type": "SINGLE_TAG",
        "topic_sys_flag": 0,
        "order": False,
    }
    return UpdateAndCreateTopic(**(fields | changes))


@scenario
async def pulls(notes: Notes, topic: str) -> None:
    await notes.ask(new_topic(topic))
    await notes.ask(pull(topic))
    await notes.ask(pull(topic, queue_offset=5))
    for number in range(40):
        await notes.send(topic, b"%d" % number, TAGS="even" if number % 2 == 0 else "odd")
    await notes.ask(pull(topic, max_msg_nums=3))
    await notes.ask(pull(topic, max_msg_nums=100))
    await notes.ask(pull(topic, max_msg_nums=0, queue_offset=7))
    await notes.ask(pull(topic, queue_offset=38, kind=LitePullMessage))
    await notes.ask(pull(topic, subscription="odd"))  # to the end: see below
    await notes.ask(pull(topic, subscription=" odd || even ", max_msg_nums=4))
    await notes.ask(pull(topic, subscription="absent"))
    await notes.ask(pull(topic, subscription=None, max_msg_nums=1))
    for offset in (40, 41, 1000, -1):
        await notes.ask(pull(topic, queue_offset=offset))
    await notes.ask(pull(topic, queue_id=1))
    await notes.ask(pull(topic, queue_id=1, queue_offset=1))
    await notes.ask(pull(topic, sys_flag=PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET, commit_offset=9))
    query = QueryConsumerOffset(consumer_group=f"{topic}-group", topic=topic, queue_id=0)
    await notes.ask(query)
    await notes.ask(GetConsumeStats(consumer_group=f"{topic}-group"))


@scenario
async def large_messages(notes: Notes, topic: str) -> None:
    for size in (100_000, 100_000, 100_000, 300_000, 10):
        await notes.send(topic, bytes(size))
    for offset in range(5):
        answer = await notes.connection.invoke(
            pull(topic, queue_offset=offset).to_command(), timeout=TIMEOUT
        )
        count = len(decode_records(answer.body, decompressing=False))
        notes.lines.append((answer.code, count, answer.ext_fields["nextBeginOffset"]))


@scenario
async def refused_pulls(notes: Notes, topic: str) -> None:
    group = f"{topic}-group"
    await notes.ask(new_topic(topic))
    await notes.send(topic)
    changes: list[dict[str, Any]] = [
        {"topic": f"{topic}-absent"},
        {"queue_id": -1},
        {"queue_id": 4},
        {"consumer_group": "no good"},
        {"consumer_group": "x" * 121},
        {"subscription": "||"},
        {"expression_type": "TAG"},
        {"sys_flag": 0},
    ]
    for change in changes:
        await notes.ask(pull(**{"topic": topic, **change}))
    await notes.ask(HeartBeat(), beat(group, f"{topic}-other", version=7))
    await notes.ask(pull(topic, sys_flag=0, sub_version=7))
    await notes.ask(HeartBeat(), beat(group, topic, version=7))
    await notes.ask(pull(topic, sys_flag=0, sub_version=8))
    await notes.ask(pull(topic, sys_flag=0, sub_version=7))
    await notes.ask(HeartBeat(), beat(group, topic, version=8, model=MessageModel.BROADCASTING))
    config = bodies.SubscriptionGroupConfig(group_name=group)
    for changed in (
        replace(config, consume_broadcast_enable=False),
        replace(config, consume_enable=False),
    ):
        await notes.ask(UpdateAndCreateSubscriptiongroup(), changed.encode())
        await notes.ask(pull(topic, sys_flag=0, sub_version=7))
    await notes.ask(UnregisterClient(client_id="comparison@1", consumer_group=group))
    await notes.ask(new_topic(topic, perm=2))
    await notes.ask(pull(topic, "others"))


@scenario
async def long_polls(notes: Notes, topic: str) -> None:
    await notes.ask(new_topic(topic))
    suspended: dict[str, Any] = {
        "sys_flag": PULL_SUBSCRIPTION | PULL_SUSPEND,
        "suspend_timeout_millis": 1000,
    }
    await notes.ask(pull(topic, **suspended))
    suspended["suspend_timeout_millis"] = 20_000
    waiting = asyncio.create_task(notes.ask(pull(topic, **suspended)))
    await asyncio.sleep(0.5)
    await notes.send(topic, b"hello", TAGS="t")
    await waiting
    choosy = pull(topic, queue_offset=1, subscription="wanted", **suspended)
    waiting = asyncio.create_task(notes.ask(choosy))
    await asyncio.sleep(0.5)
    await notes.send(topic, b"hello", TAGS="wanted")
    await waiting
    choosy = pull(topic, queue_offset=2, subscription="wanted", **suspended)
    waiting = asyncio.create_task(notes.ask(choosy))
    await asyncio.sleep(0.5)
    await notes.send(topic, b"hello", TAGS="unwanted")
    await waiting


@scenario
async def offsets(notes: Notes, topic: str) -> None:
    group = f"{topic}-group"

    def query(**changes: Any) -> QueryConsumerOffset:
        fields: dict[str, Any] = {"consumer_group": group, "topic": topic, "queue_id": 0}
        return QueryConsumerOffset(**(fields | changes))

    def update(**changes: Any) -> UpdateConsumerOffset:
        fields: dict[str, Any] = {"consumer_group": group, "topic": topic, "queue_id": 0}
        return UpdateConsumerOffset(**(fields | {"commit_offset": 3} | changes))

    await notes.ask(query())
    await notes.ask(update())
    await notes.ask(new_topic(topic))
    await notes.ask(query())
    await notes.ask(query(set_zero_if_not_found=False))
    await notes.ask(update())
    await notes.ask(HeartBeat(), beat(group, topic))
    await notes.ask(update(topic=f"{topic}-absent"))
    times = [_now_ms()]
    for number in range(6):
        await notes.send(topic, b"%d" % number)
        await asyncio.sleep(0.05)
        times.append(_now_ms())
        await asyncio.sleep(0.05)
    await notes.ask(query())
    await notes.ask(query(set_zero_if_not_found=False))
    await notes.ask(update())
    await notes.ask(query())
    for time_ms in (0, *times, _now_ms() + 3_600_000):
        for boundary in (None, "lower", "UPPER"):
            search = SearchOffsetByTimestamp(
                topic=topic, queue_id=0, timestamp=time_ms, boundary_type=boundary
            )
            await notes.ask(search)
    for name, queue_id in ((topic, 0), (topic, 1), (f"{topic}-absent", 0)):
        await notes.ask(GetMaxOffset(topic=name, queue_id=queue_id))
        await notes.ask(GetMinOffset(topic=name, queue_id=queue_id))
        await notes.ask(GetEarliestMsgStoretime(topic=name, queue_id=queue_id))
        await notes.ask(SearchOffsetByTimestamp(topic=name, queue_id=queue_id, timestamp=times[2]))
    await notes.ask(CloneGroupOffset(src_group=group, dest_group=f"{group}-2", topic=topic))
    await notes.ask(query(consumer_group=f"{group}-2"))
    await notes.ask(UnregisterClient(client_id="comparison@1", consumer_group=group))


@scenario
async def resets(notes: Notes, topic: str) -> None:
    group = f"{topic}-group"

    def reset(**changes: Any) -> InvokeBrokerToResetOffset:
        fields: dict[str, Any] = {"topic": topic, "group": group, "timestamp": 0, "is_force": True}
        return InvokeBrokerToResetOffset(**(fields | changes))

    await notes.ask(reset())
    await notes.ask(new_topic(topic, read_queue_nums=2, write_queue_nums=2))
    await notes.ask(reset())
    await notes.ask(HeartBeat(), beat(group, topic))
    for number in range(5):
        await notes.send(topic, b"%d" % number)
    commit = UpdateConsumerOffset(consumer_group=group, topic=topic, queue_id=0, commit_offset=4)
    query = QueryConsumerOffset(consumer_group=group, topic=topic, queue_id=0)
    await notes.ask(commit)
    for change in (
        {"timestamp": 0},
        {"timestamp": -1},
        {"timestamp": _now_ms() + 3_600_000},
        {"queue_id": 0, "offset": 2},
        {"queue_id": 0, "offset": 7},
        {"queue_id": 0, "offset": -1},
    ):
        await notes.ask(reset(**change))
        await notes.ask(query)
        await notes.ask(commit)
        await notes.ask(pull(topic, queue_offset=4))
        await notes.ask(pull(topic, queue_offset=4))
        await notes.ask(query)
        await notes.ask(commit)
    await notes.ask(UnregisterClient(client_id="comparison@1", consumer_group=group))


@scenario
async def groups_of_consumers(notes: Notes, topic: str) -> None:
    group = f"{topic}-group"
    await notes.ask(GetConsumerListByGroup(consumer_group=group))
    await notes.ask(GetConsumerConnectionList(consumer_group=group))
    await notes.ask(HeartBeat(), beat(group, topic))
    await notes.ask(GetConsumerListByGroup(consumer_group=group))
    second = await notes.connect()
    await notes.ask(HeartBeat(), beat(group, topic, client_id="comparison@2"), of=second)
    await notes.ask(HeartBeat(), beat(group, topic, client_id="comparison@2"), of=second)
    await notes.ask(GetConsumerListByGroup(consumer_group=group))
    await notes.ask(GetConsumerConnectionList(consumer_group=group))
    await notes.ask(QueryTopicConsumeByWho(topic=topic), with_body=False)
    await notes.ask(GetTopicConfig(topic=f"%RETRY%{group}"))
    await second.close()
    await asyncio.sleep(0.5)
    await notes.ask(GetConsumerListByGroup(consumer_group=group))
    await notes.ask(UnregisterClient(client_id="comparison@1", consumer_group=group))
    await notes.ask(GetConsumerListByGroup(consumer_group=group))
    # One for the first, two when the second comes, one when it goes.
    told = [(each.code, each.is_oneway, each.ext_fields) for each in notes.asked]
    notes.lines.append(told)


@scenario
async def locks(notes: Notes, topic: str) -> None:
    queues = [MessageQueue(topic, "broker-a", number) for number in range(3)]

    def lock(client_id: str, *numbers: int) -> bytes:
        return bodies.LockBatchRequest(
            client_id=client_id,
            consumer_group=f"{topic}-group",
            mq_set=frozenset(queues[number] for number in numbers),
        ).encode()

    await notes.ask(LockBatchMq(), lock("a", 0, 1))
    await notes.ask(LockBatchMq(), lock("b", 1, 2))
    await notes.ask(LockBatchMq(), lock("a", 0, 1, 2))
    await notes.ask(UnlockBatchMq(), lock("b", 1))
    await notes.ask(LockBatchMq(), lock("b", 1))
    await notes.ask(UnlockBatchMq(), lock("a", 1))
    await notes.ask(LockBatchMq(), lock("b", 1))
    await notes.ask(LockBatchMq(), lock("b"))
    subscription = SubscriptionData.of_tags(topic, "a || b", sub_version=1)
    check = bodies.CheckClientConfig(
        client_id="a", group=f"{topic}-group", subscription_data=subscription
    )
    await notes.ask(CheckClientConfig(), check.encode())


@scenario
async def messages(notes: Notes, topic: str) -> None:
    def query(key: str, **changes: Any) -> QueryMessage:
        fields: dict[str, Any] = {
            "topic": topic,
            "key": key,
            "max_num": 10,
            "begin_timestamp": 0,
            "end_timestamp": _now_ms() + 3_600_000,
        }
        return QueryMessage(**(fields | changes))

    sent = await notes.send(topic, b"one", KEYS="a b", UNIQ_KEY=f"{topic}-1", TAGS="t")
    await notes.send(topic, b"two", KEYS="b", UNIQ_KEY=f"{topic}-2", queue="1")
    await asyncio.sleep(1.0)  # for Apache's index
    place = parse_offset_message_id(sent.ext_fields["msgId"]).physical_offset
    await notes.ask(ViewMessageById(offset=place))
    answer = await notes.connection.invoke(
        ViewMessageById(offset=1 << 40).to_command(), timeout=TIMEOUT
    )
    notes.lines.append((answer.code, answer.remark))
    for key in ("a", "b", "absent"):
        await notes.ask(query(key))
    await notes.ask(query("b", max_num=1))
    await notes.ask(query(f"{topic}-1", unique_key_query=True, max_num=1))
    await notes.ask(query("a", begin_timestamp=_now_ms() + 60_000))
    for number in range(70):
        await notes.send(topic, b"%d" % number, KEYS="many", UNIQ_KEY=f"{topic}-many-{number}")
    await asyncio.sleep(1.0)
    await notes.ask(query("many", max_num=500))
    for index, count in ((0, 10), (0, 1), (5, 10)):
        await notes.ask(QueryConsumeQueue(topic=topic, queue_id=0, index=index, count=count))
    await notes.ask(
        QueryConsumeQueue(
            topic=topic, queue_id=0, index=0, count=1, consumer_group=f"{topic}-group"
        )
    )


@scenario
async def topics(notes: Notes, topic: str) -> None:
    await notes.ask(GetTopicConfig(topic=topic))
    await notes.ask(GetTopicStatsInfo(topic=topic))
    changes: list[dict[str, Any]] = [
        {"attributes": "-message.type"},
        {"attributes": "+unknown=1"},
        {"attributes": "+message.type=NONE"},
        {"attributes": "message.type=FIFO"},
        {"attributes": "+message.type=FIFO,+reserve.time=5"},
        {"attributes": "+message.type=NORMAL,-reserve.time"},
        {"attributes": "+queue.type=SimpleCQ"},
        {"attributes": "-reserve.time"},
        {"read_queue_nums": 8, "write_queue_nums": 6, "perm": 4},
        {"topic": "no good"},
        {"topic": " "},
        {"topic": "TBW102"},
        {"topic": "SCHEDULE_TOPIC_XXXX"},
        {"topic": "rmq_sys_mine"},
    ]
    for change in changes:
        # Java prints sets in an order of its own.
        await notes.ask(
            new_topic(**{"topic": topic, **change}), with_remark="NONE" not in str(change)
        )
        await notes.ask(GetTopicConfig(topic=topic))
    await notes.ask(GetTopicStatsInfo(topic=topic))
    await notes.send(topic, b"x", queue="5")
    await notes.ask(GetTopicStatsInfo(topic=topic))
    await notes.ask(QueryConsumeTimeSpan(topic=topic, group="nobody"))
    await notes.ask(QueryConsumeTimeSpan(topic=f"{topic}-absent", group="nobody"))
    for name in (topic, f"{topic}-absent", "TBW102", " "):
        await notes.ask(DeleteTopicInBroker(topic=name))
    await notes.ask(GetTopicConfig(topic=topic))
    await notes.ask(GetMaxOffset(topic=topic, queue_id=5))


@scenario
async def groups(notes: Notes, topic: str) -> None:
    group = f"{topic}-group"
    config = bodies.SubscriptionGroupConfig(group_name=group, retry_max_times=3, group_sys_flag=2)
    for each in (config, replace(config, group_name="no good"), replace(config, group_name="")):
        await notes.ask(UpdateAndCreateSubscriptiongroup(), each.encode())
    await notes.ask(GetSubscriptiongroupConfig(group=group))
    await notes.ask(GetSubscriptiongroupConfig(group="no good"))
    await notes.ask(new_topic(topic))
    for number in range(3):
        await notes.send(topic, b"%d" % number)
    update = UpdateConsumerOffset(consumer_group=group, topic=topic, queue_id=0, commit_offset=2)
    await notes.ask(update)
    await notes.ask(pull(topic, group, queue_offset=2))
    for stats in (
        GetConsumeStats(consumer_group=group),
        GetConsumeStats(consumer_group=group, topic=topic),
        GetConsumeStats(consumer_group=group, topic=f"{topic}-absent"),
        GetConsumeStats(consumer_group=f"{group}-absent"),
    ):
        await notes.ask(stats)
    await notes.ask(QueryConsumeTimeSpan(topic=topic, group=group))
    await notes.ask(QueryTopicConsumeByWho(topic=topic))
    await notes.ask(DeleteSubscriptiongroup(group_name=group, clean_offset=True))
    query = QueryConsumerOffset(
        consumer_group=group, topic=topic, queue_id=0, set_zero_if_not_found=False
    )
    await notes.ask(query)
    await notes.ask(update)
    await notes.ask(DeleteSubscriptiongroup(group_name=f"{group}-absent"))


@scenario
async def clients(notes: Notes, topic: str) -> None:
    group = f"{topic}-group"
    asked = GetConsumerRunningInfo(consumer_group=group, client_id="comparison@1")
    await notes.ask(asked)
    await notes.ask(GetProducerConnectionList(producer_group=group))
    body = HeartbeatData.decode(beat(group, topic))
    body = replace(body, producer_data_set=(ProducerData(group_name=group),))
    await notes.ask(HeartBeat(), body.encode())
    await notes.ask(GetProducerConnectionList(producer_group=group))
    answer = await notes.connection.invoke(GetAllProducerInfo().to_command(), timeout=TIMEOUT)
    table = loads(answer.body)
    assert isinstance(table, dict)
    notes.lines.append(masked(table["data"][group]))

    def answers(request: RemotingCommand) -> RemotingCommand | None:
        if request.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            return request.answer(0, body=b'{"messageQueueTable":{}}')
        return request.answer(0, "well", {"some": "field"}, b'{"properties":{}}')

    notes.answers = answers
    other = await notes.connect()
    await notes.ask(asked, of=other)
    sent = await notes.send(topic, b"try me")
    await notes.ask(
        ConsumeMessageDirectly(
            consumer_group=group,
            client_id="comparison@1",
            msg_id=sent.ext_fields["msgId"],
            topic=topic,
        ),
        of=other,
    )
    await notes.ask(InvokeBrokerToGetConsumerStatus(topic=topic, group=group), of=other)
    for each in notes.asked:
        fields = {k: v for k, v in each.ext_fields.items() if k not in ("msgId", "clientId")}
        notes.lines.append((each.code, fields, readable(each.body)))


_NOT_MISSED = {
    *("subscription", "commitOffset", "suspendTimeoutMillis", "subVersion"),
    *("topicSysFlag", "order", "topicFilterType", "defaultTopic"),
}


@scenario
async def malformed(notes: Notes, topic: str) -> None:
    """Only the code: Java tells of its own classes. It forgets to miss some fields."""
    await notes.ask(new_topic(topic))
    whole: list[Request[Any]] = [
        pull(topic),
        QueryConsumerOffset(consumer_group="g", topic=topic, queue_id=0),
        GetMaxOffset(topic=topic, queue_id=0),
        GetMinOffset(topic=topic, queue_id=0),
        SearchOffsetByTimestamp(topic=topic, queue_id=0, timestamp=0),
        ViewMessageById(offset=0),
        new_topic(topic),
        GetTopicStatsInfo(topic=topic),
    ]
    for request in whole:
        command = request.to_command()
        for name, value in list(command.ext_fields.items()):
            if name in _NOT_MISSED or (command.code, name) == (14, "consumerGroup"):
                continue
            for bad in (None, "bad"):
                if bad is not None and not value.lstrip("-").isdigit():
                    continue
                command = request.to_command()
                command.ext_fields[name] = "bad"
                if bad is None:
                    del command.ext_fields[name]
                answer = await notes.connection.invoke(command, timeout=TIMEOUT)
                notes.lines.append((command.code, name, bad, answer.code))


async def notes_of(play: Scenario, topic: str, address: Address) -> list[object]:
    async with AsyncExitStack() as stack:
        notes = Notes(address, stack)
        notes.connection = await notes.connect()
        await play(notes, topic)
        return notes.lines


@pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)
@pytest.mark.parametrize("play", SCENARIOS, ids=lambda play: play.__name__)
def test_our_broker_reads_and_is_administered_like_apaches(
    play: Scenario, apache: ApacheCluster, tmp_path: Path
) -> None:
    async def both() -> tuple[list[object], list[object]]:
        topic = f"reading-{play.__name__}-{next(_numbers)}"
        theirs = Address.parse(apache.broker("broker-a").address)
        # By default ours gives more than Apache's for a pull that asks for it.
        settings = BrokerSettings(
            listen_port=0,
            max_transfer_count_on_message_in_memory=32,
            max_transfer_bytes_on_message_in_memory=256 * 1024,
        )
        broker = Broker(settings, tmp_path)
        await broker.start()
        try:
            return (
                await notes_of(play, topic, broker.address),
                await notes_of(play, topic, theirs),
            )
        finally:
            await broker.close()

    ours, theirs = asyncio.run(both())
    assert len(ours) > 0
    for our_line, their_line in zip(ours, theirs, strict=True):
        assert our_line == their_line
