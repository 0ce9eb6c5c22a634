"""Groups: who reads which queue as members come, go and die, be they ours or Java's."""

import asyncio
import sys
from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

from rocketpipe import AsyncPushConsumer, Message, MessageQueue, StoredMessage
from rocketpipe.clock import SystemClock
from tests.apache.programs import JavaProgram
from tests.apache.require import require
from tests.interop.clusters import JAVA, Cluster, Reader, new_topic
from tests.interop.consuming import (
    PATIENCE,
    Remembers,
    pull_at,
    push_at,
    running_info,
    send_to_all,
    share,
    until,
)
from tests.interop.messages import producer_at


def java_bodies(output: str) -> list[bytes]:
    rows = (line.split("\t") for line in output.splitlines() if line.startswith("got\t"))
    return [row[1].encode() for row in rows]


def test_a_java_and_a_python_consumer_share_a_group(cluster: Cluster) -> None:
    require(cluster.version)

    async def main() -> None:
        group, topic = new_topic("mixed"), new_topic("mixed")
        ours = Remembers()
        async with Reader(cluster.namesrv) as reader:
            queues = await reader.create_topic(topic, cluster.brokers)
            with JavaProgram(
                cluster.version,
                JAVA / "Member.java",
                [group, topic, "concurrent"],
                namesrv=cluster.namesrv,
            ) as java:
                output = await asyncio.to_thread(java.wait_for, "client ", PATIENCE)
                client_id = output.split("client ")[1].split()[0]

                async def javas_share() -> set[MessageQueue]:
                    info = await running_info(reader, cluster, group, client_id)
                    return {q for q in info.mq_table if q.topic == topic} if info else set()

                async def it_has_all() -> bool:
                    return await javas_share() == set(queues)

                await until(it_has_all, "the Java member has all queues")
                async with push_at(cluster, group, ours, subscriptions={topic: "*"}) as consumer:

                    async def is_shared() -> bool:
                        mine, javas = await share(consumer, topic), await javas_share()
                        halves = len(mine) == len(javas) == len(queues) // 2
                        return halves and mine | javas == set(queues)

                    await until(is_shared, "each has one half of the queues")
                    sent = await send_to_all(cluster, queues, 20)
                    everything = sorted(body for bodies in sent.values() for body in bodies)

                    def all_came() -> bool:
                        return len(ours.bodies) + len(java_bodies(java.output)) >= len(everything)

                    await until(all_came, "all messages came")
                    mine = await share(consumer, topic)
                    # Each message to exactly one of the two, the one that has its queue.
                    assert sorted(ours.bodies + java_bodies(java.output)) == everything
                    assert sorted(ours.bodies) == sorted(b for q in mine for b in sent[q])
                    java.close()  # killed

                    async def all_ours() -> bool:
                        return await share(consumer, topic) == set(queues)

                    await until(all_ours, "the dead one's queues are ours")
                    before = len(ours.bodies)
                    sent = await send_to_all(cluster, queues, 5, begin=20)
                    fresh = {body for bodies in sent.values() for body in bodies}
                    await until(lambda: fresh <= set(ours.bodies[before:]), "all came to us")

    asyncio.run(main())


def test_members_that_come_and_go_share_the_queues_anew(cluster: Cluster) -> None:
    async def main() -> None:
        group, topic = new_topic("members"), new_topic("members")
        one, two, three = Remembers(), Remembers(), Remembers()

        def came() -> int:
            return len(one.bodies + two.bodies + three.bodies)

        async with Reader(cluster.namesrv) as reader:
            queues = await reader.create_topic(topic, cluster.brokers, queues=3)
            subscriptions = {topic: "*"}
            async with push_at(
                cluster, group, one, subscriptions=subscriptions, instance_name="one"
            ) as first:
                assert await share(first, topic) == set(queues)
                async with (
                    push_at(
                        cluster, group, two, subscriptions=subscriptions, instance_name="two"
                    ) as second,
                    push_at(
                        cluster, group, three, subscriptions=subscriptions, instance_name="three"
                    ) as third,
                ):
                    members = (first, second, third)

                    async def is_shared() -> bool:
                        shares = [await share(member, topic) for member in members]
                        return [len(each) for each in shares] == [2, 2, 2] and set().union(
                            *shares
                        ) == set(queues)

                    await until(is_shared, "each has a third")
                    sent = await send_to_all(cluster, queues, 10)
                    everything = sorted(body for bodies in sent.values() for body in bodies)
                    await until(lambda: came() >= len(everything), "all messages came")
                    assert sorted(one.bodies + two.bodies + three.bodies) == everything

                async def all_ours() -> bool:
                    return await share(first, topic) == set(queues)

                await until(all_ours, "the first has all queues again")
                before = came()
                await send_to_all(cluster, queues, 5, begin=10)
                await until(lambda: came() >= before + 5 * len(queues), "all came to the first")
            assert came() == before + 5 * len(queues)  # none twice: offsets were stored on leaving

    asyncio.run(main())


