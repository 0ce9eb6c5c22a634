"""Transactions: half messages, their ends, and what is asked when no end is heard of."""

import asyncio
from typing import Any

import pytest

from rocketpipe.broker.broker import Broker
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.transactions import Verdict, judge
from rocketpipe.codes import RequestCode
from rocketpipe.errors import BrokerError
from rocketpipe.message import StoredMessage
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.message_id import parse_offset_message_id
from rocketpipe.wire.record import decode_record
from rocketpipe.wire.requests.callbacks import CheckTransactionState
from rocketpipe.wire.requests.sending import EndTransaction, SendMessageReply
from tests.unit.broker.bench import Bench, messages, send, simulated
from tests.unit.broker.test_clients import heartbeat

HALF, OP, GIVEN_UP = (
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
)
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


async def send_half(
    client: Connection, bench: Bench, body: bytes = b"deal", **properties: str
) -> SendMessageReply:
    return await send(
        client,
        body=body,
        queue_id=2,
        sys_flag=4,
        born_timestamp=bench.clock.wall_ms(),
        properties={"UNIQ_KEY": "U1", "TRAN_MSG": "true", "PGROUP": "dealers", **properties},
    )


def end_of(half: SendMessageReply, end: int = COMMIT, **changes: Any) -> EndTransaction:
    fields: dict[str, Any] = {
        "producer_group": "dealers",
        "tran_state_table_offset": half.queue_offset,
        "commit_log_offset": parse_offset_message_id(half.msg_id).physical_offset,
        "commit_or_rollback": end,
        "from_transaction_check": False,
        "msg_id": "U1",
    }
    return EndTransaction(**(fields | changes))


class Producer:
    """A producer of the group, which notes what it is asked and answers as it is told."""

    def __init__(self, bench: Bench, broker: Broker, end: int | None = None) -> None:
        self.asked: list[tuple[float, CheckTransactionState, StoredMessage]] = []
        self.end = end
        self.connection: Connection
        self._client = bench.client(broker.address, handler=self._asked)

    async def __aenter__(self) -> "Producer":
        self.connection = await self._client.__aenter__()
        await self.beat()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.__aexit__(None, None, None)

    async def beat(self) -> None:
        await heartbeat(self.connection, "producer", producers=("dealers",))

    async def keep_beating(self, seconds: float) -> None:
        for _ in range(round(seconds / 30)):
            await asyncio.sleep(30)
            await self.beat()

    async def _asked(self, connection: Connection, request: RemotingCommand) -> None:
        assert request.code == RequestCode.CHECK_TRANSACTION_STATE
        assert request.is_oneway
        header = CheckTransactionState.from_ext_fields(request.ext_fields)
        now = asyncio.get_running_loop().time()
        self.asked.append((now, header, decode_record(request.body)))
        if self.end is not None:
            end = EndTransaction(
                producer_group="dealers",
                tran_state_table_offset=header.tran_state_table_offset,
                commit_log_offset=header.commit_log_offset,
                commit_or_rollback=self.end,
                from_transaction_check=True,
                msg_id="U1",
            )
            await connection.send_oneway(end.to_command(), timeout=3)


