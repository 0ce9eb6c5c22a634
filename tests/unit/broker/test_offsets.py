"""How far groups and queues are: asked, committed, kept, searched by time and reset."""

import asyncio
from typing import Any

from rocketpipe.broker.settings import BrokerRole
from rocketpipe.codes import ResponseCode
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.connection import Connection
from rocketpipe.wire.bodies.groups import SubscriptionGroupConfig
from rocketpipe.wire.bodies.offsets import ResetOffsetBody
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.admin import CloneGroupOffset, InvokeBrokerToResetOffset
from rocketpipe.wire.requests.reading import (
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    GetEarliestMsgStoretime,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)
from tests.unit.broker.bench import Bench, send, simulated
from tests.unit.broker.reading import ask, create_topic, join, pull


async def query(client: Connection, **changes: Any) -> RemotingCommand:
    fields: dict[str, Any] = {"consumer_group": "readers", "topic": "orders", "queue_id": 0}
    return await ask(client, QueryConsumerOffset(**(fields | changes)))


async def commit(client: Connection, offset: int, **changes: Any) -> RemotingCommand:
    fields: dict[str, Any] = {"consumer_group": "readers", "topic": "orders", "queue_id": 0}
    return await ask(client, UpdateConsumerOffset(commit_offset=offset, **(fields | changes)))


async def reset(client: Connection, **changes: Any) -> RemotingCommand:
    fields: dict[str, Any] = {
        "topic": "orders",
        "group": "readers",
        "timestamp": 0,
        "is_force": True,
    }
    return await ask(client, InvokeBrokerToResetOffset(**(fields | changes)))


