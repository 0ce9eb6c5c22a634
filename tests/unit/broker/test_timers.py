"""Timers: when they come, how they are stored, and what of them outlives a broker."""

import asyncio
from base64 import urlsafe_b64encode
from typing import Any

import pytest

from rocketpipe.broker import timers
from rocketpipe.broker.broker import Broker
from rocketpipe.broker.settings import BrokerRole, BrokerSettings
from rocketpipe.broker.store.message_store import MessageStore
from rocketpipe.broker.store.settings import StoreSettings
from rocketpipe.broker.timer_wheel import TimerWheel
from rocketpipe.codes import RequestCode
from rocketpipe.errors import BrokerError, InvalidSetting
from rocketpipe.remoting.connection import Connection
from rocketpipe.testing.simulated_disk import SimulatedDisk
from rocketpipe.wire.bodies.timers import TimerCheckpoint
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.message_id import RecallHandle, parse_recall_handle
from rocketpipe.wire.requests.sending import SendMessageReply
from tests.unit.broker.bench import Bench, messages, send, simulated
from tests.unit.broker.test_replication import slave_of

TIMERS = "rmq_sys_wheel_timer"
DAY = 24 * 3600
HOUR = 3600


async def send_timed(client: Connection, body: bytes, **timed: int) -> SendMessageReply:
    """`DELAY_SEC=5`, say; the unique id is the body."""
    properties = {f"TIMER_{name}": str(value) for name, value in timed.items()}
    properties["UNIQ_KEY"] = body.decode()
    return await send(client, body=body, queue_id=2, properties=properties)


def bodies(broker: Broker) -> list[bytes]:
    return [each.body for each in messages(broker, queue_id=2)]


def lateness_ms(broker: Broker, deliver_ms: int) -> list[int]:
    """How long after that time each message was stored."""
    return [each.store_timestamp_ms - deliver_ms for each in messages(broker, queue_id=2)]


# When.