KILLED = """
import asyncio, sys
from rocketpipe import AsyncPushConsumer

async def listen(messages):
    print(messages[0].body.decode(), flush=True)
    await asyncio.sleep(3600)

async def main():
    group, topic, namesrv = sys.argv[1:]
    async with AsyncPushConsumer(
        group, listen, subscriptions={topic: "*"}, namesrv=namesrv, consume_from="first"
    ):
        await asyncio.sleep(3600)

asyncio.run(main())
"""


def test_a_killed_consumers_messages_come_back_to_another(cluster: Cluster) -> None:
    async def main() -> None:
        group, topic = new_topic("killed"), new_topic("killed")
        async with Reader(cluster.namesrv) as reader:
            queues = await reader.create_topic(topic, cluster.brokers, queues=2)
            sent = await send_to_all(cluster, queues, 10)
            everything = sorted(body for bodies in sent.values() for body in bodies)
            victim = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", KILLED, group, topic, cluster.namesrv),
                stdout=asyncio.subprocess.PIPE,
            )
            try:
                assert victim.stdout is not None
                async with asyncio.timeout(PATIENCE):
                    begun = {(await victim.stdout.readline()).strip() for _ in range(20)}
                assert begun <= set(everything)
                await asyncio.sleep(6)  # time enough to store an offset, were it not forbidden
            finally:
                victim.kill()
                await victim.wait()
            ours = Remembers()
            async with push_at(cluster, group, ours, subscriptions={topic: "*"}):
                await until(lambda: len(ours.bodies) >= len(everything), "all came again")
            assert sorted(ours.bodies) == everything

    asyncio.run(main())


def test_order_is_kept_per_queue_while_members_come_and_go(cluster: Cluster) -> None:
    async def main() -> None:
        group, topic = new_topic("ordered"), new_topic("ordered")
        seen: dict[tuple[str | None, int], list[int]] = defaultdict(list)
        at_work: set[tuple[str | None, int]] = set()

        async def witness(messages: list[StoredMessage]) -> None:
            (message,) = messages
            queue = message.broker_name, message.queue_id
            assert queue not in at_work
            at_work.add(queue)
            await asyncio.sleep(0.05)
            at_work.discard(queue)
            seen[queue].append(message.queue_offset)

        def member(name: str) -> AsyncPushConsumer:
            return push_at(
                cluster,
                group,
                witness,
                subscriptions={topic: "*"},
                orderly=True,
                instance_name=name,
            )

        async with Reader(cluster.namesrv) as reader:
            queues = await reader.create_topic(topic, cluster.brokers, queues=2)
            each = 60
            async with member("one") as one:
                sending = asyncio.create_task(send_to_all(cluster, queues, each))
                async with member("two") as two:

                    async def is_shared() -> bool:
                        shares = await share(one, topic), await share(two, topic)
                        return [len(share) for share in shares] == [2, 2]

                    await until(is_shared, "each has one half")
                    await asyncio.sleep(1)
                await sending

                def all_came() -> bool:
                    return sum(map(len, seen.values())) >= each * len(queues)

                await until(all_came, "all messages came")
        for queue in queues:
            offsets = seen[queue.broker_name, queue.queue_id]
            assert offsets == list(range(each)), queue

    asyncio.run(main())


class Work(NamedTuple):
    """A message in the hands of a member, by this machine's clock."""

    begin_ms: int
    end_ms: int
    place: tuple[str, int, int]  # broker, queue and offset
    is_javas: bool


def java_works(output: str) -> list[Work]:
    rows = (line.split("\t") for line in output.splitlines() if line.startswith("got\t"))
    return [
        Work(int(begin_ms), int(end_ms), (broker_name, int(queue_id), int(offset)), True)
        for _, _, broker_name, queue_id, offset, begin_ms, end_ms in rows
    ]


