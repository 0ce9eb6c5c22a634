"""The members of a group: who else is there, who is told, and who may consume a queue."""

import asyncio
from dataclasses import replace

from rocketpipe.broker import queue_locks
from rocketpipe.broker.queue_locks import QueueLocks
from rocketpipe.codes import RequestCode
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.connection import Connection
from rocketpipe.testing.simulated_loop import SimulatedClock, run
from rocketpipe.wire.bodies import groups as bodies
from rocketpipe.wire.bodies.groups import SubscriptionGroupConfig
from rocketpipe.wire.bodies.heartbeat import MessageModel, SubscriptionData
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.clients import (
    CheckClientConfig,
    GetConsumerListByGroup,
    LockBatchMq,
    UnlockBatchMq,
    UnregisterClient,
)
from tests.unit.broker.bench import Bench, messages, send, simulated
from tests.unit.broker.reading import ask, create_topic, join

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(3)]


class Notices:
    """What a broker tells a client by itself."""

    def __init__(self) -> None:
        self.groups: list[str] = []

    def __call__(self, connection: Connection, request: RemotingCommand) -> None:
        assert request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert request.is_oneway
        self.groups.append(request.ext_fields["consumerGroup"])


@simulated
async def test_members_of_a_group_find_each_other(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as first:
        listed = GetConsumerListByGroup(consumer_group="readers")
        answer = await ask(first, listed)
        assert (answer.code, answer.remark) == (1, "no consumer for this group, readers")
        await join(first, "orders", client_id="a")
        async with bench.client(broker.address) as second:
            await join(second, "orders", client_id="b")
            assert (await first.request(listed, timeout=3)).consumer_id_list == ("a", "b")
        await asyncio.sleep(1)
        assert (await first.request(listed, timeout=3)).consumer_id_list == ("a",)


@simulated
async def test_members_are_told_when_one_comes_goes_falls_silent_or_reads_more(
    bench: Bench,
) -> None:
    seen = Notices()
    async with (
        bench.broker(channel_expired_timeout=60.0) as broker,
        bench.client(broker.address, handler=seen) as first,
    ):

        async def told() -> int:
            await asyncio.sleep(1)
            count = len(seen.groups)
            seen.groups.clear()
            return count

        await join(first, "orders", client_id="a")
        assert await told() == 1  # the one who came is told as well
        await join(first, "orders", client_id="a")
        assert await told() == 0
        async with bench.client(broker.address) as second:
            await join(second, "orders", client_id="b")
            assert await told() == 1
            await join(second, "orders", "bills", client_id="b")
            assert await told() == 1
            unregister = UnregisterClient(client_id="b", consumer_group="readers")
            await second.request(unregister, timeout=3)
            assert await told() == 1
            await join(second, "orders", client_id="b")
            await told()
        assert await told() == 1
        async with bench.client(broker.address) as third:
            await join(third, "orders", client_id="c")
            for _ in range(8):
                await join(first, "orders", client_id="a")
                await asyncio.sleep(10)
            assert await told() == 2


@simulated
async def test_nobody_is_told_where_that_is_off_or_everybody_reads_everything(
    bench: Bench,
) -> None:
    seen = Notices()
    async with (
        bench.broker() as broker,
        bench.client(broker.address, handler=seen) as client,
    ):
        await join(client, "orders", group="loud", model=MessageModel.BROADCASTING)
        quiet = SubscriptionGroupConfig(
            group_name="quiet", notify_consumer_ids_changed_enable=False
        )
        broker.groups.put(quiet)
        await join(client, "orders", group="quiet")
        await asyncio.sleep(1)
        assert seen.groups == []
        await join(client, "orders", group="others")
        await asyncio.sleep(1)
        assert seen.groups == ["others"]
        broker.settings.change({"notifyConsumerIdsChangedEnable": "false"})
        await join(client, "orders", group="more")
        broker.settings.change({"notifyConsumerIdsChangedEnable": "true"})
        broker.notices.close()
        await join(client, "orders", group="last")
        await asyncio.sleep(1)
        assert seen.groups == ["others"]


def lock(client_id: str, *numbers: int) -> bytes:
    return bodies.LockBatchRequest(
        client_id=client_id,
        consumer_group="readers",
        mq_set=frozenset(QUEUES[number] for number in numbers),
    ).encode()


@simulated
async def test_a_queue_is_locked_by_one_client_for_a_minute(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:

        async def locked(client_id: str, *numbers: int) -> set[int]:
            answer = await client.request(LockBatchMq(), lock(client_id, *numbers), timeout=3)
            return {queue.queue_id for queue in answer.lock_ok_mq_set}

        assert await locked("a", 0, 1) == {0, 1}
        assert await locked("b", 1, 2) == {2}
        await asyncio.sleep(40)
        assert await locked("a", 1) == {1}  # renewed
        await asyncio.sleep(30)
        assert await locked("b", 0, 1) == {0}  # the other has expired
        await client.request(UnlockBatchMq(), lock("b", 1), timeout=3)
        assert await locked("b", 1) == set()  # it was not his to give
        await client.request(UnlockBatchMq(), lock("a", 1), timeout=3)
        assert await locked("b", 1) == {1}


@simulated
async def test_what_an_orderly_group_sends_again_is_a_dead_letter(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client)
        await send(client, "%RETRY%readers")
        await client.request(LockBatchMq(), lock("a", 0), timeout=3)
        await send(client, "%RETRY%readers")
        assert len(messages(broker, "%RETRY%readers")) == 1
        assert len(messages(broker, "%DLQ%readers")) == 1
        await asyncio.sleep(100)
        await send(client, "%RETRY%readers")
        assert len(messages(broker, "%DLQ%readers")) == 1


def test_there_is_an_end_to_locks_and_expired_ones_make_room() -> None:
    async def main() -> None:
        locks = QueueLocks(SimulatedClock(asyncio.get_running_loop()), locks_max=2)
        assert locks.lock("g", QUEUES, "a") == set(QUEUES[:2])
        assert locks.lock("h", QUEUES, "a") == set()
        assert locks.lock("g", QUEUES[:1], "a") == set(QUEUES[:1])
        await asyncio.sleep(queue_locks.LOCK_SECONDS + 1)
        locks.forget_expired()
        assert locks.lock("h", QUEUES, "a") == set(QUEUES[:2])
        locks.unlock("h", QUEUES, "a")
        assert not locks.is_any_locked("h")

    run(main())


@simulated
async def test_a_filter_is_checked_before_a_consumer_uses_it(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:

        async def checked(expression: str, kind: str = "SQL92") -> tuple[int, str | None]:
            subscription = SubscriptionData.of_tags("orders", "a", sub_version=1)
            subscription = replace(subscription, sub_string=expression, expression_type=kind)
            body = bodies.CheckClientConfig(
                client_id="c", group="readers", subscription_data=subscription
            )
            answer = await ask(client, CheckClientConfig(), body.encode())
            return answer.code, answer.remark

        unsupported = "The broker does not support consumer to filter message by SQL92"
        assert await checked("a || b", "TAG") == (0, None)
        assert await checked("a > 1") == await checked("a >") == (1, unsupported)
        broker.settings.change({"enablePropertyFilter": "true"})
        assert await checked("a > 1") == (0, None)
        assert await checked("a >") == (23, 'Encountered "<EOF>" at line 1, column 3.')
        assert await checked("") == (23, 'Encountered "<EOF>" at line 0, column 0.')
        assert await checked("a > #") == (
            *(23, 'Lexical error at line 1, column 5.  Encountered: "#"'),
        )
        assert (await checked("a > 1", "SQL93"))[0] == 23
        assert (await checked("a = '" + "x" * 40_000 + "'"))[0] == 23
