"""POP: brokers of 5.x share out messages, and each is acknowledged by itself."""

import asyncio
from collections import Counter

import pytest

from rocketpipe import Message, Retry, StoredMessage
from rocketpipe.errors import BrokerError
from tests.interop.clusters import Cluster, Reader, new_topic
from tests.interop.consuming import Remembers, push_at, send_to_all, until
from tests.interop.messages import producer_at


def has_pop(cluster: Cluster) -> bool:
    return cluster.version != "4.9.4"


def test_members_share_messages_and_none_is_lost_or_doubled(cluster: Cluster) -> None:
    async def main() -> None:
        group, topic = new_topic("pop"), new_topic("pop")
        one, two = Remembers(), Remembers()
        async with Reader(cluster.namesrv) as reader:
            queues = await reader.create_topic(topic, cluster.brokers, queues=2)
            how = {"subscriptions": {topic: "*"}, "pop": True}
            first = push_at(cluster, group, one, instance_name="one", **how)
            if not has_pop(cluster):
                with pytest.raises(BrokerError, match="not supported"):
                    await first.start()
                return
            async with first, push_at(cluster, group, two, instance_name="two", **how) as second:
                assert {queue.queue_id for queue in await second.assigned()} == {-1}
                sent = await send_to_all(cluster, queues, 50)
                everything = sorted(body for bodies in sent.values() for body in bodies)
                await until(
                    lambda: len(one.bodies + two.bodies) >= len(everything), "all messages came"
                )
                assert sorted(one.bodies + two.bodies) == everything
                assert one.bodies
                assert two.bodies
            late = Remembers()
            async with push_at(cluster, group, late, **how):
                (extra,) = (await send_to_all(cluster, queues[:1], 1, begin=50)).values()
                await until(lambda: extra[0] in late.bodies, "the last one came")
                await asyncio.sleep(3)
            assert late.bodies == extra  # all others were acknowledged

    asyncio.run(main())


def test_a_popped_message_that_fails_comes_again_and_then_is_a_dead_letter(
    cluster: Cluster,
) -> None:
    if not has_pop(cluster):
        pytest.skip("no POP there, which the other test sees refused")

    async def main() -> None:
        group, topic = new_topic("pop-retry"), new_topic("pop-retry")
        given: list[tuple[bytes, int, str]] = []

        async def listen(messages: list[StoredMessage]) -> Retry | None:
            (message,) = messages
            given.append((message.body, message.reconsume_times, message.topic))
            return Retry(delay_level=1) if message.body == b"bad" else None

        async with Reader(cluster.namesrv) as reader, producer_at(cluster) as producer:
            await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            async with push_at(
                cluster,
                group,
                listen,
                subscriptions={topic: "*"},
                pop=True,
                max_reconsume_times=1,
            ):
                for body in (b"bad", b"good"):
                    await producer.send(Message(topic, body))
                await until(lambda: len(given) >= 3, "it came again")
                (dead,) = await reader.messages(f"%DLQ%{group}", 1)
            assert Counter(given) == Counter(
                [(b"good", 0, topic), (b"bad", 0, topic), (b"bad", 1, topic)]
            )
            assert dead.body == b"bad"

    asyncio.run(main())


def test_what_a_listener_does_not_finish_in_time_comes_again(cluster: Cluster) -> None:
    if not has_pop(cluster):
        pytest.skip("no POP there, which the other test sees refused")

    async def main() -> None:
        group, topic = new_topic("pop-late"), new_topic("pop-late")
        given: list[int] = []

        async def listen(messages: list[StoredMessage]) -> None:
            given.append(messages[0].reconsume_times)
            if len(given) == 1:
                await asyncio.sleep(3600)

        async with Reader(cluster.namesrv) as reader, producer_at(cluster) as producer:
            await reader.create_topic(topic, cluster.brokers[:1], queues=1)
            async with push_at(
                cluster,
                group,
                listen,
                subscriptions={topic: "*"},
                pop=True,
                invisible_time=5.0,
                close_timeout=0.1,
            ):
                await producer.send(Message(topic, b"x"))
                await until(lambda: len(given) >= 2, "it came again")
        assert given[:2] == [0, 1]

    asyncio.run(main())
