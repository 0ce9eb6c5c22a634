"""The pull consumer: what poll gives, what counts as consumed, and who reads which queue."""

import asyncio
from typing import Any

import pytest

from rocketpipe.client.allocation import by_config
from rocketpipe.client.consumer.pull_consumer import AsyncPullConsumer
from rocketpipe.client.consumer.pulling import Pulled, PullStatus
from rocketpipe.client.consumer.subscriptions import Sql92
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.errors import BrokerError, ClientError, IllegalState, InvalidSetting, OffsetGap
from rocketpipe.message import MessageQueue, StoredMessage
from tests.consumer_bench import ConsumerBench, simulated


async def poll_all(consumer: AsyncPullConsumer, count: int) -> list[StoredMessage]:
    """So many messages, and no more."""
    found: list[StoredMessage] = []
    while len(found) < count:
        messages = await consumer.poll(timeout=60)
        assert messages, f"{len(found)} of {count} came"
        found += messages
    return found


def bodies(messages: list[StoredMessage]) -> list[bytes]:
    return sorted(message.body for message in messages)


@simulated(brokers=2)
async def test_a_subscriber_gets_all_messages_of_its_topic(bench: ConsumerBench) -> None:
    queues = await bench.create_topic("orders")
    sent = await bench.send("orders", 100)
    async with bench.pull_consumer() as consumer:
        await consumer.subscribe("orders")
        found = await poll_all(consumer, 100)
        assert bodies(found) == sorted(sent)
        assert {message.queue for message in found} == set(queues)
        assert await consumer.assigned() == await consumer.queues("orders") == sorted(queues)
        assert set((await consumer.lag()).values()) == {0}
        sent = await bench.send("orders", 3)  # and those that come while it waits
        assert bodies(await poll_all(consumer, 3)) == sorted(sent)
        assert await consumer.poll(timeout=0) == []


@simulated()
async def test_the_order_of_each_queue_is_kept(bench: ConsumerBench) -> None:
    first, second = await bench.create_topic("orders", queues=2)
    for queue in (first, second):
        await bench.send("orders", 150, queue=queue)
    async with bench.pull_consumer() as consumer:
        await consumer.subscribe("orders")
        found = await poll_all(consumer, 300)
    for queue in (first, second):
        offsets = [message.queue_offset for message in found if message.queue == queue]
        assert offsets == list(range(150))


