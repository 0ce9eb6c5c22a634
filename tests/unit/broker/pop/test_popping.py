"""Pops, acknowledgements and invisible times, as a client sees them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from rocketpipe.broker.broker import Broker
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError
from rocketpipe.message import StoredMessage
from rocketpipe.remoting.connection import Connection
from rocketpipe.testing.simulated_loop import SimulatedClock
from rocketpipe.wire.bodies.pop import BatchAck, BatchAckRequest, bit_set
from rocketpipe.wire.pop_receipt import Receipt
from rocketpipe.wire.properties import FIRST_POP_TIME, POP_CK
from rocketpipe.wire.requests.admin import (
    DeleteSubscriptiongroup,
    DeleteTopicInBroker,
    InvokeBrokerToResetOffset,
)
from rocketpipe.wire.requests.pop import (
    BatchAckMessage,
    Notification,
    PollingInfo,
    PopMessageReply,
)
from rocketpipe.wire.requests.sending import ConsumerSendMsgBack
from tests.unit.broker.bench import Bench, messages, send, simulated
from tests.unit.broker.pop.pops import RETRY, ack, ask_to_pop, hide, place, pop, texts
from tests.unit.broker.reading import ask, create_topic
from tests.unit.broker.test_replication import slave_of


async def send_some(client: Connection, *numbers: int, queue_id: int = 0) -> None:
    for number in numbers:
        await send(client, body=b"%d" % number, queue_id=queue_id)


async def wait_for_retry(client: Connection, seconds: float = 30.0) -> list[StoredMessage]:
    """What comes again, waited for."""
    now = SimulatedClock(asyncio.get_running_loop()).wall_ms()
    return await pop(client, poll_time=round(seconds * 1000), born_time=now)


@simulated
async def test_what_is_popped_is_nobody_elses_and_gone_once_acknowledged(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        for queue_id in range(4):
            await send_some(client, queue_id, 10 + queue_id, queue_id=queue_id)
        found = await pop(client)
        assert texts(found) == sorted(b"%d" % n for n in (0, 1, 2, 3, 10, 11, 12, 13))
        assert await pop(client) == []
        assert len(await pop(client, consumer_group="others")) == 8
        for message in found:
            assert (await ack(client, message)).code == 0
        await asyncio.sleep(100)
        assert await pop(client) == []
        assert len(await wait_for_retry(client, 1)) == 0
        assert RETRY not in broker.topics.table
        assert broker.offsets.query("readers", "orders", 0) == 2


@simulated
async def test_the_answer_names_all_it_gave(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, *range(5))
        await send_some(client, 9, queue_id=2)
        answer = await ask_to_pop(client, queue_id=0, max_msg_nums=3)
        header = PopMessageReply.from_ext_fields(answer.ext_fields)
        assert 0 <= bench.clock.wall_ms() - header.pop_time <= 10
        assert (header.invisible_time, header.revive_qid, header.rest_num) == (60_000, 0, 2)
        assert (header.start_offset_info, header.msg_offset_info) == ("0 0 0", "0 0 0,1,2")
        assert header.order_count_info is None
        assert answer.remark == "FOUND"
        answer = await ask_to_pop(client)
        header = PopMessageReply.from_ext_fields(answer.ext_fields)
        assert sorted((header.start_offset_info or "").split(";")) == ["0 0 3", "0 2 0"]
        assert sorted((header.msg_offset_info or "").split(";")) == ["0 0 3,4", "0 2 0"]
        answer = await ask_to_pop(client)
        assert (answer.code, answer.remark) == (210, "NO_MESSAGE_IN_QUEUE")
        assert PopMessageReply.from_ext_fields(answer.ext_fields).rest_num == 0


@simulated
async def test_what_is_not_acknowledged_comes_again_and_again(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 1, 2)
        one, two = await pop(client, invisible_time=5_000)
        await ack(client, one)
        popped_at = int(Receipt.parse(two.properties[POP_CK]).pop_time)
        started = bench.clock.wall_ms()
        (again,) = await wait_for_retry(client)
        assert 5_000 <= bench.clock.wall_ms() - started <= 5_300
        assert (again.body, again.topic, again.reconsume_times) == (b"2", "orders", 1)
        assert again.properties[FIRST_POP_TIME] == str(popped_at)
        receipt = Receipt.parse(again.properties[POP_CK])
        assert (receipt.kind, receipt.queue_id, receipt.queue_offset) == ("1", 0, 0)
        (stored,) = messages(broker, RETRY)
        assert stored.topic == RETRY
        # The first receipt is worth nothing by now; the last one is.
        await ack(client, two)
        await asyncio.sleep(61)
        (again,) = await pop(client)
        assert (again.reconsume_times, again.queue_offset) == (2, 1)
        assert again.properties[FIRST_POP_TIME] == str(popped_at)
        await ack(client, again)
        await asyncio.sleep(100)
        assert await pop(client) == []
        assert len(broker.pop.log.checkpoints) == 0


@simulated
async def test_retries_can_have_the_names_of_the_second_kind(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 1)
        await pop(client, invisible_time=1_000)
        await asyncio.sleep(2)  # it comes again under a name of the first kind
        broker.settings.change({"enableRetryTopicV2": "true"})
        (again,) = await pop(client, invisible_time=1_000)
        assert Receipt.parse(again.properties[POP_CK]).kind == "1"
        await ack(client, again)
        await send_some(client, 2)
        await pop(client, invisible_time=1_000)
        (again,) = await wait_for_retry(client)
        assert Receipt.parse(again.properties[POP_CK]).kind == "2"
        assert [each.body for each in messages(broker, "%RETRY%readers+orders")] == [b"2"]
        await ack(client, again)
        await asyncio.sleep(100)
        assert await pop(client) == []


@simulated
async def test_retries_may_keep_the_name_of_their_topic(bench: Bench) -> None:
    settings = {"pop_response_return_actual_retry_topic": True}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 1)
        await pop(client, invisible_time=1_000)
        await asyncio.sleep(2)
        answer = await ask_to_pop(client)
        assert RETRY.encode() in answer.body
        assert answer.ext_fields["startOffsetInfo"] == "1 0 0"
        assert answer.ext_fields["msgOffsetInfo"] == "1 0 0"


@simulated
async def test_an_invisible_time_can_be_changed(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 1, 2)
        one, two = await pop(client, invisible_time=10_000)
        await asyncio.sleep(5)
        reply = await hide(client, two, 30_000)
        assert 0 <= bench.clock.wall_ms() - reply.pop_time <= 10
        assert reply.invisible_time == 30_000
        # Only the new receipt is good for it now.
        await ack(client, two)
        with pytest.raises(BrokerError, match="not invisible"):
            await hide(client, two, 1_000)
        await asyncio.sleep(10)
        assert texts(await pop(client)) == [b"1"]
        await asyncio.sleep(21)
        assert texts(await pop(client)) == [b"2"]
        # With the receipt a Java client makes of the answer.
        await send_some(client, 3)
        (three,) = await pop(client)
        reply = await hide(client, three, 5_000)
        receipt = f"2 {reply.pop_time} {reply.invisible_time} {reply.revive_qid} 0 broker-a 0 2"
        assert (await ack(client, three, extra_info=receipt)).code == 0
        assert len(broker.pop.log.checkpoints) == 2
        assert one.body == b"1"


@simulated
async def test_an_acknowledgement_that_comes_too_late_changes_nothing(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 1)
        (one,) = await pop(client, invisible_time=1_000)
        await asyncio.sleep(2)
        assert (await ack(client, one)).code == 0
        with pytest.raises(BrokerError) as refused:
            await hide(client, one, 1_000)
        assert refused.value.code == ResponseCode.NO_MESSAGE
        assert texts(await pop(client)) == [b"1"]


@simulated
async def test_many_are_acknowledged_at_once(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, *range(12))
        found = await pop(client, invisible_time=5_000)
        receipt = Receipt.parse(found[0].properties[POP_CK])
        batch = BatchAck(
            consumer_group="readers",
            topic="orders",
            start_offset=receipt.start_offset,
            pop_time=receipt.pop_time,
            invisible_time=5_000,
            bit_set=bit_set([0, 1, 2, 9, 11, 77]),
        )
        request = BatchAckRequest(broker_name="broker-a", acks=(batch,))
        assert (await ask(client, BatchAckMessage(), request.encode())).code == 0
        again = await wait_for_retry(client)
        assert texts(again) == sorted(b"%d" % n for n in (3, 4, 5, 6, 7, 8, 10))
        receipt = Receipt.parse(again[0].properties[POP_CK])
        batch = replace(
            batch,
            retry="1",
            start_offset=receipt.start_offset,
            pop_time=receipt.pop_time,
            bit_set=bit_set(range(7)),
        )
        request = BatchAckRequest(acks=(batch,))
        assert (await ask(client, BatchAckMessage(), request.encode())).code == 0
        await asyncio.sleep(1)
        assert len(broker.pop.log.checkpoints) == 0
        for wrong in (
            replace(batch, retry="7"),
            replace(batch, bit_set="?"),
            replace(batch, bit_set="A" * 99_999),
        ):
            request = BatchAckRequest(acks=(wrong,))
            assert (await ask(client, BatchAckMessage(), request.encode())).code == 1
        empty = await ask(client, BatchAckMessage(), b'{"acks":[]}')
        assert empty.code == ResponseCode.NO_MESSAGE


@simulated
async def test_a_filter_skips_what_it_does_not_want(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        for number in range(2000):
            tag = "rare" if number in (0, 1500) else "common"
            await send(client, body=b"%d" % number, properties={"UNIQ_KEY": "u", "TAGS": tag})
        now = bench.clock.wall_ms()
        found = []
        for _ in range(2):  # though a read ends after so many that it skipped
            found += await pop(client, exp="rare", poll_time=5_000, born_time=now)
        assert texts(found) == [b"0", b"1500"]
        assert await pop(client, exp="rare") == []
        await asyncio.sleep(1)
        assert broker.offsets.query("readers", "orders", 0) == 2000
        answer = await ask_to_pop(client, exp="a || ", exp_type="TAG")
        assert answer.code == 210
        answer = await ask_to_pop(client, exp="a = ", exp_type="SQL92")
        assert answer.code != 0


@simulated
async def test_where_a_new_group_begins(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, *range(5))
        assert len(await pop(client, consumer_group="oldest", init_mode=0)) == 5
        assert len(await pop(client, consumer_group="young-queue", init_mode=1)) == 5
        broker.settings.change({"initPopOffsetByCheckMsgInMem": "false"})
        assert texts(await pop(client, consumer_group="newest", init_mode=1)) == [b"4"]
        await send_some(client, 5)
        assert texts(await pop(client, consumer_group="newest", init_mode=1)) == [b"5"]


@simulated
async def test_a_reset_sends_a_group_back(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, *range(3))
        for message in await pop(client):
            await ack(client, message)
        reset = InvokeBrokerToResetOffset(
            topic="orders", group="readers", timestamp=0, is_force=True, queue_id=0, offset=1
        )
        assert (await ask(client, reset)).code == 0
        assert texts(await pop(client)) == [b"1", b"2"]
        await asyncio.sleep(1)
        assert broker.offsets.query("readers", "orders", 0) == 3


@simulated
async def test_no_more_is_popped_while_too_much_is_in_flight(bench: Bench) -> None:
    settings = {"enable_pop_message_threshold": True, "pop_inflight_message_threshold": 1}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, *range(4))
        found = await pop(client, max_msg_nums=2)
        assert await pop(client) == []
        await ack(client, found[0])
        assert len(await pop(client)) == 2


@simulated
async def test_dead_letters_are_the_clients_to_send(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 1)
        (one,) = await pop(client)
        back = ConsumerSendMsgBack(offset=one.physical_offset, group="readers", delay_level=-1)
        assert (await ask(client, back)).code == 0
        await ack(client, one)
        (dead,) = messages(broker, "%DLQ%readers")
        assert (dead.body, POP_CK in dead.properties) == (b"1", False)
        await asyncio.sleep(100)
        assert await pop(client) == []


@simulated
async def test_with_a_topic_or_a_group_goes_what_it_had_popped(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 1)
        await pop(client, invisible_time=1_000)
        await asyncio.sleep(2)
        await send_some(client, 2)
        assert len(await pop(client, invisible_time=1_000)) == 2
        assert (await ask(client, DeleteTopicInBroker(topic="orders"))).code == 0
        assert RETRY not in broker.topics.table
        assert len(broker.pop.log.checkpoints) == 0
        await create_topic(client)
        await send_some(client, 3)
        await asyncio.sleep(5)
        assert texts(await pop(client, invisible_time=1_000)) == [b"3"]
        gone = DeleteSubscriptiongroup(group_name="readers", clean_offset=True)
        assert (await ask(client, gone)).code == 0
        await asyncio.sleep(5)
        assert RETRY not in broker.topics.table


# Refusals.


@simulated
async def test_a_pop_that_may_not_be_is_refused_as_by_apache(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await create_topic(client, "secret", perm=2)
        wrong: list[tuple[dict[str, Any], ResponseCode, str]] = [
            ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "apply first"),
            ({"topic": "secret"}, ResponseCode.NO_PERMISSION, "peeking message is forbidden"),
            ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER, "queueId[4] is illegal"),
            ({"max_msg_nums": 33}, ResponseCode.INVALID_PARAMETER, "greater than 32"),
            ({"consumer_group": "?"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "does not exist"),
            ({"born_time": 1}, ResponseCode.POLLING_TIMEOUT, "timeout too much"),
        ]
        for changes, code, remark in wrong:
            answer = await ask_to_pop(client, **changes)
            assert (answer.code, remark in (answer.remark or "")) == (code, True), answer
        broker.settings.change({"brokerPermission": "2"})
        answer = await ask_to_pop(client)
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "the broker[10.0.0.1] pop message is forbidden",
        )


@simulated
async def test_a_bad_receipt_is_refused_as_by_apache(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 1)
        (one,) = await pop(client)
        wrong: list[tuple[dict[str, Any], ResponseCode]] = [
            ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
            ({"queue_id": 4}, ResponseCode.MESSAGE_ILLEGAL),
            ({"queue_id": -1}, ResponseCode.MESSAGE_ILLEGAL),
            ({"offset": 7}, ResponseCode.NO_MESSAGE),
            ({"extra_info": "0 1 2"}, ResponseCode.SYSTEM_ERROR),
            ({"extra_info": "a b c d e f g h"}, ResponseCode.SYSTEM_ERROR),
            # Well made, but none of ours: nothing to do, and nothing wrong.
            ({"extra_info": "0 1 2 0 0 broker-a 0 0"}, ResponseCode.SUCCESS),
            ({"consumer_group": "others"}, ResponseCode.SUCCESS),
        ]
        for changes, code in wrong:
            assert (await ack(client, one, **changes)).code == code, changes
            if code != ResponseCode.SUCCESS:
                with pytest.raises(BrokerError) as refused:
                    await hide(client, one, 1_000, **changes)
                assert refused.value.code == code, changes
        assert len(broker.pop.log.checkpoints) == 1
        assert (await ack(client, one)).code == 0
        assert len(broker.pop.log.checkpoints) == 0


@simulated
async def test_nothing_is_given_away_that_can_not_be_remembered(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 1, 2)
        fill(broker)
        answer = await ask_to_pop(client, poll_time=5_000)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        broker.faults.clear()
        await asyncio.sleep(30)
        assert texts(await pop(client)) == [b"1", b"2"]


def fill(broker: Broker) -> None:
    """Let its disk be full."""
    broker.faults.fill_disk()


@simulated
async def test_a_slave_gives_nothing_away(bench: Bench) -> None:
    async with bench.broker() as master, bench.client(master.address) as client:
        await create_topic(client)
        await send_some(client, 1, 2)
        async with slave_of(bench) as slave, bench.client(slave.address) as reader:
            await pop(client, max_msg_nums=1)
            await asyncio.sleep(20)
            assert len(messages(slave)) == 2
            assert slave.offsets.table == master.offsets.table
            answer = await ask_to_pop(reader)
            assert (answer.code, "ask its master" in (answer.remark or "")) == (1, True)


# Waiting.


@simulated
async def test_a_pop_waits_for_messages_and_only_one_gets_them(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        now = bench.clock.wall_ms()
        waiting = [
            asyncio.create_task(pop(client, poll_time=15_000, born_time=now)) for _ in range(3)
        ]
        other = asyncio.create_task(
            pop(client, poll_time=15_000, born_time=now, consumer_group="others")
        )
        await asyncio.sleep(1)
        asked = PollingInfo(consumer_group="readers", topic="orders", queue_id=-1)
        assert (await client.request(asked, timeout=3)).polling_num == 3
        await send_some(client, 1)
        assert texts(await other) == [b"1"]
        await asyncio.sleep(0.1)
        assert [task.done() for task in waiting] == [True, False, False]
        await send_some(client, 2)
        await asyncio.sleep(0.1)
        assert [task.done() for task in waiting] == [True, True, False]
        assert await waiting[2] == []
        assert 14_900 <= bench.clock.wall_ms() - now <= 15_200


@simulated
async def test_who_finds_more_than_it_takes_wakes_the_next(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send_some(client, 1, 2, 3)
        await pop(client, invisible_time=5_000)
        now = bench.clock.wall_ms()
        changes: dict[str, Any] = {"max_msg_nums": 1, "poll_time": 15_000, "born_time": now}
        waiting = [asyncio.create_task(pop(client, **changes)) for _ in range(3)]
        found = [message for each in await asyncio.gather(*waiting) for message in each]
        assert texts(found) == [b"1", b"2", b"3"]
        assert bench.clock.wall_ms() - now < 5_500


@simulated
async def test_who_wants_other_messages_is_not_woken(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        now = bench.clock.wall_ms()
        waiting = asyncio.create_task(pop(client, exp="a", poll_time=15_000, born_time=now))
        of_queue = asyncio.create_task(
            pop(client, consumer_group="others", queue_id=1, poll_time=15_000, born_time=now)
        )
        await asyncio.sleep(1)
        await send(client, properties={"UNIQ_KEY": "u", "TAGS": "b"})
        await asyncio.sleep(1)
        assert not waiting.done()
        assert not of_queue.done()
        await send(client, body=b"for you", properties={"UNIQ_KEY": "u", "TAGS": "a"})
        assert texts(await waiting) == [b"for you"]
        await send_some(client, 1, queue_id=1)
        assert texts(await of_queue) == [b"1"]


@simulated
async def test_a_message_for_one_that_is_gone_goes_to_the_next(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        now = bench.clock.wall_ms()
        async with bench.client(broker.address) as gone:
            first = asyncio.create_task(pop(gone, poll_time=15_000, born_time=now))
            await asyncio.sleep(1)
            second = asyncio.create_task(pop(client, poll_time=15_000, born_time=now))
            await asyncio.sleep(1)
        with pytest.raises(Exception, match="clos"):
            await first
        await send_some(client, 1)
        assert texts(await second) == [b"1"]


@simulated
async def test_no_more_pops_wait_than_there_is_room_for(bench: Bench) -> None:
    settings = {"max_pop_polling_size": 2}
    async with bench.broker(**settings) as broker, bench.client(broker.address) as client:
        await create_topic(client)
        now = bench.clock.wall_ms()
        waiting = [
            asyncio.create_task(pop(client, poll_time=15_000, born_time=now)) for _ in range(2)
        ]
        await asyncio.sleep(1)
        answer = await ask_to_pop(client, poll_time=15_000)
        assert answer.code == ResponseCode.POLLING_FULL
        assert await asyncio.gather(*waiting) == [[], []]


@simulated
async def test_a_notification_comes_when_there_is_something_to_pop(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)

        def question(**changes: int) -> Notification:
            now = bench.clock.wall_ms()
            fields = {"queue_id": -1, "poll_time": 15_000, "born_time": now} | changes
            return Notification(consumer_group="readers", topic="orders", **fields)  # type: ignore[arg-type]

        waiting = asyncio.create_task(client.request(question(), timeout=60))
        await asyncio.sleep(1)
        assert not waiting.done()
        await send_some(client, 1)
        assert (await waiting).has_msg
        assert (await client.request(question(), timeout=60)).has_msg
        (one,) = await pop(client, invisible_time=3_000)
        begun = bench.clock.wall_ms()
        assert (await client.request(question(), timeout=60)).has_msg  # it comes again
        assert 3_000 <= bench.clock.wall_ms() - begun <= 3_300
        (one,) = await pop(client)
        await ack(client, one)
        reply = await client.request(question(poll_time=1_000), timeout=60)
        assert (reply.has_msg, reply.polling_full) == (False, False)
        assert place(one)["topic"] == RETRY
