"""Transactions on a simulated cluster: what the listener says, what the brokers are told."""

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from rocketpipe import (
    AsyncTransactionProducer,
    HalfMessage,
    Message,
    SendStatus,
    StoredMessage,
    TransactionState,
    reply_message,
)
from rocketpipe.client.hooks import EndTransactionContext, SendHook
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import (
    IllegalState,
    InvalidMessage,
    InvalidSetting,
    MalformedRecord,
    SendFailed,
)
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.record import encode_record
from rocketpipe.wire.requests.callbacks import CheckTransactionState
from rocketpipe.wire.requests.sending import EndTransaction
from rocketpipe.wire.sys_flag import TRANSACTION_PREPARED
from tests.simulated_cluster import FakeBroker, SimulatedCluster, refuse, simulated, store_as
from tests.stored_message import stored_message

COMMIT, ROLLBACK, UNKNOWN = TransactionState
ORDER = Message("orders", b"order", tags="paid", keys=["o-1"])


@dataclass
class Listener:
    """Coroutines, as there are no threads in simulated time."""

    does: Callable[[], Any] = lambda: COMMIT
    takes: float = 0.0
    executed: list[tuple[HalfMessage, Any]] = field(default_factory=list)
    checked: list[StoredMessage] = field(default_factory=list)

    async def execute(self, message: HalfMessage, arg: Any) -> TransactionState:
        self.executed.append((message, arg))
        await asyncio.sleep(self.takes)
        state: TransactionState = self.does()
        return state

    async def check(self, message: StoredMessage) -> TransactionState:
        self.checked.append(message)
        await asyncio.sleep(self.takes)
        state: TransactionState = self.does()
        return state


@dataclass
class Told:
    """What brokers were told of ends of transactions."""

    at: float
    broker: str
    header: EndTransaction
    remark: str | None
    is_oneway: bool


class Diary(SendHook):
    def __init__(self) -> None:
        self.ended: list[EndTransactionContext] = []

    def end_transaction(self, context: EndTransactionContext) -> None:
        self.ended.append(context)


def listen(cluster: SimulatedCluster) -> list[Told]:
    told: list[Told] = []

    def listen_at(broker: FakeBroker) -> None:
        def take(connection: Connection, request: RemotingCommand) -> None:
            header = EndTransaction.from_ext_fields(request.ext_fields)
            told.append(Told(cluster.now, broker.name, header, request.remark, request.is_oneway))

        broker.handlers[RequestCode.END_TRANSACTION] = take

    for broker in cluster.brokers:
        listen_at(broker)
    return told


def producer(
    cluster: SimulatedCluster, listener: Any, group: str = "group", **settings: Any
) -> AsyncTransactionProducer:
    settings = {"namesrv": cluster.namesrv, "environment": cluster.environment, **settings}
    return AsyncTransactionProducer(group, listener, **settings)


async def ask(connection: Connection, message: StoredMessage, **fields: Any) -> None:
    """As a broker asks: one-way, with the record of the half message under its real topic."""
    header = CheckTransactionState(
        **{
            "tran_state_table_offset": 21,
            "commit_log_offset": 2100,
            "transaction_id": message.message_id,
            "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
            "broker_name": "broker-a",
            **fields,
        }
    )
    await connection.send_oneway(header.to_command(encode_record(message)), timeout=1)
    await asyncio.sleep(0.01)


def half(group: str = "group", region: str | None = None, **fields: Any) -> StoredMessage:
    properties = {"PGROUP": group, "TRAN_MSG": "true", "UNIQ_KEY": "7F" * 16, "TAGS": "paid"}
    if region is not None:
        properties["MSG_REGION"] = region
    return stored_message(properties=properties, **fields)


@pytest.mark.parametrize("listener", [None, lambda message, arg: TransactionState.COMMIT])
def test_what_is_no_listener_is_refused_before_anything_is_sent(listener: Any) -> None:
    with pytest.raises(InvalidSetting, match="no methods execute and check"):
        AsyncTransactionProducer("group", listener, namesrv="n:9876")


# Sending in a transaction.


