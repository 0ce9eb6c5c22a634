"""Orderly consumption: per queue one after another, whoever comes, goes, fails or takes long."""

import asyncio
from collections import defaultdict

from rocketpipe.client.consumer.listeners import Retry
from rocketpipe.message import MessageQueue, StoredMessage
from tests.consumer_bench import ConsumerBench, simulated


class Witness:
    """A listener of one or more consumers that sees whether any queue's order is broken."""

    def __init__(self, takes: float = 0.0) -> None:
        self.takes = takes
        self.seen: dict[MessageQueue, list[int]] = defaultdict(list)
        self.at_work: set[MessageQueue] = set()

    async def __call__(self, messages: list[StoredMessage]) -> Retry | None:
        queue = messages[0].queue
        assert queue not in self.at_work, "two batches of one queue at a time"
        self.at_work.add(queue)
        try:
            await asyncio.sleep(self.takes)
        finally:
            self.at_work.discard(queue)
        self.seen[queue] += [message.queue_offset for message in messages]
        return None

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))


@simulated()
async def test_each_queue_is_consumed_in_order(bench: ConsumerBench) -> None:
    queues = await bench.create_topic("orders")
    for queue in queues:
        await bench.send("orders", 70, queue=queue)
    witness = Witness(takes=0.1)
    async with bench.push_consumer(witness, orderly=True, consume_batch_size=3):
        await asyncio.sleep(30)
    assert [witness.seen[queue] for queue in queues] == [list(range(70))] * len(queues)
    assert [await bench.committed(queue) for queue in queues] == [70] * 4


@simulated(brokers=2)
async def test_order_is_kept_while_members_come_and_go(bench: ConsumerBench) -> None:
    queues = await bench.create_topic("orders")
    for queue in queues:
        await bench.send("orders", 100, queue=queue)
    witness = Witness(takes=0.5)  # the same for both, so it sees them at work at once
    async with bench.push_consumer(witness, orderly=True):
        await asyncio.sleep(10)
        async with bench.push_consumer(witness, orderly=True, pid=3) as other:
            await asyncio.sleep(10)
            ours = {queue for queue in await other.assigned() if queue.topic == "orders"}
            assert len(ours) == 4
        await asyncio.sleep(120)
    # In order, and as nobody was killed, each of them once.
    assert [witness.seen[queue] for queue in queues] == [list(range(100))] * len(queues)


@simulated()
async def test_who_closes_with_messages_waiting_leaves_no_locks_behind(
    bench: ConsumerBench,
) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 50, queue=queue)
    witness = Witness(takes=0.5)
    async with bench.push_consumer(witness, orderly=True):
        await asyncio.sleep(5)
    count = witness.count
    async with bench.push_consumer(witness, orderly=True, pid=3):
        await asyncio.sleep(5)  # and not once the locks have run out, after a minute
    assert 0 < count < 12
    assert witness.count > count
    assert witness.seen[queue] == list(range(witness.count))


@simulated()
async def test_a_queue_whose_message_fails_rests_and_others_do_not(bench: ConsumerBench) -> None:
    first, second = await bench.create_topic("orders", queues=2)
    for queue in (first, second):
        await bench.send("orders", 5, queue=queue)
    given: list[tuple[int, int, int]] = []

    async def listen(messages: list[StoredMessage]) -> Retry | None:
        (message,) = messages
        given.append((message.queue_id, message.queue_offset, message.reconsume_times))
        fails = message.queue_id == 0 and message.queue_offset == 2 and message.reconsume_times < 3
        return Retry() if fails else None

    async with bench.push_consumer(listen, orderly=True):
        await asyncio.sleep(1.5)
        assert (1, 4, 0) in given
        await asyncio.sleep(10)
    ours = [(offset, times) for queue_id, offset, times in given if queue_id == 0]
    assert ours == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (2, 3), (3, 0), (4, 0)]
    assert await bench.committed(first) == 5


@simulated()
async def test_one_that_fails_too_often_is_a_dead_letter_and_the_rest_goes_on(
    bench: ConsumerBench,
) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    sent = await bench.send("orders", 4, queue=queue)
    given: list[tuple[int, int]] = []

    async def listen(messages: list[StoredMessage]) -> None:
        (message,) = messages
        given.append((message.queue_offset, message.reconsume_times))
        if message.body == sent[1]:
            raise ZeroDivisionError

    async with bench.push_consumer(listen, orderly=True, max_reconsume_times=2):
        await asyncio.sleep(30)
        assert given == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (3, 0)]
        assert await bench.committed(queue) == 4
        async with bench.pull_consumer("undertaker", pid=3) as dead:
            await dead.subscribe("%DLQ%group")
            (letter,) = await dead.poll(timeout=60)
            assert letter.body == sent[1]


@simulated()
async def test_without_its_lock_a_queue_is_not_consumed(bench: ConsumerBench) -> None:
    """A broker that can't be reached may have given the lock to another meanwhile."""
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 200, queue=queue)
    witness = Witness(takes=1.0)
    async with bench.push_consumer(witness, orderly=True):
        await asyncio.sleep(25)  # locked at the start, renewed after 20 s
        bench.network.cut("10.0.2.2", "10.0.1.1")
        await asyncio.sleep(60)
        seen = witness.count
        assert 40 < seen < 55  # 30 s after the last renewal
        await asyncio.sleep(30)
        assert witness.count == seen
        bench.network.heal_all()
        await asyncio.sleep(250)
    assert sorted(set(witness.seen[queue])) == list(range(200))
    assert witness.seen[queue][:seen] == list(range(seen))


@simulated()
async def test_a_killed_members_queues_go_to_another_once_its_locks_run_out(
    bench: ConsumerBench,
) -> None:
    (queue,) = await bench.create_topic("orders", queues=1)
    await bench.send("orders", 20, queue=queue)
    killed, witness = Witness(takes=2.0), Witness()
    consumer = bench.push_consumer(killed, orderly=True)
    await consumer.start()
    await asyncio.sleep(9)
    bench.network.crash("10.0.2.2")
    async with bench.push_consumer(witness, orderly=True, pid=3):
        await asyncio.sleep(40)
        assert witness.count == 0  # the lock of the dead is still there
        await asyncio.sleep(120)
    # What it had stored is not repeated, what came after is, and in order.
    first = witness.seen[queue][0]
    assert witness.seen[queue] == list(range(first, 20))
    assert 0 < first <= killed.count
    bench.network.restart("10.0.2.2")
    await consumer.close()