@simulated
async def test_a_half_message_is_seen_by_nobody_until_it_is_committed(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        reply = await send_half(client, bench)
        assert (reply.queue_id, reply.queue_offset) == (2, 0)
        assert messages(broker, queue_id=2) == []
        (half,) = messages(broker, HALF)
        await client.request(end_of(reply), timeout=3)
        (deal,) = messages(broker, queue_id=2)
        (note,) = messages(broker, OP)
    assert half.sys_flag & 12 == 0
    assert half.properties["REAL_TOPIC"] == "orders"
    assert half.properties["REAL_QID"] == "2"
    assert half.properties["__transactionId__"] == "U1"
    assert deal.sys_flag & 12 == COMMIT
    assert deal.prepared_transaction_offset == half.physical_offset
    assert deal.body == half.body
    gone = {"REAL_TOPIC": "orders", "REAL_QID": "2"}
    assert {**deal.properties, **gone} == half.properties
    assert not deal.properties.keys() & gone.keys()
    assert (note.body, note.tags) == (b"0,", "d")


@simulated
async def test_a_message_that_is_rolled_back_never_comes(bench: Bench) -> None:
    async with bench.broker() as broker, Producer(bench, broker) as producer:
        reply = await send_half(producer.connection, bench)
        await producer.connection.request(end_of(reply, ROLLBACK), timeout=3)
        await asyncio.sleep(100)
        assert messages(broker, queue_id=2) == []
        assert [note.body for note in messages(broker, OP)] == [b"0,"]
        assert producer.asked == []


@simulated
async def test_an_end_that_is_told_twice_is_one(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        reply = await send_half(client, bench)
        ends = [end_of(reply), end_of(reply), end_of(reply, ROLLBACK)]
        await asyncio.gather(*(client.request(end, timeout=3) for end in ends))
        assert len(messages(broker, queue_id=2)) == 1
        assert len(messages(broker, OP)) == 1


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"commit_log_offset": 7}, "Find prepared transaction message failed"),
        ({"commit_log_offset": 1 << 40}, "Find prepared transaction message failed"),
        ({"producer_group": "others"}, "The producer group wrong"),
        ({"tran_state_table_offset": 7}, "The transaction state table offset wrong"),
        ({"msg_id": "U2"}, "Find prepared transaction message failed"),  # beyond Apache
    ],
)
def test_a_wrong_end_is_refused_in_apaches_words(change: dict[str, Any], remark: str) -> None:
    @simulated
    async def test(bench: Bench) -> None:
        async with bench.broker() as broker, bench.client(broker.address) as client:
            reply = await send_half(client, bench)
            with pytest.raises(BrokerError) as refused:
                await client.request(end_of(reply, **change), timeout=3)
            assert (refused.value.code, refused.value.remark) == (1, remark)
            assert messages(broker, queue_id=2) == []

    test()


@simulated
async def test_what_is_no_half_message_can_not_be_committed(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        reply = await send(client, properties={"UNIQ_KEY": "U", "PGROUP": "dealers"})
        with pytest.raises(BrokerError, match="Find prepared transaction message failed"):
            await client.request(end_of(reply), timeout=3)


@simulated
async def test_a_producer_is_asked_when_no_end_is_heard_of(bench: Bench) -> None:
    async with bench.broker() as broker, Producer(bench, broker, COMMIT) as producer:
        await asyncio.sleep(28)
        await send_half(producer.connection, bench)  # too young to be asked about at 30 s
        await asyncio.sleep(40)
        ((when, header, copy),) = producer.asked
        assert 60 <= when <= 61
        (deal,) = messages(broker, queue_id=2)
        assert (copy.topic, copy.queue_id, copy.body) == ("orders", 2, b"deal")
        assert copy.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert (header.msg_id, header.transaction_id, header.topic) == ("U1", "U1", HALF)
        assert header.broker_name == "broker-a"
        assert header.offset_msg_id == messages(broker, HALF)[1].offset_message_id
        assert deal.prepared_transaction_offset == header.commit_log_offset
        assert "TRAN_PREPARED_QUEUE_OFFSET" not in deal.properties
        await producer.keep_beating(100)
        assert len(producer.asked) == 1


@simulated
async def test_producers_are_asked_until_enough_is_enough(bench: Bench) -> None:
    settings = {"transaction_check_max": 3, "transaction_check_interval": 10.0}
    async with bench.broker(**settings) as broker, Producer(bench, broker, UNKNOWN) as producer:
        await send_half(producer.connection, bench)
        await producer.keep_beating(120)
        times = [copy.properties["TRANSACTION_CHECK_TIMES"] for _, _, copy in producer.asked]
        assert times == ["1", "2", "3"]
        (given_up,) = messages(broker, GIVEN_UP)
        assert given_up.properties["REAL_TOPIC"] == "orders"
        assert given_up.body == b"deal"
        assert messages(broker, queue_id=2) == []


@simulated
async def test_the_timeout_is_a_setting(bench: Bench) -> None:
    settings = {"transaction_timeout": 25.0, "transaction_check_interval": 10.0}
    async with bench.broker(**settings) as broker, Producer(bench, broker, COMMIT) as producer:
        await send_half(producer.connection, bench)
        await asyncio.sleep(60)
        assert [round(when) for when, _, _ in producer.asked] == [30]


@simulated
async def test_a_message_may_ask_for_more_time_and_holds_up_no_other(bench: Bench) -> None:
    settings = {"transaction_check_interval": 10.0}
    async with bench.broker(**settings) as broker, Producer(bench, broker, COMMIT) as producer:
        slow = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "65"}
        await send_half(producer.connection, bench, b"slow", **slow)
        await send_half(producer.connection, bench, b"quick")
        await producer.keep_beating(120)
        asked = {copy.body: round(when) for when, _, copy in producer.asked}
        assert asked == {b"quick": 10, b"slow": 70}
        assert [deal.body for deal in messages(broker, queue_id=2)] == [b"quick", b"slow"]