@simulated()
async def test_tags_are_compared_here_since_hashes_collide(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    for tags in ("Aa", "BB", "other"):  # the first two have one hash
        await bench.send("orders", 5, queue=queue, tags=tags)
    async with bench.pull_consumer() as consumer:
        await consumer.subscribe("orders", "BB || none")
        found = await poll_all(consumer, 5)
        assert {message.tags for message in found} == {"BB"}
        assert await consumer.poll(timeout=1) == []
        await consumer.commit()
        assert await consumer.committed(queue) == 15  # with those that were left out


# What counts as consumed.


@simulated()
async def test_what_was_polled_is_consumed_when_more_is_asked_for(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 10, queue=queue)
    async with bench.pull_consumer() as consumer:
        await consumer.subscribe("orders")
        await consumer.poll(messages_max=4)
        await asyncio.sleep(6)
        assert await consumer.committed(queue) == 0
        await consumer.poll(messages_max=3)
        await asyncio.sleep(6)
        assert await consumer.committed(queue) == 4
        assert await consumer.offsets() == {queue: 7}
        assert await consumer.lag() == {queue: 3}
    async with bench.pull_consumer(pid=3) as other:
        assert await other.committed(queue) == 7


@simulated()
async def test_an_error_leaves_the_last_poll_to_come_again(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 10, queue=queue)
    with pytest.raises(ZeroDivisionError):
        async with bench.pull_consumer() as consumer:
            await consumer.subscribe("orders")
            async for message in consumer:
                if message.queue_offset == 5:
                    raise ZeroDivisionError
    async with bench.pull_consumer(pid=3) as other:
        assert await other.committed(queue) == 5
        await other.subscribe("orders")
        assert (await other.poll())[0].queue_offset == 5


@simulated()
async def test_without_auto_commit_only_commit_commits(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 2500, queue=queue)  # more than a queue may hold here
    async with bench.pull_consumer(auto_commit=False) as consumer:
        await consumer.subscribe("orders")
        await poll_all(consumer, 2500)
        await asyncio.sleep(6)
        assert await consumer.committed(queue) == 0
        await consumer.commit({queue: 17})
        assert await consumer.committed(queue) == 17
        await consumer.commit()
        assert await consumer.committed(queue) == 2500
        await bench.send("orders", 1, queue=queue)
        await consumer.poll()
    async with bench.pull_consumer(pid=3) as other:
        assert await other.committed(queue) == 2500


# Seeking and pausing.


@simulated()
async def test_seeking(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 5, queue=queue)
    await asyncio.sleep(10)
    then = bench.clock.wall_ms()
    await asyncio.sleep(10)
    await bench.send("orders", 5, queue=queue)
    async with bench.pull_consumer() as consumer:
        await consumer.subscribe("orders")
        for seek, first in (
            (consumer.seek(queue, 3), 3),
            (consumer.seek_to_begin(queue), 0),
            (consumer.seek_to_time(queue, then), 5),
        ):
            await seek
            assert (await consumer.offsets())[queue] == first
            found = await poll_all(consumer, 10 - first)
            assert [each.queue_offset for each in found] == list(range(first, 10))
        await consumer.seek_to_end(queue)
        assert await consumer.poll(timeout=1) == []
        await bench.send("orders", 1, queue=queue)
        assert (await consumer.poll())[0].queue_offset == 10
        with pytest.raises(IllegalState, match="not one of the queues"):
            await consumer.seek(MessageQueue("orders", "broker-a", 7), 0)
        with pytest.raises(InvalidSetting, match="whole number"):
            await consumer.seek(queue, -1)


@simulated()
async def test_a_gap_is_an_error_until_one_seeks_beyond_it(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 5, queue=queue)
    async with bench.pull_consumer() as consumer:
        await consumer.subscribe("orders")
        await consumer.seek(queue, 50)
        for _ in range(3):
            with pytest.raises(OffsetGap, match=r"offset 50 was to be read next, .* ends at 5"):
                await consumer.poll()
        await consumer.pause([queue])  # so that others can be read
        assert await consumer.poll(timeout=1) == []
        await consumer.resume([queue])
        with pytest.raises(OffsetGap):
            await anext(consumer)
        await consumer.seek_to_begin(queue)
        assert len(await poll_all(consumer, 5)) == 5
        await consumer.seek(queue, 50)
        await asyncio.sleep(1)
        await consumer.unsubscribe("orders")
        assert await consumer.poll(timeout=1) == []
    async with bench.pull_consumer(skip_gaps=True, pid=3) as consumer:
        await consumer.assign([queue])
        await consumer.seek(queue, 50)
        assert await consumer.poll(timeout=1) == []
        await bench.send("orders", 1, queue=queue)
        assert (await consumer.poll())[0].queue_offset == 5


@simulated()
async def test_what_is_before_a_gap_comes_before_the_error(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 5, queue=queue)
    for pid, skips in ((2, False), (3, True)):
        async with bench.pull_consumer(f"group-{pid}", pid=pid, skip_gaps=skips) as consumer:
            await consumer.subscribe("orders")
            assert len(await consumer.poll(messages_max=2)) == 2
            (assigned,) = consumer._assigned.values()
            gone = Pulled(PullStatus.OFFSET_ILLEGAL, 9, 9, 12, b"", "OFFSET_TOO_SMALL")
            consumer._moved(assigned.process_queue, gone)
            assert [each.queue_offset for each in await consumer.poll()] == [2, 3, 4]
            if skips:
                assert await consumer.poll(timeout=0) == []
                await asyncio.sleep(0.01)
                assert await consumer.offsets() == {queue: 9}
            else:
                with pytest.raises(OffsetGap, match=r"offset 5 was to be .* goes on at 9"):
                    await consumer.poll()


@simulated()
async def test_a_paused_queue_gives_nothing(bench: ConsumerBench) -> None:
    first, second = await bench.create_topic("orders", queues=2)
    async with bench.pull_consumer() as consumer:
        await consumer.subscribe("orders")
        await consumer.pause([first])
        await bench.send("orders", 5, queue=first)
        await bench.send("orders", 5, queue=second)
        found = await poll_all(consumer, 5)
        assert {message.queue for message in found} == {second}
        assert await consumer.poll(timeout=20) == []
        await consumer.resume([first])
        found = await poll_all(consumer, 5)
        assert {message.queue for message in found} == {first}


# Who reads which queue.


@simulated(brokers=2)
async def test_members_share_queues_as_they_come_and_go(bench: ConsumerBench) -> None:
    queues = await bench.create_topic("orders")
    first, second = bench.pull_consumer(), bench.pull_consumer(pid=3)
    await first.start()
    await first.subscribe("orders")
    assert await first.assigned() == sorted(queues)
    await second.start()
    await second.subscribe("orders")
    await asyncio.sleep(1)  # the broker tells the first one at once
    shares = await first.assigned(), await second.assigned()
    assert [len(share) for share in shares] == [4, 4]
    assert sorted(shares[0] + shares[1]) == sorted(queues)
    await second.close()
    await asyncio.sleep(1)
    assert await first.assigned() == sorted(queues)
    await first.close()


@simulated()
async def test_a_member_that_is_cut_off_loses_its_queues(bench: ConsumerBench) -> None:
    queues = await bench.create_topic("orders")
    first, second = bench.pull_consumer(), bench.pull_consumer(pid=3)
    for consumer in (first, second):
        await consumer.start()
        await consumer.subscribe("orders")
    await asyncio.sleep(1)
    assert len(await first.assigned()) == 2
    bench.network.cut("10.0.2.3", "10.0.1.1")
    bench.network.cut("10.0.2.3", "10.0.0.9")
    await asyncio.sleep(150)  # the broker gives up on a client after two minutes
    assert await first.assigned() == sorted(queues)
    await first.close()
    bench.network.heal_all()
    await second.close()


@simulated()
async def test_offsets_are_stored_for_who_takes_a_queue_over(bench: ConsumerBench) -> None:
    await bench.create_topic("orders")
    sent = await bench.send("orders", 200)
    found: list[StoredMessage] = []
    async with bench.pull_consumer() as first:
        await first.subscribe("orders")
        found += await first.poll(messages_max=57)
        async with bench.pull_consumer(pid=3) as second:
            await second.subscribe("orders")
            while messages := [
                *await first.poll(timeout=2, messages_max=10),
                *await second.poll(timeout=2, messages_max=10),
            ]:
                found += messages
    # Those that the first had polled when a queue was taken from it may come twice.
    assert sorted(set(bodies(found))) == sorted(sent)
    assert len(found) < 260


@simulated()
async def test_queues_may_be_assigned_and_then_nobody_shares_them(bench: ConsumerBench) -> None:
    first, second = await bench.create_topic("orders", queues=2)
    await bench.send("orders", 5, queue=first)
    await bench.send("orders", 5, queue=second, tags="red")
    async with bench.pull_consumer() as one, bench.pull_consumer(pid=3) as other:
        for consumer in (one, other):
            await consumer.assign([first])
            assert len(await poll_all(consumer, 5)) == 5
        await other.assign([second], "red")
        assert await other.assigned() == [second]
        assert {message.queue for message in await poll_all(other, 5)} == {second}
        with pytest.raises(IllegalState, match="given its queues by assign"):
            await other.subscribe("orders")
    async with bench.pull_consumer(pid=4) as subscriber:
        await subscriber.subscribe("orders")
        with pytest.raises(IllegalState, match="subscribes to topics"):
            await subscriber.assign([first])


@simulated()
async def test_queues_are_not_assigned_with_a_filter_that_their_broker_refuses(
    bench: ConsumerBench,
) -> None:
    first, second = await bench.create_topic("orders", queues=2)
    bench.brokers[0].faults.refuse(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        "what shall that be?",
        code=RequestCode.CHECK_CLIENT_CONFIG,
    )
    async with bench.pull_consumer() as consumer:
        await consumer.assign([first])
        with pytest.raises(BrokerError, match="what shall that be"):
            await consumer.assign([first, second], Sql92("a >"))
        assert await consumer.assigned() == [first]  # as if nothing had been asked for
        await consumer.assign([second], "TagA")  # who understands tags is not asked


@simulated()
async def test_a_topic_that_is_made_later_is_found(bench: ConsumerBench) -> None:
    async with bench.pull_consumer() as consumer:
        await consumer.subscribe("orders")
        assert await consumer.poll(timeout=1) == []
        await bench.create_topic("orders")
        sent = await bench.send("orders", 5)
        assert bodies(await poll_all(consumer, 5)) == sorted(sent)


@simulated()
async def test_unsubscribing_ends_it(bench: ConsumerBench) -> None:
    await bench.create_topic("orders")
    await bench.create_topic("bills")
    async with bench.pull_consumer() as consumer:
        await consumer.subscribe("orders")
        await consumer.subscribe("bills")
        await consumer.unsubscribe("orders")
        await bench.send("orders", 5)
        await bench.send("bills", 5)
        assert {each.topic for each in await poll_all(consumer, 5)} == {"bills"}
        await asyncio.sleep(60)
        assert {queue.topic for queue in await consumer.assigned()} == {"bills"}


@simulated()
async def test_two_of_one_group_in_one_client_are_refused(bench: ConsumerBench) -> None:
    await bench.create_topic("orders")
    environment = bench.environment(2)
    settings: dict[str, Any] = {"namesrv": bench.namesrv, "environment": environment}
    async with AsyncPullConsumer("group", **settings) as one:
        await one.subscribe("orders")
        async with AsyncPullConsumer("group", **settings) as other:
            with pytest.raises(ClientError, match=r"a consumer of group .group. in client"):
                await other.subscribe("orders")
        assert await one.assigned() != []


@simulated()
async def test_a_namespace_is_put_before_topic_and_group(bench: ConsumerBench) -> None:
    await bench.create_topic("shop%orders")
    sent = await bench.send("shop%orders", 5)
    async with bench.pull_consumer(namespace="shop") as consumer:
        await consumer.subscribe("orders")
        found = await poll_all(consumer, 5)
        assert bodies(found) == sorted(sent)
        assert {message.topic for message in found} == {"orders"}
        assert {queue.topic for queue in await consumer.assigned()} == {"orders"}
    assert "shop%group" in bench.brokers[0].groups.table


@simulated()
async def test_a_rule_of_the_users_own_sees_the_names_that_the_user_knows(
    bench: ConsumerBench,
) -> None:
    queues = await bench.create_topic("shop%orders")
    sent = await bench.send("shop%orders", 4, queue=queues[2])
    wanted = MessageQueue("orders", "broker-a", 2)
    async with bench.pull_consumer(namespace="shop", allocation=by_config([wanted])) as consumer:
        await consumer.subscribe("orders")
        assert await consumer.assigned() == [wanted]
        assert bodies(await poll_all(consumer, 4)) == sorted(sent)


@simulated()
async def test_no_more_is_pulled_than_may_wait_here(bench: ConsumerBench) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 300, queue=queue)
    async with bench.pull_consumer(queue_messages_max=64) as consumer:
        await consumer.subscribe("orders")
        await asyncio.sleep(5)
        assert consumer._cache.messages == 64
        await consumer.poll(messages_max=40)
        await asyncio.sleep(5)
        assert 64 <= consumer._cache.messages < 64 + 32
        await poll_all(consumer, 260)


@simulated()
async def test_a_loop_over_a_consumer_ends_when_it_is_closed(bench: ConsumerBench) -> None:
    await bench.create_topic("orders")
    await bench.send("orders", 3)
    consumer = bench.pull_consumer()
    await consumer.subscribe("orders")  # before it starts, it is a wish
    await consumer.start()

    async def close_soon() -> None:
        await asyncio.sleep(10)
        await consumer.close()

    closing = asyncio.create_task(close_soon())
    assert len([message async for message in consumer]) == 3
    await closing
    with pytest.raises(IllegalState):
        await consumer.poll()
