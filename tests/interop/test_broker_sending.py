"""The same requests to a real broker and to ours: codes, remarks, fields, and what is stored.

Each scenario is a sequence of requests that notes what came of them. What must differ, like ids
and addresses, is masked; all the rest has to be equal.
"""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.clock import SystemClock
from rocketpipe.message import StoredMessage
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.connection import Connection, connect
from rocketpipe.remoting.network import AsyncioNetwork
from rocketpipe.wire.batch import BatchMember, encode_batch
from rocketpipe.wire.bodies.heartbeat import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.headers import Request
from rocketpipe.wire.message_id import parse_offset_message_id
from rocketpipe.wire.properties import encode_properties
from rocketpipe.wire.record import decode_record, decode_records
from rocketpipe.wire.requests.callbacks import CheckTransactionState
from rocketpipe.wire.requests.clients import HeartBeat, UnregisterClient
from rocketpipe.wire.requests.reading import PULL_SUBSCRIPTION, PullMessage, ViewMessageById
from rocketpipe.wire.requests.sending import (
    ConsumerSendMsgBack,
    EndTransaction,
    SendBatchMessage,
    SendMessage,
    SendMessageV2,
    SendReplyMessageV2,
)
from tests.apache.cluster import ApacheCluster

TIMEOUT = 15.0
PATIENCE = 30.0  # for what comes by itself: delayed messages, questions about transactions
_numbers = itertools.count()


class Peer(Protocol):
    """A broker under comparison."""

    connection: Connection

    async def record_at(self, physical_offset: int) -> StoredMessage: ...

    async def queue(self, topic: str, queue_id: int) -> list[StoredMessage]: ...