@simulated(brokers=2)
async def test_a_half_message_is_sent_and_then_committed(cluster: SimulatedCluster) -> None:
    told = listen(cluster)
    listener, diary = Listener(takes=0.5), Diary()
    async with producer(cluster, listener, hooks=[diary]) as sending:
        for _ in range(4):  # to both brokers
            before = cluster.now
            result = await sending.send_in_transaction(ORDER, "arg")
            await asyncio.sleep(0.01)
            assert result.state is COMMIT
            sent = result.send_result
            broker = cluster.broker(sent.queue.broker_name)
            received = broker.stored[-1]
            assert received.body == b"order"
            assert received.header.sys_flag == TRANSACTION_PREPARED
            assert received.properties.items() >= {"TRAN_MSG": "true", "PGROUP": "group"}.items()

            message, arg = listener.executed[-1]
            assert (message.topic, message.body, message.tags) == ("orders", b"order", "paid")
            assert (message.keys, message.message_id) == (("o-1",), sent.message_id)
            assert arg == "arg"

            end = told[-1]
            assert end.at - before >= 0.5  # not before the work was done
            assert (end.broker, end.is_oneway, end.remark) == (broker.name, True, None)
            assert end.header == EndTransaction(
                producer_group="group",
                tran_state_table_offset=sent.queue_offset,
                commit_log_offset=len(broker.stored) - 1,  # which stands in its offset id
                commit_or_rollback=8,
                from_transaction_check=False,
                msg_id=sent.message_id,
                transaction_id=sent.message_id,
                topic="orders",
                broker_name=broker.name,
            )
            assert diary.ended[-1] == EndTransactionContext(
                producer_group="group",
                topic="orders",
                message_id=sent.message_id,
                tags="paid",
                keys=("o-1",),
                region_id="DefaultRegion",
                state=COMMIT,
                is_from_check=False,
                address=str(broker.address),
            )
        assert {end.broker for end in told} == {"broker-a", "broker-b"}


@pytest.mark.parametrize(
    ("does", "state", "bits", "remark"),
    [
        (lambda: ROLLBACK, ROLLBACK, 12, None),
        (lambda: UNKNOWN, UNKNOWN, 0, None),
        (
            lambda: 1 / 0,
            UNKNOWN,
            0,
            "executeLocalTransactionBranch exception: ZeroDivisionError: division by zero",
        ),
        (
            lambda: True,
            UNKNOWN,
            0,
            "executeLocalTransactionBranch exception: TypeError: "
            "a listener returned True, not a TransactionState",
        ),
    ],
)
def test_a_broker_is_told_what_the_listener_says(
    does: Callable[[], Any],
    state: TransactionState,
    bits: int,
    remark: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    @simulated()
    async def test(cluster: SimulatedCluster) -> None:
        told = listen(cluster)
        async with producer(cluster, Listener(does)) as sending:
            result = await sending.send_in_transaction(ORDER)
            assert result.state is state
            assert result.send_result.status is SendStatus.SEND_OK
        assert [(end.header.commit_or_rollback, end.remark) for end in told] == [(bits, remark)]

    test()
    assert ("the broker will ask how the transaction ended" in caplog.text) == (remark is not None)


@simulated()
async def test_a_remark_is_not_without_end(cluster: SimulatedCluster) -> None:
    told = listen(cluster)

    def fail() -> None:
        raise ValueError("x" * 100_000)

    async with producer(cluster, Listener(fail)) as sending:
        await sending.send_in_transaction(ORDER)
    assert told[0].remark is not None
    assert len(told[0].remark) == 1024


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    ],
)
def test_what_is_not_safe_is_rolled_back_and_the_listener_not_asked(code: ResponseCode) -> None:
    @simulated()
    async def test(cluster: SimulatedCluster) -> None:
        told = listen(cluster)
        cluster.brokers[0].behaviour = store_as(code)
        listener = Listener()
        async with producer(cluster, listener) as sending:
            result = await sending.send_in_transaction(ORDER)
            assert (result.send_result.status.name, result.state) == (code.name, ROLLBACK)
        assert listener.executed == []
        assert [end.header.commit_or_rollback for end in told] == [12]

    test()


