"""Numbers, for administrators: what came and went, how far all groups are, how slaves keep up."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpipe.broker.processors.groups import progress_of, still_read
from rocketpipe.broker.rates import SPANS
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.bodies.offsets import ConsumeStats
from rocketpipe.wire.bodies.statistics import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeStatsList,
    HaClient,
    HaConnection,
    HaRuntimeInfo,
)
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.requests.admin import GetBrokerConsumeStats, ViewBrokerStatsData

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

# Of all that Apache counts, what mqadmin asks for.
TOPIC_PUT_NUMS, GROUP_GET_NUMS = "TOPIC_PUT_NUMS", "GROUP_GET_NUMS"


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    processor = _StatisticsProcessor(broker)
    return {
        RequestCode.VIEW_BROKER_STATS_DATA: processor.traffic,
        RequestCode.GET_BROKER_CONSUME_STATS: processor.progress_of_all,
        RequestCode.GET_BROKER_HA_STATUS: processor.replication,
    }


class _StatisticsProcessor:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._settings = broker.settings
        self._topics = broker.topics
        self._store = broker.store
        self._rates = broker.rates
        self._clock = broker.clock

    # What came and went.

    def traffic(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = ViewBrokerStatsData.from_ext_fields(request.ext_fields)
        name, key = header.stats_name, header.stats_key
        items: list[BrokerStatsItem] = []
        if name == TOPIC_PUT_NUMS:
            items = self._puts(key)
        elif name == GROUP_GET_NUMS:
            topic, _, group = key.rpartition("@")
            items = [
                BrokerStatsItem(sum=count, tps=count / seconds)
                for count, seconds in self._rates.group_gets(group, topic)
            ]
        if not any(item.sum for item in items):
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        minute, hour, day = items
        body = BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day).encode()
        return request.answer(ResponseCode.SUCCESS, body=body)

    def _puts(self, topic: str) -> list[BrokerStatsItem]:
        """Counted by the store, which knows when each message came: so a restart forgets none."""
        store, now_ms = self._store, self._clock.wall_ms()
        items = []
        for seconds in SPANS:
            since_ms = now_ms - round(seconds * 1000)
            count = sum(
                store.max_offset(topic, queue_id) - store.offset_by_time(topic, queue_id, since_ms)
                for queue_id in store.queue_ids(topic)
            )
            items.append(BrokerStatsItem(sum=count, tps=count / seconds))
        return items

    # How far groups are.

    def progress_of_all(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        is_order = GetBrokerConsumeStats.from_ext_fields(request.ext_fields).is_order
        told = []
        behind = in_flight = 0
        for group in self._broker.groups.table:
            read = still_read(self._broker, group, self._broker.offsets.topics_of(group))
            topics = [self._topics.table[topic] for topic in read if topic in self._topics.table]
            progress = tuple(
                ConsumeStats(
                    offset_table=progress_of(
                        self._broker, group, topic.topic_name, topic.write_queue_nums
                    ),
                    consume_tps=self._rates.group_get_tps(group, topic.topic_name),
                )
                for topic in topics
                if topic.order or not is_order
            )
            told.append({group: progress})
            for offsets in [each for stats in progress for each in stats.offset_table.values()]:
                behind += offsets.broker_offset - offsets.consumer_offset
                in_flight += offsets.pull_offset - offsets.consumer_offset
        answer = ConsumeStatsList(
            broker_addr=str(self._broker.address),
            consume_stats_list=tuple(told),
            total_diff=behind,
            total_inflight_diff=in_flight,
        )
        return request.answer(ResponseCode.SUCCESS, body=answer.encode())

    # How slaves keep up.

    def replication(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        info = self._slave_info() if self._settings.is_slave else self._master_info()
        return request.answer(ResponseCode.SUCCESS, body=info.encode())

    def _master_info(self) -> HaRuntimeInfo:
        end = self._store.max_physical_offset
        slaves = tuple(
            HaConnection(
                addr=link.address,
                slave_ack_offset=link.acked,
                diff=end - link.acked,
                in_sync=end - link.acked < self._settings.ha_max_gap_not_in_sync,
                transferred_byte_in_second=link.bytes_per_second(),
                transfer_from_where=link.next_offset,
            )
            for link in self._broker.slaves.links
        )
        return HaRuntimeInfo(
            master=True,
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(slave.in_sync for slave in slaves),
            ha_connection_info=slaves,
        )

    def _slave_info(self) -> HaRuntimeInfo:
        sync = self._broker.slave_sync
        link = sync.link
        told = HaClient(
            master_addr=str(sync.master_ha) if sync.master_ha is not None else None,
            max_offset=self._store.max_physical_offset,
            last_read_timestamp=self._wall_ms(link.heard_at) if link is not None else 0,
            last_write_timestamp=self._wall_ms(link.reported_at) if link is not None else 0,
            transferred_byte_in_second=link.bytes_per_second() if link is not None else 0,
            activated=link is not None,
        )
        return HaRuntimeInfo(master=False, ha_client_runtime_info=told)

    def _wall_ms(self, loop_time: float) -> int:
        elapsed = asyncio.get_running_loop().time() - loop_time
        return self._clock.wall_ms() - round(elapsed * 1000)
