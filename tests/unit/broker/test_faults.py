"""Faults on purpose: who meets them, and what a broker does then, on simulated time."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocketpipe.broker import fault_layer
from rocketpipe.broker.broker import Broker
from rocketpipe.broker.faults import (
    AFTER,
    BEFORE,
    BUSY,
    CONTROL_FAULTS,
    FAULTS_MAX,
    Fault,
    FaultKind,
    Faults,
    decode_faults,
    encode_faults,
    topic_of,
)
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import BrokerError, ConnectionLost, InvalidSetting, RequestTimeout
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.reading import GetMaxOffset
from tests.unit.broker.bench import Bench, messages, send, send_header, simulated
from tests.unit.broker.reading import HELD, pull

SEND = RequestCode.SEND_MESSAGE_V2
PULL = RequestCode.PULL_MESSAGE


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


# Decisions.


def test_without_more_said_everybody_meets_a_fault_until_it_is_cleared() -> None:
    faults = Faults(Time())
    assert not faults
    fault = faults.cut()
    assert faults
    for code in (SEND, RequestCode.HEART_BEAT):
        assert faults.take(BEFORE, code, "orders") == fault
    assert faults.take(AFTER, SEND, "orders") is None
    assert [each.hits for each in faults.active()] == [2]
    faults.clear()
    assert not faults
    assert faults.take(BEFORE, SEND, "orders") is None


@pytest.mark.parametrize(
    ("when", "is_met"),
    [
        ({"code": SEND}, True),
        ({"code": {10, SEND}}, True),
        ({"code": 34}, False),
        ({"code": [34, 35]}, False),
        ({"topic": "orders"}, True),
        ({"topic": "bills"}, False),
        ({"code": SEND, "topic": "bills"}, False),
    ],
)
def test_a_fault_is_for_codes_and_for_a_topic(when: Any, is_met: bool) -> None:
    faults = Faults(Time())
    faults.cut(**when)
    assert (faults.take(BEFORE, SEND, "orders") is not None) == is_met


def test_a_fault_is_met_so_many_times() -> None:
    faults = Faults(Time())
    faults.busy(times=2, topic="orders")
    assert faults.take(BEFORE, SEND, "bills") is None
    met = [faults.take(BEFORE, SEND, "orders") is not None for _ in range(3)]
    assert met == [True, True, False]
    assert faults.active() == []


def test_a_fault_lasts_for_so_long() -> None:
    time = Time()
    faults = Faults(time)
    fault = faults.cut(seconds=2.5)
    time.now += 2
    assert faults.seconds_left(fault) == 0.5
    assert faults.take(BEFORE, SEND, None) is not None
    time.now += 0.5
    assert faults.take(BEFORE, SEND, None) is None
    assert not faults
    assert faults.seconds_left(fault) == 0


def test_one_of_several_faults_is_cleared_by_itself() -> None:
    faults = Faults(Time())
    first, second = faults.cut(topic="a"), faults.cut(topic="b")
    faults.clear(first)
    assert faults.active() == [second]


def test_the_first_fault_that_fits_is_met() -> None:
    faults = Faults(Time())
    faults.refuse(ResponseCode.NO_PERMISSION, "no", topic="orders", times=1)
    faults.busy()
    codes = [
        fault.response_code for _ in range(2) if (fault := faults.take(BEFORE, SEND, "orders"))
    ]
    assert codes == [ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_BUSY]


def test_who_has_to_act_is_told_of_changes() -> None:
    told: list[int] = []
    faults = Faults(Time())
    faults.on_changed.add(lambda: told.append(len(faults.active())))
    faults.freeze()
    faults.clear()
    assert told == [1, 0]


def test_there_is_an_end_to_faults() -> None:
    faults = Faults(Time())
    for _ in range(FAULTS_MAX):
        faults.cut()
    with pytest.raises(InvalidSetting, match="clear some"):
        faults.cut()


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"times": 0}, "times is 0"),
        ({"seconds": 0}, "seconds is 0"),
        ({"seconds": float("inf")}, "seconds is inf"),
        ({"delay": -1}, "a delay of -1"),
        ({"delay": (2, 1)}, "a delay of"),
        ({"delay": "1"}, "a delay of"),
        ({"delay": [1, 2]}, "a delay of"),
        ({"delay": 10**400}, "a delay of"),
        ({"kind": "delay"}, "kind is 'delay'"),
        ({"code": "310"}, "code is '310'"),
        ({"code": b"310"}, "code is b'310'"),
        ({"code": True}, "code is True"),
        ({"code": 1.5}, "code is 1.5"),
        ({"code": 1 << 31}, "code is 2147483648"),
        ({"code": [310, "310"]}, "code is "),
        ({"code": [None]}, "code is "),
        ({"topic": 7}, "topic is 7"),
        ({"remark": None}, "remark is None"),
        ({"response_code": "2"}, "response_code is '2'"),
        ({"response_code": None}, "response_code is None"),
        ({"kind": FaultKind.FILL_DISK, "topic": "orders"}, "whatever is asked"),
        ({"kind": FaultKind.DETACH_SLAVES, "times": 1}, "whatever is asked"),
        ({"kind": FaultKind.STOP, "code": 10}, "whatever is asked"),
        ({"kind": FaultKind.STAND_STILL, "seconds": 1.0, "topic": "x"}, "whatever is asked"),
        ({"kind": FaultKind.STAND_STILL}, "stand_still needs seconds"),
        ({"kind": FaultKind.KILL, "times": 1}, "whatever is asked"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: Any, complaint: str) -> None:
    with pytest.raises(InvalidSetting, match=complaint):
        Fault(**{"kind": FaultKind.DELAY, **fields})


def test_faults_travel_as_json() -> None:
    faults = [
        Fault(kind=FaultKind.DELAY, delay=(0.5, 1.5), code=[10, 310], seconds=3, id=1, hits=2),
        Fault(kind=FaultKind.REFUSE, response_code=16, remark="no", topic="orders", times=2, id=2),
    ]
    assert decode_faults(encode_faults(faults)) == faults
    with pytest.raises(InvalidSetting, match="a function can't travel"):
        Fault(kind=FaultKind.DELAY, delay=lambda: 1.0).to_json()


def test_the_topic_of_a_request_is_found_in_both_spellings() -> None:
    assert topic_of(send_header("orders").to_command()) == "orders"
    assert topic_of(GetMaxOffset(topic="orders", queue_id=0).to_command()) == "orders"
    assert (
        topic_of(RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, {"originTopic": "o"})) == "o"
    )
    assert topic_of(RemotingCommand(RequestCode.HEART_BEAT)) is None


# What a broker does.


def now() -> float:
    return asyncio.get_running_loop().time()


@simulated
async def test_a_delayed_answer_comes_late_and_the_message_is_there_at_once(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for delay, low, high in ((2.0, 2, 2.1), ((1.0, 1.5), 1, 1.6), (lambda: 0.5, 0.5, 0.6)):
            broker.faults.delay(delay, times=1)
            began = now()
            sending = asyncio.create_task(send(client))
            await asyncio.sleep(0.4)
            before = len(messages(broker))
            await sending
            assert low <= now() - began <= high
            assert len(messages(broker)) == before
        began = now()
        await send(client)
        assert now() - began < 0.4


@simulated
async def test_not_more_answers_are_held_than_there_is_room_for(bench: Bench) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fault_layer, "HELD_ANSWERS_MAX", 1)
        async with bench.broker() as broker, bench.client(broker.address) as client:
            broker.faults.delay(2.0)
            began = now()
            late = asyncio.create_task(send(client))
            await asyncio.sleep(0.1)
            await send(client)
            assert now() - began < 1
            await late
            assert now() - began >= 2


@simulated
async def test_a_refused_send_stores_nothing(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        broker.faults.refuse(ResponseCode.NO_PERMISSION, "not today", topic="orders", times=1)
        await send(client, "bills")
        with pytest.raises(BrokerError, match="not today") as caught:
            await send(client)
        assert caught.value.code == ResponseCode.NO_PERMISSION
        assert messages(broker) == []
        await send(client)
        broker.faults.busy()
        with pytest.raises(BrokerError) as caught:
            await send(client)
        assert (caught.value.code, caught.value.remark) == (ResponseCode.SYSTEM_BUSY, BUSY)


@simulated
async def test_a_dropped_answer_leaves_the_message_stored(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        broker.faults.drop_answers(code=SEND, times=1)
        with pytest.raises(RequestTimeout):
            await send(client)
        assert len(messages(broker)) == 1
        await send(client)


@simulated
async def test_who_asks_is_cut_off(bench: Bench) -> None:
    async with bench.broker() as broker:
        broker.faults.cut(times=1)
        async with bench.client(broker.address) as client:
            with pytest.raises(ConnectionLost):
                await send(client)
        assert messages(broker) == []
        async with bench.client(broker.address) as client:
            await send(client)
            broker.cut_connections()
            await asyncio.sleep(0.1)
            assert client.lost is not None


@simulated
async def test_all_are_cut_off_at_once_who_ask_for_nothing_too(bench: Bench) -> None:
    cut = RemotingCommand(CONTROL_FAULTS, {}, b'{"cut_connections": true}')
    async with (
        bench.broker(faults_enable=True) as broker,
        bench.client(broker.address) as idle,
        bench.client(broker.address) as waiting,
        bench.client(broker.address._replace(port=broker.address.port - 2)) as on_vip,
        bench.client(broker.address) as asking,
    ):
        await send(asking)
        pulling = asyncio.create_task(pull(waiting, sys_flag=HELD, queue_offset=1))
        await asyncio.sleep(1)
        fault = broker.faults.busy()
        answer = await asking.invoke(cut, timeout=3)
        assert decode_faults(answer.body) == [fault]
        await asyncio.sleep(0.1)
        assert all(each.lost is not None for each in (idle, waiting, on_vip))
        assert asking.lost is None  # he has had to be told
        with pytest.raises(ConnectionLost):
            await pulling
        broker.faults.clear()
        async with bench.client(broker.address) as back:
            await send(back)
            broker.faults.cut_connections()
            await asyncio.sleep(0.1)
            assert back.lost is not None
            assert asking.lost is not None
    broker.faults.cut_connections()  # of which there are none


CAUSES: dict[str, Callable[..., Fault]] = {
    "delay": lambda faults, **when: faults.delay(5.0, **when),
    "refuse": lambda faults, **when: faults.refuse(ResponseCode.NO_PERMISSION, **when),
    "busy": lambda faults, **when: faults.busy(**when),
    "drop_answers": lambda faults, **when: faults.drop_answers(**when),
    "cut": lambda faults, **when: faults.cut(**when),
    "freeze": lambda faults, **when: faults.freeze(**when),
}
LIMITS: list[dict[str, Any]] = [{"code": SEND}, {"topic": "orders"}, {"times": 1}, {"seconds": 3.0}]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: next(iter(limit)))
@pytest.mark.parametrize("cause", CAUSES)
def test_each_fault_is_for_those_it_is_limited_to(cause: str, limit: dict[str, Any]) -> None:
    async def is_well(bench: Bench, broker: Broker, ask: Callable[..., Awaitable[object]]) -> bool:
        async with bench.client(broker.address) as client:
            try:
                async with asyncio.timeout(1.0):
                    await ask(client)
            except (BrokerError, ConnectionLost, TimeoutError):
                return False
            return True

    @simulated
    async def play(bench: Bench) -> None:
        async def send_to_another(client: Connection) -> None:
            await send(client, "bills")

        async def ask_for_offset(client: Connection) -> None:
            await client.request(GetMaxOffset(topic="orders", queue_id=0), timeout=3)

        async with bench.broker() as broker:
            assert await is_well(bench, broker, send)
            CAUSES[cause](broker.faults, **limit)
            other = {"code": ask_for_offset, "topic": send_to_another}.get(next(iter(limit)))
            if other is not None:
                assert await is_well(bench, broker, other)
            assert not await is_well(bench, broker, send)
            if other is None:
                await asyncio.sleep(limit.get("seconds", 0.0))
                assert await is_well(bench, broker, send)

    play()


@simulated
async def test_a_disk_is_full_for_so_long(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send(client)
        broker.faults.fill_disk(seconds=3.0)
        with pytest.raises(BrokerError):
            await send(client)
        await asyncio.sleep(3.0)
        await send(client)


@simulated
async def test_what_is_frozen_is_done_when_the_fault_is_over(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        broker.faults.freeze(seconds=2, topic="orders")
        began = now()
        sending = asyncio.create_task(send(client))
        await send(client, "bills")
        await asyncio.sleep(1)
        assert messages(broker) == []
        await sending
        assert 2 <= now() - began < 2.1
        # One that is met no more goes on until it is cleared.
        fault = broker.faults.freeze(times=1)
        sending = asyncio.create_task(send(client))
        await asyncio.sleep(0.5)
        await send(client, "bills")
        broker.faults.clear(broker.faults.cut(topic="others"))  # no business of theirs
        await asyncio.sleep(0.5)
        assert not sending.done()
        broker.faults.clear(fault)
        await sending


FREEZES: list[dict[str, Any]] = [{}, {"code": PULL}, {"topic": "orders"}, {"seconds": 7.0}]


@pytest.mark.parametrize("when", FREEZES, ids=str)
def test_a_pull_that_waited_before_the_freeze_is_answered_after_it(when: dict[str, Any]) -> None:
    @simulated
    async def play(bench: Bench) -> None:
        async with bench.broker() as broker, bench.client(broker.address) as client:
            await send(client, properties={"UNIQ_KEY": "U1", "DELAY": "2"})  # in 5 s
            waiting = [
                asyncio.create_task(pull(client, sys_flag=HELD, suspend_timeout_millis=wait_ms))
                for wait_ms in (1000, 100_000)
            ]
            await asyncio.sleep(0.5)
            assert len(broker.held_pulls) == 2
            began = now()
            fault = broker.faults.freeze(**when)
            await asyncio.sleep(6.5)
            # The time of the first was up, and there was a message for the second.
            assert len(broker.held_pulls) == 0
            assert len(messages(broker)) == 1
            assert not any(each.done() for each in waiting)
            if "seconds" not in when:
                broker.faults.clear(fault)
            codes = [(await each).code for each in waiting]
            assert now() - began == pytest.approx(when.get("seconds", 6.5), abs=0.05)
            assert codes == [ResponseCode.PULL_NOT_FOUND, ResponseCode.SUCCESS]

    play()


@simulated
async def test_a_frozen_answer_meets_the_faults_that_are_there_when_it_thaws(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send(client, properties={"UNIQ_KEY": "U1", "DELAY": "1"})
        waiting = asyncio.create_task(pull(client, sys_flag=HELD, timeout=10.0))
        await asyncio.sleep(0.5)
        freeze = broker.faults.freeze()
        await asyncio.sleep(2)
        broker.faults.drop_answers()
        broker.faults.clear(freeze)
        with pytest.raises(RequestTimeout):
            await waiting


@simulated
async def test_an_answer_that_is_late_already_is_frozen_too_and_delayed_once(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        broker.faults.delay(2.0)
        began = now()
        sending = asyncio.create_task(client.request(send_header(), b"x", timeout=60.0))
        await asyncio.sleep(1)
        broker.faults.freeze(seconds=4.0)
        await sending
        assert now() - began == pytest.approx(5.0, abs=0.1)


@simulated
async def test_a_broker_that_ends_while_it_is_frozen_leaves_nothing_behind(bench: Bench) -> None:
    tasks = len(asyncio.all_tasks())
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send(client, properties={"UNIQ_KEY": "U1", "DELAY": "1"})
        waiting = asyncio.create_task(pull(client, sys_flag=HELD))
        await asyncio.sleep(0.5)
        broker.faults.freeze()
        await asyncio.sleep(2)
        assert len(broker.held_pulls) == 0
    with pytest.raises(ConnectionLost):
        await waiting
    await asyncio.sleep(1)
    assert len(asyncio.all_tasks()) == tasks


@simulated
async def test_a_full_disk_takes_no_message_until_there_is_room(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await send(client)
        fault = broker.faults.fill_disk()
        with pytest.raises(BrokerError) as caught:
            await send(client)
        assert caught.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        request = GetMaxOffset(topic="orders", queue_id=0)
        assert (await client.request(request, timeout=3)).offset == 1
        broker.faults.clear(fault)
        await send(client)
        assert len(messages(broker)) == 2


@simulated
async def test_others_control_faults_only_where_that_is_allowed(bench: Bench) -> None:
    async def order(broker_settings: dict[str, Any], body: bytes) -> RemotingCommand:
        async with bench.broker(**broker_settings) as broker:
            broker.faults.cut()  # which does not concern this request
            async with bench.client(broker.address) as client:
                return await client.invoke(RemotingCommand(CONTROL_FAULTS, {}, body), timeout=3)

    listing = json.dumps({"list": True}).encode()
    assert (await order({}, listing)).code != ResponseCode.SUCCESS
    allowed = {"faults_enable": True}
    (cut,) = decode_faults((await order(allowed, listing)).body)
    assert cut.kind is FaultKind.CUT
    added = {"add": {"kind": "delay", "delay": [1, 2], "topic": "orders"}}
    answer = await order(allowed, json.dumps(added).encode())
    assert decode_faults(answer.body)[-1].delay == (1, 2)
    for one in (None, 1):
        answer = await order(allowed, json.dumps({"clear": one}).encode())
        assert decode_faults(answer.body) == []
    for bad in (b"{", b"{}", b'{"add": {"kind": "x"}}', b'{"add": {"kind": "cut", "oops": 1}}'):
        assert (await order(allowed, bad)).code == ResponseCode.SYSTEM_ERROR
    for senseless in (b'"times": 0', b'"code": "310"', b'"code": [310, "310"]'):
        bad = b'{"add": {"kind": "cut", %s}}' % senseless
        assert (await order(allowed, bad)).code == ResponseCode.INVALID_PARAMETER
