"""Consumer groups: made, deleted, who is in them, how far they are, and sent elsewhere."""

from collections.abc import Iterable

from rocketpipe.client.admin.asking import V5_1, describe
from rocketpipe.client.admin.offsets import OffsetAdmin
from rocketpipe.client.admin.topics import TopicAdmin
from rocketpipe.client.admin.values import (
    ConnectedClient,
    GroupConnections,
    GroupProgress,
    QueueProgress,
)
from rocketpipe.client.settings import check_group
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError, ClientError, NotFound
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.address import Address
from rocketpipe.wire.bodies.groups import Connection, ConsumerConnection, SubscriptionGroupConfig
from rocketpipe.wire.requests.admin import (
    DeleteSubscriptiongroup,
    GetAllSubscriptiongroupConfig,
    GetConsumerConnectionList,
    GetConsumeStats,
    GetProducerConnectionList,
    InvokeBrokerToResetOffset,
    UpdateAndCreateSubscriptiongroup,
)
from rocketpipe.wire.requests.reading import UpdateConsumerOffset

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LATEST_MS = -1  # as a time to reset to: the end of each queue


class GroupAdmin(TopicAdmin, OffsetAdmin):
    async def create_group(
        self,
        group: str,
        *,
        retry_max_times: int = 16,
        retry_queues: int = 1,
        consume_enable: bool = True,
        broadcast_enable: bool = True,
        orderly: bool = False,
        consume_timeout_minutes: int = 15,
        cluster: str | None = None,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Make a group, or change it to this, on some brokers, on those of a cluster, or on all."""
        check_group("group", group)
        config = SubscriptionGroupConfig(
            group_name=group,
            retry_max_times=retry_max_times,
            retry_queue_nums=retry_queues,
            consume_enable=consume_enable,
            consume_broadcast_enable=broadcast_enable,
            consume_message_orderly=orderly,
            consume_timeout_minute=consume_timeout_minutes,
        )
        masters = await self._masters(cluster=cluster, brokers=brokers)
        request = UpdateAndCreateSubscriptiongroup()
        doing = f"create group {group!r}"
        await self._ask_each(masters, request, config.encode(), doing=doing)

    async def delete_group(self, group: str, *, keep_offsets: bool = False) -> None:
        """Delete a group, its retry and dead letter topics, and how far it was.

        With `keep_offsets`, a 5.5 broker of Apache's that makes groups by itself makes this one
        anew at once, with the settings it has for new ones.
        """
        await self._require_group(group)
        masters = await self._masters()
        request = DeleteSubscriptiongroup(
            group_name=group, clean_offset=not keep_offsets, remove_offset=not keep_offsets
        )
        await self._ask_each(masters, request, doing=f"delete group {group!r}")
        for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
            await self.delete_topic(topic, missing_ok=True)

    async def groups(self) -> tuple[str, ...]:
        """The names of all consumer groups, those of the system included."""
        replies = await self._ask_each(
            await self._readers(), GetAllSubscriptiongroupConfig(), doing="list the groups"
        )
        names = (each.subscription_group_table for each in replies.values())
        return tuple(sorted(set().union(*names)))

    async def group_config(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """A group's settings on each of its brokers, by broker name; NotFound without any."""
        # There is a request for a single group, but it makes the group on brokers that may.
        replies = await self._ask_each(
            await self._readers(),
            GetAllSubscriptiongroupConfig(),
            doing=f"look for group {group!r}",
        )
        tables = {name: reply.subscription_group_table for name, reply in replies.items()}
        if not any(group in table for table in tables.values()):
            raise NotFound(f"group {group!r}", f"it is not on {', '.join(tables)}")
        return {name: table[group] for name, table in tables.items() if group in table}

    async def connections(self, group: str) -> GroupConnections:
        """Which consumers of a group are connected, and what they read."""
        doing = f"ask who is in group {group!r}"
        told = await self._on_each(
            await self._readers(),
            lambda _, address: self._online(address, group, doing=doing),
            doing=doing,
        )
        online = [each for each in told.values() if each is not None]
        if not online:
            return GroupConnections(group)
        subscriptions = online[0].subscription_table.items()
        return GroupConnections(
            group,
            _members(client for each in online for client in each.connection_set),
            online[0].consume_type,
            online[0].message_model,
            online[0].consume_from_where,
            {topic: each.sub_string for topic, each in sorted(subscriptions)},
        )

    async def producer_connections(self, producer_group: str) -> tuple[ConnectedClient, ...]:
        """Which producers of a group are connected; there may be none."""

        async def ask(_: str, address: Address) -> tuple[Connection, ...]:
            request = GetProducerConnectionList(producer_group=producer_group)
            try:
                return (await self._ask(address, request, doing=doing)).connection_set
            except BrokerError as error:
                if error.code == ResponseCode.SYSTEM_ERROR:  # all that it says of an unknown group
                    return ()
                raise

        doing = f"ask who is in producer group {producer_group!r}"
        told = await self._on_each(await self._readers(), ask, doing=doing)
        return _members(client for each in told.values() for client in each)

    async def progress(self, group: str, *, topic: str | None = None) -> GroupProgress:
        """How far a group is with each queue of all that it reads, or of one topic."""
        request = GetConsumeStats(consumer_group=group, topic=topic)
        doing = f"ask how far group {group!r} is"
        replies = await self._ask_each(await self._readers(), request, doing=doing)
        queues = {
            queue: QueueProgress(
                max(0, each.broker_offset),
                each.consumer_offset,
                each.last_timestamp if each.last_timestamp > 0 else None,
            )
            for reply in replies.values()
            for queue, each in reply.offset_table.items()
        }
        tps = sum(reply.consume_tps for reply in replies.values())
        return GroupProgress(group, dict(sorted(queues.items())), tps)

    async def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int
    ) -> dict[MessageQueue, int]:
        """Let a group go on with what was stored at that time and later; the offsets, by queue.

        0 is the beginning of the topic, and LATEST_MS its end. Consumers that run hear of it.
        """
        await self._require_group(group)
        masters = await self._masters(brokers=(await self._route(topic)).brokers)
        doing = f"reset group {group!r} in topic {topic!r}"

        async def reset(name: str, address: Address) -> dict[MessageQueue, int]:
            if await self._is_left_to_consumers(address, group):
                return await self._reset_idle(name, group, topic, timestamp_ms)
            request = InvokeBrokerToResetOffset(
                topic=topic, group=group, timestamp=timestamp_ms, is_force=True
            )
            return (await self._ask(address, request, doing=doing)).offset_table

        told = await self._on_each(masters, reset, doing=doing)
        return dict(sorted(pair for table in told.values() for pair in table.items()))

    async def reset_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Let a group go on with a queue at this offset.

        A broker before 5.1 can do so only while no consumer of the group is connected.
        """
        await self._require_group(group)
        doing = f"reset group {group!r} in {describe(queue)} to {offset}"
        first, end = await self.min_offset(queue), await self.max_offset(queue)
        if not first <= offset <= end:
            raise ClientError(f"{doing}: its offsets are {first} to {end}")
        address = await self._master_of(queue)
        if await self._is_left_to_consumers(address, group):
            await self._commit(group, queue, offset, doing=doing)
            return
        why = "while consumers are connected, it resets by time only"
        await self._require_release(address, V5_1, why)
        request = InvokeBrokerToResetOffset(
            topic=queue.topic,
            group=group,
            queue_id=queue.queue_id,
            offset=offset,
            timestamp=LATEST_MS,
            is_force=True,
        )
        await self._ask(address, request, doing=doing)

    async def _is_left_to_consumers(self, address: Address, group: str) -> bool:
        """Whether a broker, as those before 5.1, resets groups by their consumers: it has none."""
        if (await self._runtime(address)).release >= V5_1:
            return False
        return await self._online(address, group, doing=f"ask who is in group {group!r}") is None

    async def _online(
        self, address: Address, group: str, *, doing: str
    ) -> ConsumerConnection | None:
        """Who of a group is connected to a broker; None: nobody."""
        request = GetConsumerConnectionList(consumer_group=group)
        try:
            told = await self._ask(address, request, doing=doing)
        except BrokerError as error:
            if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return None
            raise
        return told if told.connection_set else None

    async def _reset_idle(
        self, broker: str, group: str, topic: str, timestamp_ms: int
    ) -> dict[MessageQueue, int]:
        offsets = {}
        for queue in await self.subscribe_queues(topic):
            if queue.broker_name != broker:
                continue
            if timestamp_ms == LATEST_MS:
                offset = await self.max_offset(queue)
            else:
                offset = await self.search_offset(queue, timestamp_ms)
            await self._commit(
                group, queue, offset, doing=f"reset group {group!r} in {describe(queue)}"
            )
            offsets[queue] = offset
        return offsets

    async def _commit(self, group: str, queue: MessageQueue, offset: int, *, doing: str) -> None:
        request = UpdateConsumerOffset(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        await self._ask_queue(queue, request, doing=doing)

    async def _require_group(self, group: str) -> None:
        """NotFound unless it exists: brokers would often do as if it did."""
        await self.group_config(group)


def _members(clients: Iterable[Connection]) -> tuple[ConnectedClient, ...]:
    """Each client once, though every broker tells of it."""
    members = {
        each.client_id: ConnectedClient(
            each.client_id, each.client_addr, each.language or "", each.version
        )
        for each in clients
    }
    return tuple(member for _, member in sorted(members.items()))