@simulated
async def test_a_message_comes_at_the_end_of_its_second(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        now_ms = bench.clock.wall_ms()
        deliver_ms = now_ms // 1000 * 1000 + 5300
        reply = await send_timed(client, b"later", DELIVER_MS=deliver_ms)
        assert (reply.queue_id, reply.queue_offset) == (2, 0)
        await asyncio.sleep(20)
        (waited,) = messages(broker, TIMERS)
        (came,) = messages(broker, queue_id=2)
    slot = str(now_ms // 1000 * 1000 + 5000)
    extra = {"TIMER_OUT_MS": slot, "REAL_TOPIC": "orders", "REAL_QID": "2"}
    assert extra.items() <= waited.properties.items()
    assert 0 <= came.store_timestamp_ms - int(slot) - 1000 < 100
    # As Apache delivers it.
    added = {
        "TIMER_ENQUEUE_MS": str(waited.store_timestamp_ms // 1000 * 1000),
        "TIMER_DEQUEUE_MS": came.properties["TIMER_DEQUEUE_MS"],
    }
    assert came.properties == {**waited.properties, **added}
    assert 0 <= came.store_timestamp_ms - int(added["TIMER_DEQUEUE_MS"]) < 100
    assert (came.body, came.born_timestamp_ms) == (b"later", waited.born_timestamp_ms)
    assert came.born_host == waited.born_host


@pytest.mark.parametrize("precision_ms", [1000, 500, 200, 100])
def test_no_message_comes_early_and_none_later_than_a_slot(precision_ms: int) -> None:
    @simulated
    async def test(bench: Bench) -> None:
        store = StoreSettings(timer_precision=precision_ms / 1000)
        async with bench.broker(store=store) as broker, bench.client(broker.address) as client:
            for delay_ms in (1, 99, 100, 999, 1000, 1001, 59_999, 61_234, 1_000_000):
                count = len(bodies(broker))
                now_ms = bench.clock.wall_ms()
                deliver_ms = (now_ms // 1000 + 1) * 1000 + delay_ms
                await send_timed(client, b"%d" % delay_ms, DELIVER_MS=deliver_ms)
                assert len(bodies(broker)) == count
                await asyncio.sleep((deliver_ms - now_ms) / 1000 + 2)
                assert 0 <= lateness_ms(broker, deliver_ms)[-1] <= precision_ms + 100
                assert len(bodies(broker)) == count + 1

    test()


@simulated
async def test_seconds_win_over_milliseconds_and_these_over_a_time(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        now_ms = bench.clock.wall_ms()
        times = {"DELIVER_MS": now_ms + 50_000, "DELAY_MS": 20_000, "DELAY_SEC": 5}
        await send_timed(client, b"seconds", **times)
        del times["DELAY_SEC"]
        await send_timed(client, b"ms", **times)
        await asyncio.sleep(7)
        assert bodies(broker) == [b"seconds"]
        await asyncio.sleep(15)
        assert bodies(broker) == [b"seconds", b"ms"]


@simulated
async def test_messages_of_a_slot_come_in_the_order_in_which_they_were_sent(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        deliver_ms = bench.clock.wall_ms() + 60_000
        for number in range(100):
            await send_timed(client, b"%d" % number, DELIVER_MS=deliver_ms)
        await send_timed(client, b"before", DELIVER_MS=deliver_ms - 2000)
        await asyncio.sleep(62)
        assert bodies(broker) == [b"before", *(b"%d" % number for number in range(100))]


@simulated
async def test_a_time_in_the_past_is_at_once_and_waits_nowhere(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for times in ({"DELIVER_MS": bench.clock.wall_ms() - 1}, {"DELAY_SEC": -5}):
            reply = await send_timed(client, b"late", **times)
            assert reply.recall_handle is None
        assert bodies(broker) == [b"late", b"late"]
        assert messages(broker, TIMERS) == []
        properties = {"UNIQ_KEY": "U", "__STARTDELIVERTIME": str(bench.clock.wall_ms() + 60_000)}
        await send(client, queue_id=2, properties=properties)  # which no broker looks at
        waited = {"UNIQ_KEY": "U", "TIMER_DELAY_SEC": "60", "TIMER_OUT_MS": "1"}
        await send(client, queue_id=2, properties=waited)  # it has waited already
        assert len(bodies(broker)) == 4


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "soon"},
        {"TIMER_DELAY_MS": "1.5"},
        {"TIMER_DELIVER_MS": "99999999999999999999"},
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELIVER_MS": "9000000000000"},
        {"TIMER_DELIVER_MS": "5", "TIMER_DEL_UNIQKEY": "U"},
    ],
)
def test_a_time_that_can_not_be_had_is_refused(properties: dict[str, str]) -> None:
    @simulated
    async def test(bench: Bench) -> None:
        async with bench.broker() as broker, bench.client(broker.address) as client:
            with pytest.raises(BrokerError) as refused:
                await send(client, properties={"UNIQ_KEY": "U", **properties})
            assert refused.value.code == 13
            assert refused.value.remark == (
                "timer message illegal, the delay time should not be bigger than the max delay "
                "259200000ms; or if set del msg, the delay time should be bigger than the current "
                "time"
            )
            assert messages(broker) == messages(broker, TIMERS) == []

    test()


@simulated
async def test_without_the_wheel_timers_are_refused_and_those_there_are_wait(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send_timed(client, b"later", DELAY_SEC=5)
    async with (
        bench.broker(timer_wheel_enable=False) as broker,
        bench.client(broker.address) as client,
    ):
        with pytest.raises(BrokerError) as refused:
            await send_timed(client, b"later", DELAY_SEC=5)
        assert refused.value.code == 1
        assert refused.value.remark == (
            "accurate timer message is not enabled, timerWheelEnable is false"
        )
        await asyncio.sleep(10)
        assert bodies(broker) == []
    async with bench.broker() as broker:
        await asyncio.sleep(1)
        assert bodies(broker) == [b"later"]


@simulated
async def test_nobody_sends_to_the_timers_themselves(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        with pytest.raises(BrokerError) as refused:
            await send(client, TIMERS)
        assert refused.value.code == 16
        assert TIMERS in broker.topics.table


@simulated
async def test_properties_that_could_not_grow_are_refused(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for size in range(32_400, 32_767, 10):
            properties = {"UNIQ_KEY": "U", "TIMER_DELAY_SEC": "3", "x": "x" * size}
            try:
                await send(client, properties=properties)
            except BrokerError as error:
                assert error.code == 13
        waiting = messages(broker, TIMERS)
        assert 0 < len(waiting) < 37
        await asyncio.sleep(5)
        assert len(messages(broker)) == len(waiting)


def test_a_precision_is_one_of_rocketmqs() -> None:
    with pytest.raises(InvalidSetting, match=r"timer_precision is 0\.3"):
        StoreSettings(timer_precision=0.3)


# Restarts and crashes.


@simulated
async def test_what_waits_outlives_a_broker_and_what_came_does_not_come_again(
    bench: Bench,
) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send_timed(client, b"third", DELAY_SEC=100)
        await send_timed(client, b"first", DELAY_SEC=2)
        await asyncio.sleep(5)
        await send_timed(client, b"second", DELAY_SEC=20)
        assert bodies(broker) == [b"first"]
    async with bench.broker() as broker:
        await asyncio.sleep(10)
        assert bodies(broker) == [b"first"]
    await asyncio.sleep(30)
    async with bench.broker() as broker:
        await asyncio.sleep(0.1)
        assert bodies(broker) == [b"first", b"second"]
        await asyncio.sleep(60)
        assert bodies(broker) == [b"first", b"second", b"third"]


@pytest.mark.parametrize("keeps_checkpoint", [True, False])
def test_a_broker_that_was_killed_finds_what_it_had_delivered(
    keeps_checkpoint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = []
    was_delivered = timers.TimedMessages._was_delivered

    def counted(self: timers.TimedMessages, *args: Any) -> bool:
        looked_up.append(args)
        return was_delivered(self, *args)

    monkeypatch.setattr(timers.TimedMessages, "_was_delivered", counted)

    @simulated
    async def test(bench: Bench) -> None:
        interval = 1.0 if keeps_checkpoint else 1000.0
        broker = bench.make_broker(timer_flush_interval=interval)
        await broker.start()
        async with bench.client(broker.address) as client:
            for number in range(40):
                await send_timed(client, b"%d" % number, DELAY_SEC=number // 4 + 1)
            # Two sends of the same message are two messages.
            await send_timed(client, b"0", DELAY_SEC=5)
            await asyncio.sleep(6)
            came = bodies(broker)
            assert 18 < len(came) < 36
        await broker.kill()
        async with bench.broker() as broker:
            await asyncio.sleep(20)
            assert bodies(broker)[: len(came)] == came
            assert sorted(bodies(broker)) == sorted([b"0", *(b"%d" % n for n in range(40))])

    test()
    # The checkpoint is what saves the work.
    assert (len(looked_up) < 15) == keeps_checkpoint


@simulated
async def test_a_power_loss_delivers_again_what_it_took_and_nothing_else(bench: Bench) -> None:
    store = StoreSettings(flush_interval=4.0)
    broker = bench.make_broker(store=store)
    await broker.start()
    async with bench.client(broker.address) as client:
        now_ms = bench.clock.wall_ms()
        for number in range(12):
            await send_timed(client, b"%d" % number, DELIVER_MS=now_ms + 4000 + number * 1000)
        await asyncio.sleep(11)
    bench.disk.lose_power()
    await broker.kill()
    async with bench.broker(store=store) as broker:
        await asyncio.sleep(20)
        # All is there, and once: also what was delivered, but not yet safe.
        assert bodies(broker) == [b"%d" % number for number in range(12)]


@simulated
async def test_a_stuck_disk_delays_but_loses_and_doubles_nothing(bench: Bench) -> None:
    settings = {"wait_time_in_send_queue": 60.0}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        for number in range(100):
            await send_timed(client, b"%d" % number, DELAY_SEC=3)
        bench.disk.is_stuck = True
        stuck = asyncio.create_task(send(client, "other"))
        await asyncio.sleep(10)
        assert bodies(broker) == []
        bench.disk.is_stuck = False
        await asyncio.wait([stuck])
        stuck.exception()
        await asyncio.sleep(5)
        assert sorted(bodies(broker)) == sorted(b"%d" % number for number in range(100))


@simulated
async def test_a_timer_that_can_not_be_delivered_holds_up_no_other(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send_timed(client, b"x" * 500, DELAY_SEC=2)
        await send_timed(client, b"small", DELAY_SEC=2)
    store = StoreSettings(message_bytes_max=100)
    async with bench.broker(store=store) as broker:
        await asyncio.sleep(4)
        assert bodies(broker) == [b"small"]


@simulated
async def test_a_mistake_of_ours_costs_no_timer(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for number in range(100):
            await send_timed(client, b"%d" % number, DELAY_SEC=3)
        read, count = MessageStore.record_at, 0

        def record_at(self: MessageStore, offset: int) -> bytes | None:
            nonlocal count
            count += 1
            if count == 50:
                raise RuntimeError("a mistake")
            return read(self, offset)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MessageStore, "record_at", record_at)
            await asyncio.sleep(30)
        assert bodies(broker) == [b"%d" % number for number in range(100)]


@simulated
async def test_a_timer_is_stored_anew_before_the_log_deletes_it(bench: Bench) -> None:
    store = StoreSettings(
        file_reserved_time=1200.0, timer_roll_window_slots=300, commit_log_segment_bytes=1000
    )
    async with bench.broker(store=store, **RECALLING) as broker:
        now_ms = bench.clock.wall_ms()
        async with bench.client(broker.address) as client:
            for number in range(10):
                await send_timed(client, b"%d" % number, DELIVER_MS=now_ms + HOUR * 1000)
            unwanted = await send_timed(client, b"unwanted", DELIVER_MS=now_ms + HOUR * 1000)
            assert unwanted.recall_handle is not None
            assert (await recall(client, unwanted.recall_handle)).code == 0
        for _ in range(HOUR // 300):
            await asyncio.sleep(300)
            async with bench.client(broker.address) as client:
                await send(client, "other")
        assert broker.store.min_physical_offset > 1000
        await asyncio.sleep(10)
        assert bodies(broker) == [b"%d" % number for number in range(10)]
        assert all(0 <= late <= 1100 for late in lateness_ms(broker, now_ms + HOUR * 1000))
        (times,) = {each.properties["TIMER_ROLL_TIMES"] for each in messages(broker, queue_id=2)}
        assert 8 < int(times) < 13


@simulated
async def test_a_broker_that_was_killed_stores_no_timer_anew_twice(bench: Bench) -> None:
    store = StoreSettings(timer_roll_window_slots=60)
    broker = bench.make_broker(store=store, timer_flush_interval=10_000.0)
    await broker.start()
    async with bench.client(broker.address) as client:
        await send_timed(client, b"later", DELAY_SEC=150)
    await asyncio.sleep(70)
    await broker.kill()
    async with bench.broker(store=store) as broker:
        await asyncio.sleep(300)
        assert bodies(broker) == [b"later"]
        assert len(messages(broker, TIMERS)) == 3  # at first, and after each minute


@simulated
async def test_a_checkpoint_of_another_log_is_not_used(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send_timed(client, b"later", DELAY_SEC=3)
        broker.timers.checkpoint = TimerCheckpoint(
            last_read_time_ms=1 << 60, first_waiting_offset=99, queue_offset=99, log_offset=1 << 60
        )
        broker.timers.saved.changed()
        await broker.timers.saved.wait_saved()
        await broker.kill()
    async with bench.broker() as broker:
        await asyncio.sleep(5)
        assert bodies(broker) == [b"later"]


@simulated
async def test_a_clock_that_is_set_forth_makes_timers_due(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send_timed(client, b"later", DELAY_SEC=DAY)
        await asyncio.sleep(1)
        bench.clock.wall_shift_ms = DAY * 1000 + 2000
        await asyncio.sleep(timers.WAIT_MAX + 1)
        assert bodies(broker) == [b"later"]


# Slaves.


@simulated
async def test_a_slave_has_the_timers_and_delivers_when_it_becomes_the_master(
    bench: Bench,
) -> None:
    disk = SimulatedDisk(7)
    async with (
        bench.broker() as master,
        bench.client(master.address) as client,
        slave_of(bench, disk) as slave,
    ):
        await send_timed(client, b"first", DELAY_SEC=3)
        await send_timed(client, b"second", DELAY_SEC=30)
        await asyncio.sleep(20)
        assert bodies(slave) == [b"first"]
        assert slave.timers.checkpoint == master.timers.checkpoint
        assert slave.timers.checkpoint.queue_offset == 2
        await send_timed(client, b"third", DELAY_SEC=4)
        await asyncio.sleep(6)  # delivered, but no checkpoint that says so was copied
        assert slave.timers.checkpoint.queue_offset == 2
    bench.nameserver.answer_fields = {}
    promoted = bench.make_broker(disk=disk, host="10.0.0.3", broker_role=BrokerRole.ASYNC_MASTER)
    await promoted.start()
    await asyncio.sleep(30)
    assert bodies(promoted) == [b"first", b"third", b"second"]
    await promoted.close()


@simulated
async def test_a_slave_takes_no_checkpoint_that_is_ahead_of_its_log(bench: Bench) -> None:
    async with bench.broker() as broker:
        table = broker.timers
        ahead = TimerCheckpoint(queue_offset=5, log_offset=broker.store.flushed_offset + 1)
        apaches = TimerCheckpoint(queue_offset=5)
        for copied in (ahead, apaches):
            table.replace_all(copied)
            assert table.checkpoint == TimerCheckpoint()


@simulated
async def test_a_checkpoint_is_told_as_apache_tells_it(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send_timed(client, b"later", DELAY_SEC=1000)
        await asyncio.sleep(5)
        request = RemotingCommand(code=RequestCode.GET_TIMER_CHECK_POINT)
        answer = await client.invoke(request, timeout=3.0)
        numbers = [int.from_bytes(answer.body[at : at + 8], "big") for at in range(0, 64, 8)]
        assert numbers[1:7] == [0, 0, 1, 0, 0, 0]
        assert numbers[7] == broker.store.max_physical_offset
        assert TimerCheckpoint.decode(answer.body) == broker.timers.checkpoint
        assert TimerCheckpoint.decode(answer.body[:56]).log_offset is None


# Recalls.


async def recall(client: Connection, handle: str, topic: str = "orders") -> RemotingCommand:
    fields = {"producerGroup": "order-service", "topic": topic, "recallHandle": handle}
    request = RemotingCommand(code=RequestCode.RECALL_MESSAGE, ext_fields=fields)
    return await client.invoke(request, timeout=3.0)


RECALLING: dict[str, Any] = {"recall_message_enable": True}


@simulated
async def test_a_timer_is_taken_back(bench: Bench) -> None:
    async with bench.broker(**RECALLING) as broker, bench.client(broker.address) as client:
        unwanted = await send_timed(client, b"unwanted", DELAY_SEC=5)
        wanted = await send_timed(client, b"wanted", DELAY_SEC=5)
        assert unwanted.recall_handle is not None
        handle = parse_recall_handle(unwanted.recall_handle)
        slot_ms = int(messages(broker, TIMERS)[0].properties["TIMER_OUT_MS"])
        assert handle == RecallHandle("orders", "broker-a", slot_ms + 1, "unwanted")
        answer = await recall(client, unwanted.recall_handle)
        assert (answer.code, answer.remark) == (0, "not set any response code")
        assert answer.ext_fields == {"msgId": "unwanted", "MSG_REGION": "DefaultRegion"}
        stored = messages(broker, TIMERS)[2]
        expected = {
            "TIMER_DEL_UNIQKEY": "unwanted",
            "UNIQ_KEY": "unwanted",
            "TIMER_DELIVER_MS": str(slot_ms + 1),
            "TIMER_OUT_MS": str(slot_ms),
            "BORN_TIMESTAMP": str(stored.born_timestamp_ms),
            "PGROUP": "order-service",
            "TAGS": "_RECALL_TAG_",
            "REAL_TOPIC": "orders",
            "REAL_QID": "0",
        }
        assert (stored.properties, stored.body) == (expected, b"0")
        await asyncio.sleep(8)
        assert bodies(broker) == [b"wanted"]
        assert messages(broker, queue_id=0) == []
        assert wanted.recall_handle is not None
        late = await recall(client, wanted.recall_handle)
        assert (late.code, late.remark) == (604, "recall failed, timestamp invalid")


@simulated
async def test_a_recall_outlives_a_crash(bench: Bench) -> None:
    broker = bench.make_broker(**RECALLING)
    await broker.start()
    async with bench.client(broker.address) as client:
        unwanted = await send_timed(client, b"unwanted", DELAY_SEC=5)
        await send_timed(client, b"wanted", DELAY_SEC=5)
        assert unwanted.recall_handle is not None
        await recall(client, unwanted.recall_handle)
    await broker.kill()
    async with bench.broker() as broker:
        await asyncio.sleep(8)
        assert bodies(broker) == [b"wanted"]


@pytest.mark.parametrize(
    ("handle", "code", "remark"),
    [
        ("", 604, "recall handle is invalid"),
        ("!!!", 604, "recall handle is invalid"),
        ("djEgYQ==", 604, "recall handle is invalid"),
        ("v2 orders broker-a {soon} ID", 604, "recall handle is invalid"),
        ("v1 others broker-a {soon} ID", 604, "recall failed, topic not match"),
        ("v1 orders broker-b {soon} ID", 604, "recall failed, broker service not available"),
        ("v1 orders broker-a soon ID", 604, "recall failed, timestamp invalid"),
        ("v1 orders broker-a {now} ID", 604, "recall failed, timestamp invalid"),
        ("v1 orders broker-a {too_late} ID", 604, "recall failed, timestamp invalid"),
        ("v1 orders broker-a {soon} ID", 0, "not set any response code"),
        ("v1 orders broker-a {soon} ID more", 0, "not set any response code"),
    ],
)
def test_a_handle_is_judged_as_by_apache(handle: str, code: int, remark: str) -> None:
    @simulated
    async def test(bench: Bench) -> None:
        async with bench.broker(**RECALLING) as broker, bench.client(broker.address) as client:
            await send(client)
            now_ms = bench.clock.wall_ms()
            text = handle.format(
                now=now_ms, soon=now_ms + 60_000, too_late=now_ms + 3 * DAY * 1000 + 5000
            )
            answer = await recall(
                client, urlsafe_b64encode(text.encode()).decode() if " " in text else text
            )
            assert (answer.code, answer.remark) == (code, remark)
            assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"
            assert len(messages(broker, TIMERS)) == (code == 0)
            await asyncio.sleep(70)  # and it hurts nobody that it found nothing
            assert len(messages(broker)) == 1

    test()


@simulated
async def test_who_may_not_recall_is_told_so(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        timed = await send_timed(client, b"later", DELAY_SEC=60)
        handle = timed.recall_handle
        assert handle is not None  # also where it is of no use
        settings = broker.settings

        async def answer(topic: str = "orders") -> tuple[int, str | None]:
            refused = await recall(client, handle, topic)
            assert refused.ext_fields == {"MSG_REGION": "DefaultRegion"}
            return refused.code, refused.remark

        assert await answer() == (16, "recall failed, operation is forbidden")
        settings.change({"recallMessageEnable": "true"})
        assert await answer("none") == (17, "recall failed, the topic[none] not exist")
        no_service = "recall failed, broker service not available"
        settings.change({"startAcceptSendRequestTimeStamp": str(1 << 60)})
        assert await answer() == (14, no_service)
        settings.change({"startAcceptSendRequestTimeStamp": "0", "brokerPermission": "4"})
        settings.change({"allowRecallWhenBrokerNotWriteable": "false"})
        assert await answer() == (14, no_service)
        settings.change({"allowRecallWhenBrokerNotWriteable": "true"})
        assert (await recall(client, handle)).code == 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(BrokerSettings, "is_slave", property(lambda _: True))
            assert await answer() == (11, no_service)


# Cost.


@simulated
async def test_many_wait_without_work(bench: Bench) -> None:
    """An hour in which nothing is due costs what a minute does, with however many that wait."""
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for number in range(300):
            await send_timed(client, b"%d" % number, DELAY_SEC=2 * DAY + number * 100)
        await asyncio.sleep(5)
        calls = 0

        def count(method: Any) -> Any:
            def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
                nonlocal calls
                calls += 1
                return method(self, *args, **kwargs)

            return counted

        with pytest.MonkeyPatch.context() as patch:
            for name in ("entry_at", "entries", "record_at", "query"):
                patch.setattr(MessageStore, name, count(getattr(MessageStore, name)))
            patch.setattr(TimerWheel, "_open", count(TimerWheel._open))
            progress = timers.TimedMessages._progress
            patch.setattr(timers.TimedMessages, "_progress", count(progress))
            await asyncio.sleep(3600)
        # Once a minute it makes sure that the clock was not set.
        assert calls <= 70
        assert broker.timers.waiting == 300