@simulated
async def test_an_end_that_comes_after_the_time_asked_for_is_refused(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        reply = await send_half(client, bench, CHECK_IMMUNITY_TIME_IN_SECONDS="7")
        await asyncio.sleep(8)
        with pytest.raises(BrokerError) as refused:
            await client.request(end_of(reply), timeout=3)
        assert refused.value.code == 604
        await client.request(end_of(reply, from_transaction_check=True), timeout=3)
        assert len(messages(broker, queue_id=2)) == 1


@simulated
async def test_an_end_that_comes_after_the_question_ends_the_questions(bench: Bench) -> None:
    async with bench.broker() as broker, Producer(bench, broker) as producer:
        reply = await send_half(producer.connection, bench)
        await asyncio.sleep(40)
        assert len(producer.asked) == 1
        await producer.connection.request(end_of(reply), timeout=3)  # about the first copy
        await producer.keep_beating(120)
        assert len(producer.asked) == 1
        assert len(messages(broker, queue_id=2)) == 1


@simulated
async def test_what_is_pending_and_what_is_done_outlive_a_broker(bench: Bench) -> None:
    async with bench.broker() as broker, Producer(bench, broker) as producer:
        asked_about = await send_half(producer.connection, bench, b"asked about")
        await asyncio.sleep(40)
        done = await send_half(producer.connection, bench, b"done")
        await producer.connection.request(end_of(done), timeout=3)
        await send_half(producer.connection, bench, b"pending")
    async with bench.broker() as broker, Producer(bench, broker) as producer:
        await producer.connection.request(end_of(asked_about), timeout=3)
        await producer.keep_beating(60)
        assert {copy.body for _, _, copy in producer.asked} == {b"pending"}
        assert [m.body for m in messages(broker, queue_id=2)] == [b"done", b"asked about"]


@simulated
async def test_a_crash_forgets_no_end(bench: Bench) -> None:
    broker = bench.make_broker()
    await broker.start()
    async with bench.client(broker.address) as client:
        reply = await send_half(client, bench)
        await client.request(end_of(reply), timeout=3)
    await broker.kill()
    async with bench.broker() as broker, Producer(bench, broker) as producer:
        await asyncio.sleep(100)
        assert producer.asked == []


@simulated
async def test_a_crash_doubles_no_question(bench: Bench) -> None:
    broker = bench.make_broker(flush_consumer_offset_interval=1000.0)
    await broker.start()
    async with Producer(bench, broker) as producer:
        await send_half(producer.connection, bench)
        await producer.keep_beating(120)
        assert len(producer.asked) >= 3
    await broker.kill()
    async with bench.broker() as broker, Producer(bench, broker, COMMIT) as producer:
        await producer.keep_beating(60)
        assert len(producer.asked) == 1
        assert len(messages(broker, queue_id=2)) == 1


@simulated
async def test_each_of_several_late_answers_may_be_the_end_but_only_one_is(bench: Bench) -> None:
    async with bench.broker() as broker, Producer(bench, broker) as producer:
        await send_half(producer.connection, bench)
        await producer.keep_beating(120)
        for _, header, _ in producer.asked:
            end = EndTransaction(
                producer_group="dealers",
                tran_state_table_offset=header.tran_state_table_offset,
                commit_log_offset=header.commit_log_offset,
                commit_or_rollback=COMMIT,
                from_transaction_check=True,
                msg_id="U1",
            )
            await producer.connection.request(end, timeout=3)
            await producer.keep_beating(60)
        assert len(producer.asked) >= 3
        assert len(messages(broker, queue_id=2)) == 1


@simulated
async def test_nothing_is_lost_when_nobody_is_there_to_ask_or_the_disk_is_stuck(
    bench: Bench,
) -> None:
    settings = {"transaction_check_interval": 10.0}
    async with bench.broker(**settings) as broker:
        async with bench.client(broker.address) as client:
            await send_half(client, bench)
        await asyncio.sleep(20)
        bench.disk.is_stuck = True
        await asyncio.sleep(20)
        bench.disk.is_stuck = False
        async with Producer(bench, broker, COMMIT) as producer:
            await asyncio.sleep(40)
            assert len(producer.asked) == 1
        assert len(messages(broker, queue_id=2)) == 1


@simulated
async def test_a_committed_message_with_a_delay_waits_then(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        reply = await send_half(client, bench, DELAY="2")
        await client.request(end_of(reply), timeout=3)
        assert messages(broker, queue_id=2) == []
        await asyncio.sleep(5.1)
        assert len(messages(broker, queue_id=2)) == 1


@simulated
async def test_a_broker_may_refuse_transactions(bench: Bench) -> None:
    settings = {"reject_transaction_message": True}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        with pytest.raises(BrokerError, match="sending transaction message is forbidden") as error:
            await send_half(client, bench)
        assert error.value.code == 16


@simulated
async def test_an_end_that_comes_while_the_question_is_being_stored_counts(bench: Bench) -> None:
    settings = {"transaction_check_interval": 10.0}
    async with bench.broker(**settings) as broker, Producer(bench, broker) as producer:
        reply = await send_half(producer.connection, bench)
        await asyncio.sleep(9.5)
        bench.disk.is_stuck = True
        await asyncio.sleep(1)  # the check has begun
        end = asyncio.create_task(producer.connection.request(end_of(reply), timeout=20))
        await asyncio.sleep(0.2)
        bench.disk.is_stuck = False
        await end
        await producer.keep_beating(90)
        assert len(producer.asked) == 1  # the question that was on its way
        assert len(messages(broker, queue_id=2)) == 1


@simulated
async def test_a_commit_that_could_not_be_stored_may_be_tried_again(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        reply = await send_half(client, bench)
        bench.disk.fails_writes = True
        with pytest.raises(BrokerError, match="Service not available now") as refused:
            await client.request(end_of(reply), timeout=3)
        assert refused.value.code == 14
        bench.disk.fails_writes = False
        await client.request(end_of(reply), timeout=3)
        assert len(messages(broker, queue_id=2)) == 1


def half_message(bench: Bench, age: float, **properties: str) -> StoredMessage:
    return StoredMessage(
        topic=HALF,
        body=b"",
        properties=properties,
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        flag=0,
        sys_flag=0,
        body_crc=0,
        born_timestamp_ms=bench.clock.wall_ms() - round(age * 1000),
        born_host="",
        store_timestamp_ms=0,
        store_host="",
        reconsume_times=0,
        prepared_transaction_offset=0,
        store_size=0,
    )


@simulated
async def test_when_a_producer_is_asked(bench: Bench) -> None:
    settings = BrokerSettings()
    immune = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    for age, properties, verdict in [
        (5.9, {}, Verdict.WAIT),
        (6.1, {}, Verdict.ASK),
        (-1.0, {}, Verdict.ASK),  # born in the future: the clocks can't be trusted
        (73 * 3600.0, {}, Verdict.GIVE_UP),
        (3.0, {immune: "1"}, Verdict.KEEP),  # never less than the others have
        (6.1, {immune: "1"}, Verdict.ASK),
        (59.0, {immune: "60"}, Verdict.KEEP),
        (61.0, {immune: "60"}, Verdict.ASK),
        (61.0, {immune: "soon"}, Verdict.ASK),
        (7.0, {"TRANSACTION_CHECK_TIMES": "14"}, Verdict.ASK),
        (7.0, {"TRANSACTION_CHECK_TIMES": "15"}, Verdict.GIVE_UP),
        (7.0, {"TRANSACTION_CHECK_TIMES": "?"}, Verdict.ASK),
    ]:
        half = half_message(bench, age, **properties)
        assert judge(half, settings, bench.clock.wall_ms()) is verdict, (age, properties)


@simulated
async def test_what_is_done_with_is_not_read_again(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for _ in range(40):
            await client.request(end_of(await send_half(client, bench)), timeout=3)
        await asyncio.sleep(40)
        assert broker.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 40
        assert broker.offsets.query("CID_RMQ_SYS_TRANS", OP, 0) == 40


@simulated
async def test_nobody_else_counts_the_questions(bench: Bench) -> None:
    async with bench.broker() as broker, Producer(bench, broker) as producer:
        await send_half(
            producer.connection,
            bench,
            TRANSACTION_CHECK_TIMES="14",
            TRAN_PREPARED_QUEUE_OFFSET="7",
        )
        await asyncio.sleep(40)
        ((_, _, copy),) = producer.asked
        assert copy.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"


@simulated
async def test_a_message_that_is_consumed_again_is_no_half_message_any_more(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        properties = {"UNIQ_KEY": "U", "TRAN_MSG": "true", "PGROUP": "dealers", "DELAY": "1"}
        await send(client, "%RETRY%readers", reconsume_times=1, properties=properties)
        assert messages(broker, HALF) == []
        await asyncio.sleep(1.5)
        assert len(messages(broker, "%RETRY%readers")) == 1