@simulated()
async def test_a_half_message_that_can_not_be_sent_is_no_transaction(
    cluster: SimulatedCluster,
) -> None:
    told = listen(cluster)
    listener = Listener()
    cluster.brokers[0].behaviour = refuse(ResponseCode.MESSAGE_ILLEGAL)
    async with producer(cluster, listener) as sending:
        with pytest.raises(SendFailed):
            await sending.send_in_transaction(ORDER)
    assert (listener.executed, told) == ([], [])


@simulated()
async def test_without_a_place_there_is_nothing_to_commit(cluster: SimulatedCluster) -> None:
    """The broker will ask; but before the listener has done its work, not after."""

    def nowhere(broker: FakeBroker, request: RemotingCommand, connection: Connection) -> Any:
        fields = {"msgId": "nowhere", "queueId": "0", "queueOffset": "0"}
        return request.answer(0, ext_fields=fields)

    listener = Listener()
    cluster.brokers[0].behaviour = nowhere
    async with producer(cluster, listener) as sending:
        with pytest.raises(MalformedRecord):
            await sending.send_in_transaction(ORDER)
    assert listener.executed == []


@simulated()
async def test_what_no_transaction_may_hold_is_refused(cluster: SimulatedCluster) -> None:
    listener = Listener()
    routing = {"CLUSTER": "c1", "CORRELATION_ID": "42", "REPLY_TO_CLIENT": "10.0.0.1@7"}
    async with producer(cluster, listener) as sending:
        for message in (
            Message("orders", b"x", delay_level=1),
            Message("orders", b"x", delay_seconds=1),
            Message("orders", b"x", delay_ms=1),
            Message("orders", b"x", deliver_at_ms=1),
            Message("orders", b""),
            reply_message(stored_message(properties=routing), b"reply"),
        ):
            with pytest.raises(InvalidMessage):
                await sending.send_in_transaction(message)
    with pytest.raises(IllegalState):
        await sending.send_in_transaction(ORDER)
    assert cluster.brokers[0].received == []


@simulated()
async def test_a_namespace_is_the_wires_business(cluster: SimulatedCluster) -> None:
    told = listen(cluster)
    listener, diary = Listener(), Diary()
    async with producer(cluster, listener, namespace="shop", hooks=[diary]) as sending:
        await sending.send_in_transaction(ORDER)
        (connection,) = cluster.brokers[0].connections
        await ask(connection, half("shop%group", topic="shop%orders"))
    assert cluster.brokers[0].received[0].properties["PGROUP"] == "shop%group"
    assert {end.header.producer_group for end in told} == {"shop%group"}
    assert {end.header.topic for end in told} == {"shop%orders"}
    assert listener.executed[0][0].topic == "orders"
    assert listener.checked[0].topic == "orders"
    assert {(each.producer_group, each.topic) for each in diary.ended} == {("group", "orders")}


# Telling a broker that is hard to reach.


@simulated()
async def test_a_broker_that_comes_back_in_time_is_told(cluster: SimulatedCluster) -> None:
    told = listen(cluster)
    (broker,) = cluster.brokers
    listener = Listener(takes=1)
    async with producer(cluster, listener) as sending:
        transaction = asyncio.create_task(sending.send_in_transaction(ORDER))
        await asyncio.sleep(0.5)
        await cluster.crash(broker)
        await asyncio.sleep(1.5)
        await cluster.restart(broker)
        result = await transaction
        await asyncio.sleep(0.01)
        assert result.state is COMMIT
        assert [end.header.commit_or_rollback for end in told] == [8]


@simulated(brokers=2)
async def test_a_broker_that_moved_is_told_where_it_is_now(cluster: SimulatedCluster) -> None:
    told = listen(cluster)
    cluster.add_topic("orders", brokers=["broker-a"])
    listener = Listener(takes=1)
    async with producer(cluster, listener) as sending:
        transaction = asyncio.create_task(sending.send_in_transaction(ORDER))
        await asyncio.sleep(0.5)
        await cluster.crash(cluster.broker("broker-a"))
        data = cluster.routes["orders"]
        (broker,) = data.broker_datas
        broker.broker_addrs[0] = "broker-b:10911"  # where its slave has become the master
        await transaction
        await asyncio.sleep(0.01)
    assert [(end.broker, end.header.broker_name) for end in told] == [("broker-b", "broker-a")]


