"""Delay levels, timers, and messages that are taken back before their time."""

import asyncio

import pytest

from rocketpipe import AsyncProducer, Message, MessageQueue, SendResult, StoredMessage
from rocketpipe.clock import SystemClock
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError
from rocketpipe.wire.message_id import RecallHandle
from rocketpipe.wire.properties import encode_properties
from rocketpipe.wire.requests.sending import RecallMessage
from tests.interop.clusters import TIMEOUT, Cluster, Reader, needs_timers, new_topic

wall_ms = SystemClock().wall_ms


async def delivered(reader: Reader, result: SendResult) -> StoredMessage:
    """The message in its own queue, which is where a timed one comes to be only later."""
    return (await reader.pull(result.queue, 0))[0]


def test_a_delay_level_delays(cluster: Cluster) -> None:
    async def main() -> None:
        async with (
            Reader(cluster.namesrv) as reader,
            AsyncProducer("timed", namesrv=cluster.namesrv, send_timeout=TIMEOUT) as producer,
        ):
            topic = new_topic("delayed")
            queues = await reader.create_topic(topic, cluster.brokers, queues=1)
            sent_ms = wall_ms()
            result = await producer.send(Message(topic, b"later", delay_level=2))  # 5 s
            assert [await reader.end(queue) for queue in queues] == [0, 0]
            message = await delivered(reader, result)
            assert (message.body, message.message_id) == (b"later", result.message_id)
            assert message.store_timestamp_ms - sent_ms >= 4_900
            assert result.recall_handle is None

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["delay_seconds", "delay_ms", "deliver_at_ms"])
def test_a_timer_delays(cluster: Cluster, kind: str) -> None:
    needs_timers(cluster)

    async def main() -> None:
        async with (
            Reader(cluster.namesrv) as reader,
            AsyncProducer("timed", namesrv=cluster.namesrv, send_timeout=TIMEOUT) as producer,
        ):
            topic = new_topic("timer")
            queues = await reader.create_topic(topic, cluster.brokers, queues=1)
            sent_ms = wall_ms()
            when = {"delay_seconds": 8, "delay_ms": 8_000, "deliver_at_ms": sent_ms + 8_000}
            message = Message(topic, b"later", **{kind: when[kind]})  # type: ignore[arg-type]
            result = await producer.send(message)
            assert [await reader.end(queue) for queue in queues] == [0, 0]
            stored = await delivered(reader, result)
            assert (stored.body, stored.message_id) == (b"later", result.message_id)
            assert stored.store_timestamp_ms - sent_ms >= 8_000
            assert result.recall_handle

    asyncio.run(main())


