"""Numbers for administrators: traffic, progress of all groups, replication."""

import asyncio

import pytest

from rocketpipe.broker.replication import Throughput
from rocketpipe.errors import BrokerError
from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies.statistics import BrokerStatsData
from rocketpipe.wire.requests.admin import (
    DeleteTopicInBroker,
    GetBrokerConsumeStats,
    GetBrokerHaStatus,
    ViewBrokerStatsData,
)
from rocketpipe.wire.requests.reading import UpdateConsumerOffset
from tests.unit.broker.bench import Bench, messages, send, simulated
from tests.unit.broker.reading import create_topic, join, pull
from tests.unit.broker.test_replication import SLAVE_HOST, slave_of


@simulated
async def test_what_came_and_went_is_told_of_a_minute_an_hour_and_a_day(bench: Bench) -> None:
    async with bench.broker() as broker:

        async def told(name: str, key: str) -> BrokerStatsData:
            request = ViewBrokerStatsData(stats_name=name, stats_key=key)
            async with bench.client(broker.address) as client:  # the last may be closed by now
                return await client.request(request, timeout=3)

        async def send_and_pull(*queue_ids: int) -> None:
            """A message to each, and a pull of one from the last."""
            async with bench.client(broker.address) as client:
                for queue_id in queue_ids:
                    await send(client, queue_id=queue_id)
                await pull(client, queue_id=queue_ids[-1], max_msg_nums=1)

        async def sums(name: str, key: str) -> tuple[int, int, int]:
            data = await told(name, key)
            return data.stats_minute.sum, data.stats_hour.sum, data.stats_day.sum

        async def refused(name: str, key: str) -> bool:
            with pytest.raises(BrokerError, match=f"The stats <{name}> <{key}> not exist"):
                await told(name, key)
            return True

        assert await refused("TOPIC_PUT_NUMS", "orders")
        assert await refused("GROUP_GET_NUMS", "orders@readers")
        assert await refused("TOPIC_PUT_LATENCY", "orders")
        await send_and_pull(0, 1, 1)
        assert await sums("TOPIC_PUT_NUMS", "orders") == (3, 3, 3)
        assert await sums("GROUP_GET_NUMS", "orders@readers") == (1, 1, 1)
        assert await refused("GROUP_GET_NUMS", "orders@others")
        assert (await told("TOPIC_PUT_NUMS", "orders")).stats_minute.tps == 3 / 60
        await asyncio.sleep(30 * 60)
        await send_and_pull(0)
        assert await sums("TOPIC_PUT_NUMS", "orders") == (1, 4, 4)
        assert await sums("GROUP_GET_NUMS", "orders@readers") == (1, 2, 2)
        await asyncio.sleep(45 * 60)
        assert await sums("TOPIC_PUT_NUMS", "orders") == (0, 1, 4)
        assert await sums("GROUP_GET_NUMS", "orders@readers") == (0, 1, 2)


@simulated
async def test_the_progress_of_all_groups_is_told_at_once(bench: Bench) -> None:
    async with bench.broker() as broker, bench.client(broker.address) as client:
        await create_topic(client, "orders", write_queue_nums=2)
        await create_topic(client, "steps", order=True, write_queue_nums=1)
        for _ in range(5):
            await send(client)
        for group, topic, offset in (("a", "orders", 3), ("a", "steps", 0), ("b", "orders", 5)):
            await join(client, topic, group=group, client_id=f"{group}-{topic}")
            await pull(client, consumer_group=group, topic=topic)
            request = UpdateConsumerOffset(
                consumer_group=group, topic=topic, queue_id=0, commit_offset=offset
            )
            await client.request(request, timeout=3)
        answer = await client.request(GetBrokerConsumeStats(is_order=False), timeout=3)
        assert answer.broker_addr == str(broker.address)
        told = {name: stats for each in answer.consume_stats_list for name, stats in each.items()}
        assert told.keys() >= {"a", "b"}
        # Group a said last that it reads `steps` alone.
        assert [list(stats.offset_table) for stats in told["a"]] == [
            [MessageQueue("steps", "broker-a", 0)]
        ]
        (of_b,) = told["b"]
        first, second = of_b.offset_table.values()
        assert (first.broker_offset, first.consumer_offset, first.pull_offset) == (5, 5, 5)
        assert (second.broker_offset, second.consumer_offset) == (0, 0)
        assert first.last_timestamp > 0
        assert of_b.consume_tps > 0
        assert (answer.total_diff, answer.total_inflight_diff) == (0, 0)

        await join(client, "orders", "steps", group="a", client_id="a-steps", version=2)
        answer = await client.request(GetBrokerConsumeStats(is_order=False), timeout=3)
        assert (answer.total_diff, answer.total_inflight_diff) == (2, 2)
        ordered = await client.request(GetBrokerConsumeStats(is_order=True), timeout=3)
        topics = {
            queue.topic
            for each in ordered.consume_stats_list
            for all_stats in each.values()
            for stats in all_stats
            for queue in stats.offset_table
        }
        assert topics == {"steps"}