def test_a_broker_that_can_not_be_told_is_left_to_ask(caplog: pytest.LogCaptureFixture) -> None:
    @simulated()
    async def test(cluster: SimulatedCluster) -> None:
        diary = Diary()
        async with producer(cluster, Listener(takes=1), send_timeout=2, hooks=[diary]) as sending:
            transaction = asyncio.create_task(sending.send_in_transaction(ORDER))
            await asyncio.sleep(0.5)
            await cluster.crash(cluster.brokers[0])
            result = await transaction
            assert result.state is COMMIT
            assert 2.5 < cluster.now < 3.1  # a second of work, and the time of a send
        assert diary.ended == []

    test()
    assert "ended with COMMIT, but its broker could not be told" in caplog.text


@simulated()
async def test_closing_waits_for_the_work_of_transactions(cluster: SimulatedCluster) -> None:
    told = listen(cluster)
    sending = producer(cluster, Listener(takes=5))
    await sending.start()
    transaction = asyncio.create_task(sending.send_in_transaction(ORDER))
    await asyncio.sleep(0.5)
    await sending.close()
    assert (await transaction).state is COMMIT
    assert len(told) == 1


# A broker asks.


@pytest.mark.parametrize(
    ("does", "bits", "remark"),
    [
        (lambda: COMMIT, 8, None),
        (lambda: ROLLBACK, 12, None),
        (lambda: UNKNOWN, 0, None),
        (
            lambda: 1 / 0,
            0,
            "checkLocalTransactionState Exception: ZeroDivisionError: division by zero",
        ),
    ],
)
def test_a_broker_that_asks_is_told(does: Callable[[], Any], bits: int, remark: str | None) -> None:
    @simulated()
    async def test(cluster: SimulatedCluster) -> None:
        told = listen(cluster)
        listener, diary = Listener(does), Diary()
        async with producer(cluster, listener, hooks=[diary]) as sending:
            await sending.send(ORDER)
            (connection,) = cluster.brokers[0].connections
            message = half(region="eu")
            await ask(connection, message)
            (end,) = told
            assert (end.is_oneway, end.remark) == (True, remark)
            assert end.header == EndTransaction(
                producer_group="group",
                tran_state_table_offset=21,
                commit_log_offset=2100,
                commit_or_rollback=bits,
                from_transaction_check=True,
                msg_id=message.message_id,
                transaction_id=message.message_id,
                topic="orders",
                broker_name="broker-a",
            )
            (checked,) = listener.checked
            assert (checked.body, checked.message_id) == (b"body", message.message_id)
            (ended,) = diary.ended
            assert (ended.is_from_check, ended.tags) == (True, "paid")
            assert (ended.address, ended.region_id) == ("broker-a:10911", "eu")
            # It asks again as long as it does not know.
            await ask(connection, message)
            assert len(told) == 2

    test()


@simulated()
async def test_4_9_brokers_do_not_say_who_they_are(cluster: SimulatedCluster) -> None:
    told = listen(cluster)
    async with producer(cluster, Listener()) as sending:
        await sending.send(ORDER)
        (connection,) = cluster.brokers[0].connections
        await ask(connection, half(), broker_name=None, transaction_id=None, topic=None)
    (end,) = told
    assert (end.header.broker_name, end.header.topic) == (None, "orders")


@simulated()
async def test_the_right_producer_of_a_client_is_asked(cluster: SimulatedCluster) -> None:
    told = listen(cluster)
    first, second = Listener(), Listener(lambda: ROLLBACK)
    async with producer(cluster, first, "first") as sending, producer(cluster, second, "second"):
        await sending.send(ORDER)
        (connection,) = cluster.brokers[0].connections
        await ask(connection, half("second"))
        await ask(connection, half("first"))
    assert [(each.header.producer_group, each.header.commit_or_rollback) for each in told] == [
        ("second", 12),
        ("first", 8),
    ]