def test_order_is_kept_per_queue_while_java_and_python_contest_its_locks(cluster: Cluster) -> None:
    require(cluster.version)

    async def main() -> None:
        group, topic = new_topic("mixed-order"), new_topic("mixed-order")
        clock, ours, is_over = SystemClock(), list[Work](), asyncio.Event()

        async def witness(messages: list[StoredMessage]) -> None:
            (message,) = messages
            begin_ms = clock.wall_ms()
            await asyncio.sleep(0.02)
            place = str(message.broker_name), message.queue_id, message.queue_offset
            ours.append(Work(begin_ms, clock.wall_ms(), place, False))

        async with Reader(cluster.namesrv) as reader, producer_at(cluster) as producer:
            queues = await reader.create_topic(topic, cluster.brokers, queues=2)

            async def send() -> int:
                """A message to each queue now and then, so that there is one in somebody's hands
                whenever queues change hands; how many."""
                each = 0
                while not is_over.is_set():
                    for queue in queues:
                        await producer.send(Message(topic, b"x"), queue=queue)
                    each += 1
                    await asyncio.sleep(0.05)
                return each

            with JavaProgram(
                cluster.version,
                JAVA / "Member.java",
                [group, topic, "orderly"],
                namesrv=cluster.namesrv,
                jvm_properties={  # 20 s each: until it rebalances, renews and gives back locks
                    "rocketmq.client.rebalance.waitInterval": "1000",
                    "rocketmq.client.rebalance.lockInterval": "1000",
                    "rocketmq.client.unlockDelayTimeMills": "1000",
                },
            ) as java:
                sending = asyncio.create_task(send())
                await until(lambda: len(java_works(java.output)) > 40, "Java has some")
                async with push_at(
                    *(cluster, group, witness), subscriptions={topic: "*"}, orderly=True
                ) as consumer:

                    async def is_half_ours() -> bool:
                        return len(await share(consumer, topic)) == len(queues) // 2

                    await until(is_half_ours, "Java gave away one half")
                    enough = len(ours) + 20
                    await until(lambda: len(ours) >= enough, "we have some")
                alone = len(java_works(java.output)) + 40
                await until(lambda: len(java_works(java.output)) >= alone, "Java goes on")
                is_over.set()
                each = await sending

                def all_came() -> bool:
                    places = {work.place for work in (*ours, *java_works(java.output))}
                    return len(places) == each * len(queues)

                await until(all_came, "all messages came")
                works = ours + java_works(java.output)
        for queue in queues:
            of_queue = (queue.broker_name, queue.queue_id)
            in_turn = sorted(work for work in works if work.place[:2] == of_queue)
            assert (in_turn[0].place[2], in_turn[-1].place[2]) == (0, each - 1)
            for first, then in pairwise(in_turn):
                assert first.end_ms <= then.begin_ms, (first, then)
                # Java stores how far it is before it waits for the message in its hands: that one
                # comes again (RebalancePushImpl.removeUnnecessaryMessageQueue). Ours does not.
                steps = {0, 1} if first.is_javas and not then.is_javas else {1}
                assert then.place[2] - first.place[2] in steps, (first, then)

    asyncio.run(main())


def test_offsets_of_a_group_are_the_brokers(cluster: Cluster) -> None:
    """A pull consumer goes on where a push consumer was, and a Java one where ours was."""
    require(cluster.version)

    async def main() -> None:
        group, topic = new_topic("offsets"), new_topic("offsets")
        ours = Remembers()
        async with Reader(cluster.namesrv) as reader:
            queues = await reader.create_topic(topic, cluster.brokers, queues=1)
            await send_to_all(cluster, queues, 10)
            async with push_at(cluster, group, ours, subscriptions={topic: "*"}):
                await until(lambda: len(ours.bodies) == 20, "all messages came")
            await send_to_all(cluster, queues, 5, begin=10)
            async with pull_at(cluster, group) as consumer:
                await consumer.subscribe(topic)
                found: list[StoredMessage] = []

                async def poll() -> bool:
                    found.extend(await consumer.poll(timeout=1))
                    return len(found) == 10

                await until(poll, "the rest came")
                assert {message.queue_offset for message in found} == set(range(10, 15))
            sent = await send_to_all(cluster, queues, 3, begin=15)
            args = [group, topic, "orderly"]
            with JavaProgram(
                cluster.version, JAVA / "Member.java", args, namesrv=cluster.namesrv
            ) as java:
                expected = sorted(body for bodies in sent.values() for body in bodies)
                await until(lambda: len(java_bodies(java.output)) >= 6, "Java got the rest")
                assert sorted(java_bodies(java.output)) == expected

    asyncio.run(main())