@simulated
async def test_a_master_tells_of_its_slaves_and_a_slave_of_its_master(bench: Bench) -> None:
    async with bench.broker() as master, bench.client(master.address) as client:
        alone = await client.request(GetBrokerHaStatus(), timeout=3)
        assert (alone.master, alone.ha_connection_info) == (True, ())
        async with slave_of(bench) as slave, bench.client(slave.address) as other:
            for _ in range(4):
                await send(client, body=bytes(10_000))
            await asyncio.sleep(0.5)
            end = master.store.max_physical_offset
            told = await client.request(GetBrokerHaStatus(), timeout=3)
            assert (told.master_commit_log_max_offset, told.in_sync_slave_nums) == (end, 1)
            (seen,) = told.ha_connection_info
            assert seen.addr.startswith(f"{SLAVE_HOST}:")
            assert (seen.slave_ack_offset, seen.diff, seen.in_sync) == (end, 0, True)
            assert seen.transfer_from_where == end
            now_ms = bench.clock.wall_ms()
            itself = await other.request(GetBrokerHaStatus(), timeout=3)
            assert (itself.master, itself.ha_connection_info) == (False, ())
            copying = itself.ha_client_runtime_info
            assert copying.master_addr == str(master.ha_address)
            assert (copying.max_offset, copying.activated) == (end, True)
            assert now_ms - 2000 < copying.last_read_timestamp <= now_ms
            assert now_ms - 2000 < copying.last_write_timestamp <= now_ms
            master.slaves.detach()
            await asyncio.sleep(0.5)
            lost = (await other.request(GetBrokerHaStatus(), timeout=3)).ha_client_runtime_info
            assert (lost.activated, lost.last_read_timestamp) == (False, 0)


def test_throughput_is_of_the_last_second_that_is_over() -> None:
    throughput = Throughput(100.0)
    throughput.add(500, 100.2)
    assert throughput.per_second(100.5) == 0
    assert throughput.per_second(101.0) == 500
    throughput.add(300, 101.5)
    assert throughput.per_second(101.9) == 500
    assert throughput.per_second(103.0) == 150
    assert throughput.per_second(105.0) == 0


@simulated
async def test_a_topic_that_was_deleted_on_both_can_be_made_anew(bench: Bench) -> None:
    async with (
        bench.broker() as master,
        slave_of(bench) as slave,
        bench.client(master.address) as client,
        bench.client(slave.address) as other,
    ):
        for _ in range(3):
            await send(client)
        await asyncio.sleep(1)
        assert len(messages(slave)) == 3
        for asked in (other, client):  # in any order
            await asked.request(DeleteTopicInBroker(topic="orders"), timeout=3)
        assert "orders" not in master.topics.table
        assert not messages(slave)
        await send(client, body=b"new")
        await asyncio.sleep(30)
        assert [message.body for message in messages(slave)] == [b"new"]
        assert "orders" in slave.topics.table
