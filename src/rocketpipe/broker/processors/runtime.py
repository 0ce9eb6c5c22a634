"""The broker itself, for administrators: how it is doing, its settings, and tidying up."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from rocketpipe.broker.names import SCHEDULE_TOPIC
from rocketpipe.codes import PROTOCOL_VERSION, RequestCode, ResponseCode
from rocketpipe.errors import InvalidSetting, MalformedRecord
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.bodies.route import KVTable
from rocketpipe.wire.bodies.topics import DataVersion
from rocketpipe.wire.config_text import format_config, parse_config
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.java_text import write_bool
from rocketpipe.wire.record import decode_record

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

log = logging.getLogger(__name__)

VERSION_NAME = "V5_5_0"  # of PROTOCOL_VERSION
BLACK_LIST = {"brokerConfigPath", "rocketmqHome", "configBlackList"}


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    processor = _RuntimeProcessor(broker)
    return {
        RequestCode.GET_BROKER_RUNTIME_INFO: processor.info,
        RequestCode.GET_BROKER_CONFIG: processor.settings,
        RequestCode.UPDATE_BROKER_CONFIG: processor.change_settings,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: processor.clean_queues,
        RequestCode.CLEAN_UNUSED_TOPIC: processor.clean_unused_topics,
    }


class _RuntimeProcessor:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._settings = broker.settings
        self._store = broker.store
        self._clock = broker.clock
        self._version = DataVersion(timestamp=broker.started_ms)

    def info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        body = KVTable(table=self._info()).encode()
        return request.answer(ResponseCode.SUCCESS, body=body)

    def _info(self) -> dict[str, str]:
        """What RocketMQ tells of itself, by its names, as far as it means something here."""
        broker, store, settings = self._broker, self._store, self._settings
        stats, rates = store.stats, broker.rates
        used = str(store.disk_used_ratio())
        return {
            "brokerVersionDesc": VERSION_NAME,
            "brokerVersion": str(PROTOCOL_VERSION),
            "brokerActive": write_bool(not settings.is_slave),
            "bootTimestamp": str(self._broker.started_ms),
            "runtime": describe_duration((self._clock.wall_ms() - self._broker.started_ms) // 1000),
            "startAcceptSendRequestTimeStamp": str(settings.start_accept_send_request_timestamp_ms),
            # In and out.
            "putTps": rates.describe("put"),
            "getFoundTps": rates.describe("found"),
            "getMissTps": rates.describe("missed"),
            "getTotalTps": rates.describe("found", "missed"),
            "getTransferredTps": rates.describe("transferred"),
            "putMessageTimesTotal": str(stats.messages_put),
            "putMessageFailedTimes": str(stats.puts_refused),
            "putMessageSizeTotal": str(stats.bytes_put),
            "putMessageAverageSize": str(stats.bytes_put / max(1, stats.messages_put)),
            "msgPutTotalYesterdayMorning": str(rates.put_yesterday_morning),
            "msgPutTotalTodayMorning": str(rates.put_this_morning),
            "msgPutTotalTodayNow": str(stats.messages_put),
            "msgGetTotalYesterdayMorning": str(rates.got_yesterday_morning),
            "msgGetTotalTodayMorning": str(rates.got_this_morning),
            "msgGetTotalTodayNow": str(stats.messages_read),
            # The store.
            "earliestMessageTimeStamp": str(self._earliest_ms()),
            "commitLogMinOffset": str(store.min_physical_offset),
            "commitLogMaxOffset": str(store.max_physical_offset),
            "commitLogDiskRatio": used,
            "consumeQueueDiskRatio": used,
            "remainHowManyDataToFlush": describe_bytes(
                store.max_physical_offset - store.flushed_offset
            ),
            "dispatchBehindBytes": "0",  # queues and index are never behind the log here
            "pageCacheLockTimeMills": str(round(store.busy_seconds() * 1000)),
            # Who waits. There are no thread pools, but sends wait for the disk, and pulls in line.
            "sendThreadPoolQueueSize": str(broker.flow_control.queue_size),
            "sendThreadPoolQueueCapacity": str(settings.send_thread_pool_queue_capacity),
            "sendThreadPoolQueueHeadWaitTimeMills": str(
                round(broker.flow_control.head_wait_seconds * 1000)
            ),
            "pullThreadPoolQueueSize": str(broker.held_pulls.woken),
            "pullThreadPoolQueueCapacity": str(settings.pull_thread_pool_queue_capacity),
            "pullThreadPoolQueueHeadWaitTimeMills": "0",
            "ackThreadPoolQueueSize": "0",
            "ackThreadPoolQueueHeadWaitTimeMills": "0",
            "queryThreadPoolQueueSize": "0",
            "queryThreadPoolQueueHeadWaitTimeMills": "0",
            # Timers.
            "timerReadBehind": str(broker.timers.seconds_behind),
            "timerOffsetBehind": str(0 if settings.is_slave else broker.timers.messages_behind),
            "timerCongestNum": str(broker.timers.waiting),
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
            **{
                f"scheduleMessageOffset_{level}": (
                    f"{offset},{store.max_offset(SCHEDULE_TOPIC, level - 1)}"
                )
                for level, offset in broker.delays.wrapper().offset_table.items()
            },
        }

    def _earliest_ms(self) -> int:
        first = self._store.record_at(self._store.min_physical_offset)
        try:
            return decode_record(first, decompressing=False).store_timestamp_ms if first else -1
        except MalformedRecord:
            return -1  # a log may begin with a damaged record, and its slaves ask for the rest

    def settings(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        fields = {"version": self._version.encode().decode()}
        port = str(self._broker.address.port)  # the real one, when any was asked for
        text = format_config({**self._settings.to_properties(), "listenPort": port})
        return request.answer(ResponseCode.SUCCESS, None, fields, text)

    def change_settings(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Change what can change while we run, all of it or nothing; it lasts until we stop."""
        wanted = parse_config(request.body)
        if not BLACK_LIST.isdisjoint(wanted):
            raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            changed = self._settings.change(wanted)
        except InvalidSetting as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from error
        log.info("settings changed by %s: %s", connection.address, ", ".join(changed) or "none")
        if changed:
            self._version = replace(
                self._version,
                timestamp=self._clock.wall_ms(),
                counter=self._version.counter + 1,
            )
        if "brokerPermission" in changed:
            self._broker.topics.touch()
            self._broker.registration.register_soon()
        return request.answer(ResponseCode.SUCCESS)

    def clean_queues(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        # A queue forgets what the log deletes at once: there is never anything left to clean.
        return request.answer(ResponseCode.SUCCESS)

    async def clean_unused_topics(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        """Drop the queues of topics that there are no more."""
        topics = self._broker.topics
        for topic in self._store.topics():
            if topic not in topics.table and not topics.is_system(topic):
                await self._store.delete_topic(topic)
        return request.answer(ResponseCode.SUCCESS)


def describe_duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def describe_bytes(count: int) -> str:
    """As RocketMQ writes a size (MixAll.humanReadableByteCount)."""
    if count < 1024:
        return f"{count} B"
    size, units = count / 1024, iter("KMGTPE")
    unit = next(units)
    while size >= 1024:
        size, unit = size / 1024, next(units)
    return f"{size:.1f} {unit}iB"