@simulated
async def test_an_offset_that_was_never_committed_is_not_found_or_0(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        answer = await query(client)
        assert answer.code == 22
        assert answer.remark == "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        await send(client)
        assert (await query(client)).ext_fields == {"offset": "0"}
        answer = await query(client, set_zero_if_not_found=False)
        assert answer.code == 22
        assert answer.remark == "Not found, do not set to zero, maybe this group boot first"
        # In an old log the first message is far away: a new group need not read all of it.
        broker.settings.change({"accessMessageInMemoryMaxRatio": "0"})
        assert (await query(client)).code == 22


@simulated
async def test_offsets_are_committed_kept_and_asked_for(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        answer = await commit(client, 1)
        assert (answer.code, answer.remark) == (26, "Group readers not exist!")
        broker.groups.find("readers")
        answer = await commit(client, 1)
        assert (answer.code, answer.remark) == (17, "Topic orders not exist!")
        await create_topic(client, read_queue_nums=2, write_queue_nums=3)
        for queue_id in (-1, 3):
            assert (await commit(client, 1, queue_id=queue_id)).code == 29
        assert (await commit(client, 7, queue_id=2)).code == 0
        await commit(client, 5)
        await commit(client, 4)  # back is a way to go, too
        assert (await query(client)).ext_fields == {"offset": "4"}
    async with bench.broker() as broker, bench.client(broker.address) as client:
        assert broker.offsets.table == {"orders@readers": {2: 7, 0: 4}}
        assert (await query(client, queue_id=2)).ext_fields == {"offset": "7"}


@simulated
async def test_a_crash_costs_no_more_progress_than_the_settings_say(bench: Bench) -> None:
    broker = bench.make_broker(flush_consumer_offset_interval=2.0)
    await broker.start()
    async with bench.client(broker.address) as client:
        await create_topic(client)
        broker.groups.find("readers")
        await commit(client, 5)
        await asyncio.sleep(4)
        await commit(client, 9)
        await broker.kill()
    async with bench.broker() as broker:
        assert broker.offsets.query("readers", "orders", 0) == 5


@simulated
async def test_queues_tell_how_far_they_reach_and_by_time(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        times: list[int] = []
        for _ in range(3):
            await send(client)
            times.append(broker.store.store_time_at("orders", 0, len(times)))
            await asyncio.sleep(10)

        async def search(time_ms: int, boundary: str | None = None) -> str:
            header = SearchOffsetByTimestamp(
                topic="orders", queue_id=0, timestamp=time_ms, boundary_type=boundary
            )
            return (await ask(client, header)).ext_fields["offset"]

        assert [await search(time_ms) for time_ms in times] == ["0", "1", "2"]
        assert await search(times[1] + 1) == await search(times[1] + 1, "LOWER") == "2"
        assert await search(times[1] + 1, "Upper") == "1"
        assert await search(times[2] + 1) == "3"
        for topic, found in (("orders", ("3", "0", str(times[0]))), ("no", ("0", "0", "-1"))):
            end = await ask(client, GetMaxOffset(topic=topic, queue_id=0))
            start = await ask(client, GetMinOffset(topic=topic, queue_id=0))
            earliest = await ask(client, GetEarliestMsgStoretime(topic=topic, queue_id=0))
            fields = (end.ext_fields, start.ext_fields, earliest.ext_fields)
            assert tuple(value for each in fields for value in each.values()) == found


@simulated
async def test_a_reset_is_told_with_the_next_pull_and_until_then_stands(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for _ in range(5):
            await send(client)
        broker.groups.find("readers")
        await commit(client, 5)
        answer = await reset(client, queue_id=0, offset=2)
        queue = MessageQueue("orders", "broker-a", 0)
        assert ResetOffsetBody.decode(answer.body).offset_table == {queue: 2}
        assert (await query(client)).ext_fields == {"offset": "2"}
        answer = await commit(client, 5)  # by one who does not know yet
        assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
        flags = PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET
        answer = await pull(client, queue_offset=5, sys_flag=flags, commit_offset=5)
        assert (answer.code, answer.remark) == (21, "OFFSET_RESET")
        assert answer.ext_fields == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": "2",
            "minOffset": "0",
            "maxOffset": "5",
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }
        assert (await query(client)).ext_fields == {"offset": "2"}
        assert (await pull(client, queue_offset=2)).code == 0
        assert (await commit(client, 3)).remark is None
        assert (await query(client)).ext_fields == {"offset": "3"}


@simulated
async def test_a_reset_takes_all_queues_or_one_by_time_or_offset(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        answer = await reset(client)
        assert (answer.code, answer.remark) == (17, "Topic orders does not exist")
        await create_topic(client, read_queue_nums=2, write_queue_nums=2)
        answer = await reset(client)
        assert (answer.code, answer.remark) == (26, "Group readers does not exist")
        broker.groups.find("readers")
        for _ in range(3):
            await send(client)
            await asyncio.sleep(1)
        second_ms = broker.store.store_time_at("orders", 0, 1)

        async def offsets(**changes: Any) -> dict[int, int]:
            table = ResetOffsetBody.decode((await reset(client, **changes)).body).offset_table
            return {queue.queue_id: offset for queue, offset in table.items()}

        assert await offsets() == {0: 0, 1: 0}
        assert await offsets(timestamp=-1) == {0: 3, 1: 0}
        assert await offsets(timestamp=second_ms) == {0: 1, 1: 0}
        assert await offsets(timestamp=second_ms, queue_id=0) == {0: 1}
        assert await offsets(timestamp=second_ms, queue_id=0, offset=-1) == {0: 1}
        assert await offsets(queue_id=0, offset=4) == {0: 4}
        answer = await reset(client, queue_id=0, offset=5)
        assert answer.code == 1
        assert answer.remark == "Target offset 5 not in consume queue range [0-3]"
        assert (await reset(client, queue_id=2)).code == 29
        await create_topic(client, read_queue_nums=2, write_queue_nums=3)
        assert await offsets(queue_id=2) == {2: 0}


@simulated
async def test_a_slave_resets_nothing(bench: Bench) -> None:
    async with (
        bench.broker(broker_role=BrokerRole.SLAVE, broker_id=1) as broker,
        bench.client(broker.address) as client,
    ):
        answer = await reset(client)
        assert (answer.code, answer.remark) == (1, "Can not reset offset in slave broker")


@simulated
async def test_a_group_can_go_on_where_another_is(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        for topic in ("orders", "bills", "old"):
            await create_topic(client, topic)
        broker.groups.put(SubscriptionGroupConfig(group_name="readers"))
        for topic in ("orders", "bills", "old"):
            await commit(client, 3, topic=topic)
        broker.topics.delete("old")
        clone = CloneGroupOffset(src_group="readers", dest_group="copies")
        await client.request(clone, timeout=3)
        assert broker.offsets.topics_of("copies") == ["bills", "orders"]
        await commit(client, 9)
        assert broker.offsets.query("copies", "orders", 0) == 3
        # Only what its consumers still read, if there are any.
        await join(client, "orders")
        for offline, expected in ((False, ["orders"]), (True, ["bills", "orders"])):
            to = f"copies-{offline}"
            clone = CloneGroupOffset(src_group="readers", dest_group=to, offline=offline)
            await client.request(clone, timeout=3)
            assert broker.offsets.topics_of(to) == expected
        assert broker.offsets.groups_of("bills") == ["copies", "copies-True", "readers"]
        clone = CloneGroupOffset(src_group="readers", dest_group="x" * 1000)
        assert (await ask(client, clone)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    async with bench.broker() as broker, bench.client(broker.address) as client:
        assert broker.offsets.groups_of("bills") == ["copies", "copies-True", "readers"]
        broker.offsets.forget_group("copies")
        broker.offsets.note_pulled("new", "orders", 0, 7)
        broker.offsets.forget_topic("orders")
        assert broker.offsets.query_pulled("new", "orders", 0) == -1
    async with bench.broker() as broker:
        assert broker.offsets.groups_of("bills") == ["copies-True", "readers"]
        assert broker.offsets.groups_of("orders") == []