def test_questions_nobody_here_can_answer_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    @simulated()
    async def test(cluster: SimulatedCluster) -> None:
        told = listen(cluster)
        listener = Listener()
        async with (
            producer(cluster, listener) as sending,
            cluster.producer("plain"),
        ):
            await sending.send(ORDER)
            (connection,) = cluster.brokers[0].connections
            await ask(connection, half("elsewhere"))
            await ask(connection, half("plain"))
            await ask(connection, stored_message())  # of no group
            command = CheckTransactionState(tran_state_table_offset=0, commit_log_offset=0)
            await connection.send_oneway(command.to_command(b"no record"), timeout=1)
            await asyncio.sleep(0.01)
            assert (told, listener.checked) == ([], [])
            await ask(connection, half())  # and all is well
            assert len(told) == 1

    test()
    for group in ("'elsewhere'", "'plain'", "None"):
        assert f"of group {group} ended, but no transaction producer of that group" in caplog.text


@simulated()
async def test_questions_are_asked_one_after_another(cluster: SimulatedCluster) -> None:
    told = listen(cluster)
    async with producer(cluster, Listener(takes=1)) as sending:
        await sending.send(ORDER)
        (connection,) = cluster.brokers[0].connections
        for _ in range(3):
            await ask(connection, half())
        await asyncio.sleep(4)
        first, second, third = (end.at for end in told)
        assert second - first == pytest.approx(1)
        assert third - second == pytest.approx(1)


def test_too_many_questions_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    @simulated()
    async def test(cluster: SimulatedCluster) -> None:
        told = listen(cluster)
        limits: dict[str, Any] = {"transaction_checks_max": 2, "transaction_checks_waiting_max": 3}
        listener = Listener(takes=1)
        async with producer(cluster, listener, **limits) as sending:
            await sending.send(ORDER)
            (connection,) = cluster.brokers[0].connections
            for _ in range(10):
                await ask(connection, half())
            assert len(listener.checked) == 2
            await asyncio.sleep(10)
            assert len(told) == 5
            await ask(connection, half())  # there is room again
            await asyncio.sleep(2)
            assert len(told) == 6

    test()
    assert caplog.text.count("too many such questions wait already") == 5


@simulated()
async def test_a_broker_is_told_though_its_connection_is_lost(cluster: SimulatedCluster) -> None:
    told = listen(cluster)
    async with producer(cluster, Listener(takes=1)) as sending:
        await sending.send(ORDER)
        (connection,) = cluster.brokers[0].connections
        await ask(connection, half())
        cluster.network.reset("client", "broker-a")
        await asyncio.sleep(2)
        assert len(told) == 1


@simulated()
async def test_closing_does_not_wait_for_questions(cluster: SimulatedCluster) -> None:
    told = listen(cluster)
    listener = Listener(takes=3600)
    async with producer(cluster, listener) as sending:
        await sending.send(ORDER)
        (connection,) = cluster.brokers[0].connections
        for _ in range(3):
            await ask(connection, half())
    assert cluster.now < 1
    assert len(listener.checked) == 1
    assert told == []


# Plain functions.


class Plain:
    def __init__(self) -> None:
        self.threads: set[str] = set()

    def execute(self, message: HalfMessage, arg: Any) -> TransactionState:
        self.threads.add(threading.current_thread().name)
        return COMMIT

    def check(self, message: StoredMessage) -> TransactionState:
        return COMMIT


def test_a_plain_listener_runs_in_threads_that_end_with_the_producer() -> None:
    listener = Plain()

    async def main() -> None:
        sending = AsyncTransactionProducer("g", listener, namesrv="n:9876", listener_threads_max=1)
        asked = (sending._ask("", listener.execute, None, None) for _ in range(5))
        assert await asyncio.gather(*asked) == [(COMMIT, None)] * 5
        await sending.close()

    asyncio.run(main())
    (name,) = listener.threads
    assert name.startswith("rocketpipe-listener")
    assert name not in {thread.name for thread in threading.enumerate()}


def test_the_log_of_a_broken_listener_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    @simulated()
    async def test(cluster: SimulatedCluster) -> None:
        async with producer(cluster, Listener(lambda: 1 / 0)) as sending:
            await sending.send_in_transaction(ORDER)

    test()
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.exc_info is not None