class ApachePeer:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def record_at(self, physical_offset: int) -> StoredMessage:
        found = await self.connection.request(
            ViewMessageById(offset=physical_offset), timeout=TIMEOUT
        )
        return decode_record(bytes(found), decompressing=False)

    async def queue(self, topic: str, queue_id: int) -> list[StoredMessage]:
        pull = PullMessage(
            consumer_group="CID_RMQ_SYS_COMPARISON",
            topic=topic,
            queue_id=queue_id,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        answer = await self.connection.invoke(pull.to_command(), timeout=TIMEOUT)
        return decode_records(answer.body, decompressing=False) if answer.code == 0 else []


class OurPeer:
    def __init__(self, connection: Connection, broker: Broker) -> None:
        self.connection = connection
        self._store = broker.store

    async def record_at(self, physical_offset: int) -> StoredMessage:
        record = self._store.record_at(physical_offset)
        assert record is not None
        return decode_record(record, decompressing=False)

    async def queue(self, topic: str, queue_id: int) -> list[StoredMessage]:
        read = self._store.read(topic, queue_id, 0, count_max=32, bytes_max=1 << 20)
        return decode_records(read.records, decompressing=False)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        for pause in itertools.repeat(0.2):
            if await holds():
                return
            await asyncio.sleep(pause)


class Notes:
    """What came of the requests to one broker, without what must differ."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.lines: list[object] = []
        self.asked: list[RemotingCommand] = []  # what the broker asked of us

    def take(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        self.asked.append(request)
        return request.answer(0)

    async def ask(
        self, request: Request[Any], body: bytes = b"", *, with_remark: bool = True
    ) -> RemotingCommand:
        answer = await self.peer.connection.invoke(request.to_command(body), timeout=TIMEOUT)
        remark = mask(answer.remark) if with_remark else None
        self.lines.append((type(request).__name__, answer.code, remark, masked(answer.ext_fields)))
        return answer

    async def stored(self, answer: RemotingCommand) -> None:
        """Note the messages whose ids an answer has."""
        for message_id in answer.ext_fields["msgId"].split(","):
            offset = parse_offset_message_id(message_id).physical_offset
            self.note(await self.peer.record_at(offset))

    async def queue(self, topic: str, queue_id: int, count: int) -> list[StoredMessage]:
        """Note the messages of a queue, when so many are there."""
        found: list[StoredMessage] = []

        async def are_there() -> bool:
            found[:] = await self.peer.queue(topic, queue_id)
            return len(found) >= count

        await until(are_there)
        for message in found:
            self.note(message)
        return found

    def note(self, message: StoredMessage) -> None:
        self.lines.append(
            (
                message.topic,
                message.queue_id,
                message.queue_offset if not message.topic.startswith(SHARED) else "any",
                message.body if not message.topic.startswith(SHARED_BODY) else b"any",
                message.flag,
                message.sys_flag,
                message.reconsume_times,
                message.prepared_transaction_offset != 0,
                masked(message.properties),
            )
        )


# The queues of these are shared with other scenarios.
SHARED = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC")
SHARED_BODY = ("RMQ_SYS_TRANS_OP_HALF_TOPIC",)

# Ids and addresses differ, and the time.
_MASKS = {
    "msgId": "id",
    "ORIGIN_MESSAGE_ID": "id",
    "PUSH_REPLY_TIME": "time",
}
_UNIQUE = {"UNIQ_KEY", "transactionId", "__transactionId__"}


def masked(fields: Mapping[str, str]) -> dict[str, str]:
    result = {}
    for name, value in sorted(fields.items()):
        if name in _MASKS:
            value = _MASKS[name] * (1 + value.count(","))
        elif name in _UNIQUE and not value.startswith("OURS"):
            value = "made by the broker"
        result[name] = value
    return result


def mask(remark: str | None) -> str | None:
    if remark is None:
        return None
    remark = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", remark)
    return re.sub(r"\d+\.\d\d", "PERCENT", remark)


def header(topic: str, **changes: Any) -> dict[str, Any]:
    properties = changes.pop("properties", {"UNIQ_KEY": "OURS-1"})
    fields: dict[str, Any] = {
        "producer_group": "comparison",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 1,
        "sys_flag": 0,
        "born_timestamp": SystemClock().wall_ms(),
        "flag": 0,
        "properties": encode_properties(properties) if properties is not None else None,
        "reconsume_times": 0,
        "unit_mode": False,
        "batch": False,
    }
    return fields | changes


Scenario = Callable[[Notes, str], Awaitable[None]]
SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    SCENARIOS.append(function)
    return function


@scenario
async def plain_sends(notes: Notes, topic: str) -> None:
    full = {"UNIQ_KEY": "OURS-1", "TAGS": "t", "KEYS": "a b", "WAIT": "true", "名": "值"}
    for properties in (full, {"UNIQ_KEY": "OURS-2", "WAIT": "false"}, {"own": "x"}, {}, None):
        for kind in (SendMessageV2, SendMessage):
            fields = header(topic, properties=properties, flag=7, sys_flag=0)
            await notes.stored(await notes.ask(kind(**fields), b"\x00body\xff"))
    taken = {
        "UNIQ_KEY": "OURS-3",
        "MSG_REGION": "x",
        "TRACE_ON": "y",
        "CLUSTER": "z",
        "POP_CK": "1",
    }
    await notes.stored(await notes.ask(SendMessageV2(**header(topic, properties=taken)), b"x"))
    untidy = "UNIQ_KEY\x01OURS-4\x02empty\x01\x02\x01noname\x02last\x01unended"
    await notes.stored(
        await notes.ask(SendMessageV2(**(header(topic) | {"properties": untidy})), b"x")
    )
    retried = header(topic, reconsume_times=3)
    await notes.stored(await notes.ask(SendMessageV2(**retried), b"x"))


@scenario
async def refusals(notes: Notes, topic: str) -> None:
    changes: list[dict[str, Any]] = [
        {"topic": " "},
        {"topic": "no good"},
        {"topic": "x" * 128},
        {"topic": "%RETRY%" + "x" * 249},
        {"topic": "SCHEDULE_TOPIC_XXXX"},
        {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"},
        {"topic": "TRANS_CHECK_MAX_TIME_TOPIC"},
        {"topic": "SELF_TEST_TOPIC"},
        {"topic": "OFFSET_MOVED_EVENT"},
        {"topic": topic + "-absent", "default_topic": "no-such-topic"},
        {"topic": topic + "-absent", "default_topic": topic},
        {"queue_id": 4},
        {"queue_id": 1000},
        {"properties": {"p": "x" * 32_767}},
        {"topic": "%RETRY%comparison", "batch": True},
    ]
    await notes.ask(SendMessageV2(**header(topic)), b"x")
    for change in changes:
        await notes.ask(SendMessageV2(**header(change.pop("topic", topic), **change)), b"x")
    await notes.ask(SendMessageV2(**header(topic)), bytes(4 * 1024 * 1024 + 1))


@scenario
async def malformed(notes: Notes, topic: str) -> None:
    """Only the code: Java tells of its own classes."""
    await notes.ask(SendMessageV2(**header(topic)), b"", with_remark=False)
    for letter in "befgh":  # Apache forgets to miss the group and what a new topic would need
        command = SendMessageV2(**header(topic)).to_command(b"x")
        del command.ext_fields[letter]
        answer = await notes.peer.connection.invoke(command, timeout=TIMEOUT)
        notes.lines.append((letter, answer.code))
    command = SendMessageV2(**header(topic)).to_command(b"x")
    command.ext_fields["e"] = "one"
    answer = await notes.peer.connection.invoke(command, timeout=TIMEOUT)
    notes.lines.append(("e", answer.code))


@scenario
async def any_queue(notes: Notes, topic: str) -> None:
    answer = await notes.peer.connection.invoke(
        SendMessageV2(**header(topic, queue_id=-1)).to_command(b"x"), timeout=TIMEOUT
    )
    notes.lines.append((answer.code, answer.ext_fields["queueId"] in "0123"))


@scenario
async def batches(notes: Notes, topic: str) -> None:
    members = [BatchMember(b"one", {"UNIQ_KEY": "A", "TAGS": "t"}, 5), BatchMember(b"two")]
    body = encode_batch(members)
    whole = header(topic, batch=True, properties={"WAIT": "true", "UNIQ_KEY": "OURS-1"})
    await notes.stored(await notes.ask(SendBatchMessage(**whole), body))
    await notes.stored(await notes.ask(SendMessageV2(**whole), body))
    await notes.stored(await notes.ask(SendBatchMessage(**(whole | {"batch": False})), body))
    await notes.stored(await notes.ask(SendBatchMessage(**header(topic, batch=True)), body))


@scenario
async def topics_made_by_sends(notes: Notes, topic: str) -> None:
    for queues, queue_id in ((2, 1), (100, 7)):
        fields = header(f"{topic}-{queues}", default_topic_queue_nums=queues, queue_id=queue_id)
        await notes.ask(SendMessageV2(**fields), b"x")
        await notes.ask(SendMessageV2(**(fields | {"queue_id": queue_id + 1})), b"x")
    retry = header(f"%RETRY%{topic}", queue_id=0, default_topic="no-such-topic")
    await notes.ask(SendMessageV2(**retry), b"x")
    await notes.ask(SendMessageV2(**(retry | {"queue_id": 1})), b"x")


@scenario
async def delays(notes: Notes, topic: str) -> None:
    now = {"UNIQ_KEY": "OURS-1", "DELAY": "0"}
    await notes.stored(await notes.ask(SendMessageV2(**header(topic, properties=now)), b"now"))
    soon = {"UNIQ_KEY": "OURS-2", "DELAY": "1", "TIMER_DELAY_SEC": "5"}
    answer = await notes.peer.connection.invoke(
        SendMessageV2(**header(topic, properties=soon)).to_command(b"soon"), timeout=TIMEOUT
    )
    notes.lines.append((answer.code, answer.ext_fields["queueId"]))
    await notes.stored(answer)
    far = {"UNIQ_KEY": "OURS-3", "DELAY": "99"}
    answer = await notes.peer.connection.invoke(
        SendMessageV2(**header(topic, properties=far)).to_command(b"far"), timeout=TIMEOUT
    )
    await notes.stored(answer)
    await notes.queue(topic, 1, 2)


async def send_half(notes: Notes, topic: str, **more: str) -> RemotingCommand:
    properties = {"UNIQ_KEY": "OURS-1", "TRAN_MSG": "true", "PGROUP": "comparison", **more}
    fields = header(topic, properties=properties, sys_flag=4)
    return await notes.peer.connection.invoke(
        SendMessageV2(**fields).to_command(b"deal"), timeout=TIMEOUT
    )


def end_of(half: RemotingCommand, end: int, **changes: Any) -> EndTransaction:
    fields: dict[str, Any] = {
        "producer_group": "comparison",
        "tran_state_table_offset": int(half.ext_fields["queueOffset"]),
        "commit_log_offset": parse_offset_message_id(half.ext_fields["msgId"]).physical_offset,
        "commit_or_rollback": end,
        "from_transaction_check": False,
        "msg_id": "OURS-1",
    }
    return EndTransaction(**(fields | changes))


@scenario
async def transactions(notes: Notes, topic: str) -> None:
    await notes.ask(SendMessageV2(**header(topic, queue_id=0)), b"no transaction")
    half = await send_half(notes, topic)
    notes.lines.append((half.code, half.ext_fields["queueId"]))
    await notes.stored(half)
    await notes.ask(end_of(half, 8, producer_group="others"))
    await notes.ask(end_of(half, 8, tran_state_table_offset=99_999))
    await notes.ask(end_of(half, 8, commit_log_offset=1 << 40))
    await notes.ask(end_of(half, 8))
    await notes.queue(topic, 1, 1)
    await notes.ask(end_of(await send_half(notes, topic), 12))
    late = await send_half(notes, topic, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    await asyncio.sleep(6.2)
    await notes.ask(end_of(late, 8))
    await notes.ask(end_of(late, 12, from_transaction_check=True))


@scenario
async def questions(notes: Notes, topic: str) -> None:
    beat = HeartbeatData(
        client_id="comparison@1", producer_data_set=(ProducerData(group_name="askable"),)
    )
    await notes.ask(HeartBeat(), beat.encode())
    properties = {"UNIQ_KEY": f"OURS-{topic}", "TRAN_MSG": "true", "PGROUP": "askable"}
    fields = header(topic, properties=properties, sys_flag=4)
    await notes.peer.connection.invoke(SendMessageV2(**fields).to_command(b"deal"), timeout=TIMEOUT)

    async def is_asked() -> bool:
        return len(notes.asked) > 0

    await until(is_asked)
    asked = notes.asked[0]
    question = CheckTransactionState.from_ext_fields(asked.ext_fields)
    copy = decode_record(asked.body)
    notes.lines.append((asked.code, asked.is_oneway, question.topic, question.msg_id))
    notes.lines.append((question.transaction_id, question.broker_name))
    notes.lines.append((copy.topic, copy.queue_id, copy.body))
    # We say where the half message stood first; and Java's copy, but not what it stores, shows
    # that nobody waits for it.
    ignored = {"TRAN_PREPARED_QUEUE_OFFSET", "WAIT"}
    notes.lines.append({k: v for k, v in masked(copy.properties).items() if k not in ignored})
    end = EndTransaction(
        producer_group="askable",
        tran_state_table_offset=question.tran_state_table_offset,
        commit_log_offset=question.commit_log_offset,
        commit_or_rollback=12,
        from_transaction_check=True,
        msg_id="x",
    )
    await notes.ask(end)


@scenario
async def sent_back(notes: Notes, topic: str) -> None:
    group = f"g-{topic}"
    beat = HeartbeatData(
        client_id="comparison@2",
        consumer_data_set=(
            ConsumerData(
                group_name=group,
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                subscription_data_set=(SubscriptionData.of_tags(topic, "*", sub_version=1),),
            ),
        ),
    )
    await notes.ask(HeartBeat(), beat.encode())
    sent = await notes.ask(SendMessageV2(**header(topic)), b"x")
    offset = parse_offset_message_id(sent.ext_fields["msgId"]).physical_offset
    # Apache fails without the topic when it lays a message aside, which its statistics need.
    back: dict[str, Any] = {"offset": offset, "group": group, "delay_level": 1}
    back["origin_topic"] = topic
    await notes.ask(ConsumerSendMsgBack(**back))
    (again,) = await notes.queue(f"%RETRY%{group}", 0, 1)
    back["offset"] = again.physical_offset
    await notes.ask(ConsumerSendMsgBack(**back, max_reconsume_times=1))
    await notes.queue(f"%DLQ%{group}", 0, 1)
    await notes.ask(ConsumerSendMsgBack(**(back | {"offset": 1 << 40})))
    await notes.ask(ConsumerSendMsgBack(**(back | {"group": "no good"})))
    own = header(f"%RETRY%{group}", queue_id=0, reconsume_times=3, max_reconsume_times=2)
    await notes.stored(await notes.ask(SendMessageV2(**own), b"mine"))
    await notes.ask(UnregisterClient(client_id="comparison@2", consumer_group=group))


@scenario
async def replies(notes: Notes, topic: str) -> None:
    beat = HeartbeatData(
        client_id=f"asker-{topic}", producer_data_set=(ProducerData(group_name="askers"),)
    )
    await notes.ask(HeartBeat(), beat.encode())
    reply = "DefaultCluster_REPLY_TOPIC"
    for asker in (f"asker-{topic}", "nobody", None):
        properties = {"CORRELATION_ID": "c", "MSG_TYPE": "reply"}
        if asker:
            properties["REPLY_TO_CLIENT"] = asker
        command = SendReplyMessageV2(**header(reply, queue_id=0, properties=properties))
        answer = await notes.peer.connection.invoke(command.to_command(b"pong"), timeout=TIMEOUT)
        notes.lines.append((answer.code, mask(answer.remark), sorted(answer.ext_fields)))
        offset = parse_offset_message_id(answer.ext_fields["msgId"]).physical_offset
        message = await notes.peer.record_at(offset)
        notes.lines.append((message.body, masked(message.properties)))
    pushed = notes.asked[0]
    for name in ("storeTimestamp", "bornTimestamp", "storeHost", "bornHost"):
        assert pushed.ext_fields.pop(name)
    properties = dict(
        pair.split("\x01") for pair in pushed.ext_fields.pop("properties").split("\x02") if pair
    )
    notes.lines.append((pushed.code, pushed.body, masked(properties), masked(pushed.ext_fields)))


@asynccontextmanager
async def our_broker(folder: Path) -> AsyncIterator[Broker]:
    settings = BrokerSettings(listen_port=0, transaction_check_interval=2.0)
    broker = Broker(settings, folder)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


async def notes_of(
    play: Scenario, topic: str, address: str, make: Callable[[Connection], Peer]
) -> list[object]:
    notes: Notes | None = None

    def take(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        assert notes is not None
        return notes.take(connection, request)

    connection = await connect(
        AsyncioNetwork(), Address.parse(address), timeout=TIMEOUT, handler=take
    )
    try:
        notes = Notes(make(connection))
        await play(notes, topic)
    finally:
        await connection.close()
    return notes.lines


@pytest.mark.usefixtures("spinning_brokers_end")
@pytest.mark.parametrize("apache_version", ["5.5.0"], indirect=True)
@pytest.mark.parametrize("play", SCENARIOS, ids=lambda play: play.__name__)
def test_our_broker_answers_and_stores_like_apaches(
    play: Scenario, apache: ApacheCluster, tmp_path: Path
) -> None:
    async def both() -> tuple[list[object], list[object]]:
        topic = f"sending-{play.__name__}-{next(_numbers)}"
        theirs = apache.broker("broker-a").address
        async with our_broker(tmp_path) as broker:

            def ours(connection: Connection) -> Peer:
                return OurPeer(connection, broker)

            return (
                await notes_of(play, topic, str(broker.address), ours),
                await notes_of(play, topic, theirs, ApachePeer),
            )

    ours, theirs = asyncio.run(both())
    assert len(ours) > 0
    for our_line, their_line in zip(ours, theirs, strict=True):
        assert our_line == their_line