def test_a_timed_message_waits_in_a_topic_of_the_system(cluster: Cluster) -> None:
    needs_timers(cluster)

    async def main() -> None:
        async with (
            Reader(cluster.namesrv) as reader,
            AsyncProducer("timed", namesrv=cluster.namesrv, send_timeout=TIMEOUT) as producer,
        ):
            topic = new_topic("timer")
            (queue,) = await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            at_ms = wall_ms() // 1000 * 1000 + 10_300
            result = await producer.send(Message(topic, b"later", deliver_at_ms=at_ms))
            timers = MessageQueue("rmq_sys_wheel_timer", queue.broker_name, 0)
            waiting = (await reader.pull(timers, result.queue_offset))[0]
            slot_ms = at_ms - 300
            expected = {
                "TIMER_DELIVER_MS": str(at_ms),
                "TIMER_OUT_MS": str(slot_ms),
                "REAL_TOPIC": topic,
                "REAL_QID": "0",
                "UNIQ_KEY": result.message_id,
            }
            assert expected.items() <= waiting.properties.items()
            handle = RecallHandle(topic, queue.broker_name, slot_ms + 1, result.message_id)
            assert result.recall_handle == handle.encode()
            came = await delivered(reader, result)
            added = {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"}
            assert came.properties.keys() - waiting.properties.keys() == added
            assert waiting.properties.items() <= came.properties.items()
            # The slot in which its time is ends, and then it comes.
            assert came.store_timestamp_ms >= slot_ms + 1_000

    asyncio.run(main())


def test_a_time_that_is_over_or_not_looked_at_delays_nothing(cluster: Cluster) -> None:
    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            topic = new_topic("at-once")
            (queue,) = await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            address = cluster.brokers[0].address
            now_ms = wall_ms()
            for properties in (
                {"TIMER_DELIVER_MS": str(now_ms - 1_000)},
                {"TIMER_DELAY_SEC": "-5"},
                {"TIMER_DELAY_SEC": ""},
                {"__STARTDELIVERTIME": str(now_ms + 60_000)},
                {"TIMER_DELAY_SEC": "60", "TIMER_OUT_MS": "1"},
            ):
                await reader.send_unchecked(address, topic, encode_properties(properties))
            assert len(await reader.read(queue, 5)) == 5

    asyncio.run(main())


def test_a_time_that_can_not_be_had_is_refused(cluster: Cluster) -> None:
    needs_timers(cluster)

    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            topic = new_topic("refused")
            (queue,) = await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            address = cluster.brokers[0].address
            for properties in (
                {"TIMER_DELAY_SEC": "soon"},
                {"TIMER_DELAY_MS": str(3 * 24 * 3600 * 1000 + 60_000)},
                {"TIMER_DELIVER_MS": str(wall_ms() - 1_000), "TIMER_DEL_UNIQKEY": "x"},
            ):
                with pytest.raises(BrokerError) as refused:
                    await reader.send_unchecked(address, topic, encode_properties(properties))
                assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
                assert refused.value.remark == (
                    "timer message illegal, the delay time should not be bigger than the max delay "
                    "259200000ms; or if set del msg, the delay time should be bigger than the "
                    "current time"
                )
            assert await reader.end(queue) == 0

    asyncio.run(main())


def test_a_timed_message_outlives_a_broker_that_is_killed(cluster: Cluster) -> None:
    needs_timers(cluster)

    async def main() -> None:
        async with (
            Reader(cluster.namesrv) as reader,
            AsyncProducer("timed", namesrv=cluster.namesrv, send_timeout=TIMEOUT) as producer,
        ):
            topic = new_topic("timer")
            (queue,) = await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            sent_ms = wall_ms()
            for number in range(3):
                message = Message(topic, b"%d" % number, deliver_at_ms=sent_ms + 3_000)
                await producer.send(message, queue=queue)
            await asyncio.sleep(1)  # 5.5.0 has it in the kernel's hands by then
            await asyncio.to_thread(cluster.brokers[0].kill)
            await asyncio.to_thread(cluster.heal)
            found = await reader.read(queue, 3)
            # 5.5.0 delivers them twice when its last checkpoint is older than they are.
            assert {each.body for each in found} == {b"0", b"1", b"2"}
            assert all(each.store_timestamp_ms >= sent_ms + 3_000 for each in found)

    asyncio.run(main())


def test_a_timed_message_can_be_taken_back(cluster: Cluster) -> None:
    needs_timers(cluster)

    async def main() -> None:
        async with (
            Reader(cluster.namesrv) as reader,
            AsyncProducer("timed", namesrv=cluster.namesrv, send_timeout=TIMEOUT) as producer,
        ):
            topic = new_topic("recalled")
            (queue,) = await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            unwanted = await producer.send(Message(topic, b"unwanted", delay_seconds=12))
            wanted = await producer.send(Message(topic, b"wanted", delay_seconds=13))
            assert unwanted.recall_handle is not None
            taken_back = await producer.recall(topic, unwanted.recall_handle)
            assert taken_back == unwanted.message_id
            (message,) = await reader.pull(queue, 0)
            assert (message.body, message.message_id) == (b"wanted", wanted.message_id)
            assert wanted.recall_handle is not None
            with pytest.raises(BrokerError) as late:
                await producer.recall(topic, wanted.recall_handle)
            assert late.value.code == ResponseCode.ILLEGAL_OPERATION
            assert late.value.remark == "recall failed, timestamp invalid"

    asyncio.run(main())


def test_a_handle_that_takes_nothing_back_is_refused(cluster: Cluster) -> None:
    needs_timers(cluster)

    async def main() -> None:
        async with Reader(cluster.namesrv) as reader:
            topic = new_topic("not-recalled")
            await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            broker = await reader.at(cluster.brokers[0].address)
            name, soon_ms = cluster.brokers[0].name, wall_ms() + 60_000

            async def answer(handle: str, topic: str = topic) -> tuple[int, str | None]:
                request = RecallMessage(producer_group="g", topic=topic, recall_handle=handle)
                answer = await broker.invoke(request.to_command(), timeout=TIMEOUT)
                assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"
                return answer.code, answer.remark

            def handle(topic: str = topic, broker_name: str = name, at_ms: int = soon_ms) -> str:
                return RecallHandle(topic, broker_name, at_ms, "7F" * 16).encode()

            illegal = ResponseCode.ILLEGAL_OPERATION
            unavailable = "recall failed, broker service not available"
            invalid = (illegal, "recall handle is invalid")
            no_time = (illegal, "recall failed, timestamp invalid")
            assert await answer("") == invalid
            assert await answer("no handle") == invalid
            assert await answer("djEgYQ==") == invalid
            no_match = (illegal, "recall failed, topic not match")
            assert await answer(handle(topic="other")) == no_match
            assert await answer(handle(broker_name="none")) == (illegal, unavailable)
            assert await answer(handle(at_ms=wall_ms() - 1)) == no_time
            assert await answer(handle(at_ms=wall_ms() + 4 * 24 * 3600 * 1000)) == no_time
            no_topic = (ResponseCode.TOPIC_NOT_EXIST, "recall failed, the topic[none] not exist")
            assert await answer(handle(), topic="none") == no_topic
            # Whether there is such a message shows only when its time has come.
            assert (await answer(handle()))[0] == ResponseCode.SUCCESS

    asyncio.run(main())


def test_a_broker_that_can_not_recall_says_so(cluster: Cluster) -> None:
    if cluster.version == "5.5.0":
        pytest.skip("5.5.0 can recall, as the tests above show")

    async def main() -> None:
        async with (
            Reader(cluster.namesrv) as reader,
            AsyncProducer("timed", namesrv=cluster.namesrv, send_timeout=TIMEOUT) as producer,
        ):
            topic = new_topic("not-recalled")
            await reader.create_topic(topic, cluster.brokers, queues=1)
            handle = RecallHandle(topic, "broker-a", wall_ms() + 60_000, "7F" * 16).encode()
            with pytest.raises(BrokerError) as raised:
                await producer.recall(topic, handle)
            assert raised.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    asyncio.run(main())
