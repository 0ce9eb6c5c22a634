"""The shop's producers on simulated time, while a broker dies and comes back."""

import asyncio
import json

import pytest

from rocketpipe.client.queue_choice import POLICIES
from rocketpipe.demo.books import Stored, close_books
from rocketpipe.demo.load import PATIENCE, Load
from rocketpipe.demo.orders import Shop
from rocketpipe.demo.tally import Tally, Watch
from rocketpipe.message import Message
from tests.simulated_cluster import SimulatedCluster, ignore, lose_answer, simulated

SECONDS, RATE = 20, 50
TOPICS = ("orders", "activity")

pytestmark = pytest.mark.slow


def stored(cluster: SimulatedCluster) -> list[Stored]:
    rows = []
    for broker in cluster.brokers:
        for offset, each in enumerate(broker.stored):
            body = json.loads(each.body)
            queue = f"{broker.name}:{each.header.queue_id}"
            (message_id,) = each.message_ids
            rows.append(
                Stored(
                    each.header.topic,
                    message_id,
                    queue,
                    offset,
                    body["customer"],
                    body.get("sequence"),
                )
            )
    return rows


async def run_load(cluster: SimulatedCluster, tally: Tally, policy: str = "java5") -> None:
    async with (
        cluster.producer("one", policy=policy, hooks=[Watch(tally)]) as one,
        cluster.producer("two", policy=policy, hooks=[Watch(tally)]) as two,
    ):
        shop = Shop(seed=3, orders_topic="orders", activity_topic="activity")
        await Load(
            [one, two],
            shop,
            tally,
            queues=await one.publish_queues("orders"),
            rate=RATE,
            wall_ms=cluster.clock.wall_ms,
        ).run(SECONDS)


def prepared(cluster: SimulatedCluster) -> Tally:
    for topic in TOPICS:
        cluster.add_topic(topic, queues=2)
    return Tally(asyncio.get_running_loop().time)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_dead_broker_fails_no_free_send_and_breaks_no_order(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Larger ones are compressed, and are read here.
    monkeypatch.setattr("rocketpipe.demo.orders.NOTE_BYTES_MAX", 100)

    @simulated(brokers=3)
    async def test(cluster: SimulatedCluster) -> None:
        tally = prepared(cluster)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(hurt(cluster))
            tasks.create_task(run_load(cluster, tally, policy))

        free, bound = (tally.topics[topic] for topic in ("activity", "orders"))
        assert free.failed == 0
        assert bound.failed == bound.resent > 0
        assert free.sends + bound.sends == SECONDS * RATE + bound.resent
        assert (free.on_their_way, bound.on_their_way, bound.waiting) == (0, 0, 0)
        rows = stored(cluster)
        books = close_books({topic: tally.topics[topic].message_ids for topic in TOPICS}, rows)
        assert (books.lost, books.out_of_order) == ([], [])
        events = {(row.customer, row.sequence) for row in rows if row.topic == "orders"}
        assert len(events) == bound.acknowledged, "each event was acknowledged once, and all were"

    test()


async def hurt(cluster: SimulatedCluster) -> None:
    victim = cluster.broker("broker-a")
    await asyncio.sleep(5)
    await cluster.crash(victim)
    for topic in TOPICS:
        cluster.add_topic(topic, queues=2, brokers=["broker-b", "broker-c"])
    await asyncio.sleep(4)
    await cluster.restart(victim)
    for topic in TOPICS:
        cluster.add_topic(topic, queues=2)
    await asyncio.sleep(4)
    cluster.broker("broker-b").script.extend([lose_answer] * 6)


@simulated(brokers=1)
async def test_the_shop_gives_up_some_time_after_the_end(cluster: SimulatedCluster) -> None:
    tally = prepared(cluster)
    cluster.broker("broker-a").behaviour = ignore
    started = cluster.now
    await run_load(cluster, tally)
    assert cluster.now - started < SECONDS + PATIENCE + 5
    assert tally.topics["orders"].acknowledged == tally.topics["activity"].acknowledged == 0
    assert tally.topics["orders"].on_their_way == 0


@simulated(brokers=2)
async def test_a_producer_says_whom_it_avoids(cluster: SimulatedCluster) -> None:
    cluster.add_topic("orders", queues=1)
    async with cluster.producer(policy="java5") as producer:
        assert producer.isolated() == {}
        cluster.broker("broker-a").behaviour = ignore
        for _ in range(4):
            await producer.send(Message("orders", b"x"))
        ((broker, seconds),) = producer.isolated().items()
        assert broker == "broker-a"
        assert 0 < seconds <= 10
