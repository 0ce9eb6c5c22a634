"""Single messages: by the id of their producer or of their place, by key, by queue offset."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter

from rocketpipe.client.admin.asking import Asking, describe
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError, ClientError, MalformedRecord, NoRoute, NotFound
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.remoting.address import Address
from rocketpipe.wire.message_id import OffsetMessageId, parse_offset_message_id
from rocketpipe.wire.record import decode_records
from rocketpipe.wire.requests.reading import (
    PULL_SUBSCRIPTION,
    PullMessage,
    QueryMessage,
    ViewMessageById,
)

TOOLS_GROUP = "TOOLS_CONSUMER"  # every broker has it
QUERY_MAX = 32
QUERY_RESULTS_MAX = 64  # what brokers give at most
QUERIES_IN_FLIGHT_MAX = 64
UNIQUE_ID = "U"  # the part of the index in which 5.5 may keep producers' ids
LONG_MAX = (1 << 63) - 1


class MessageAdmin(Asking):
    async def message(self, message_id: str, *, topic: str | None = None) -> StoredMessage:
        """The message of this id, or NotFound.

        The id of its place (`offset_message_id`) is enough; the one that its producer gave it
        (`message_id`) is looked for in a topic. They look alike, and the second is tried first.
        """
        place = await self._place(message_id)
        if topic is not None:
            found = await self._query(topic, message_id, QUERY_MAX, 0, LONG_MAX, is_unique_id=True)
            if found:
                return found[0]
        if place is not None:
            return await self._view(*place, message_id)
        where = "no broker stores messages under it"
        if topic is None:
            raise NotFound(
                f"message {message_id!r}",
                f"{where}; if a producer gave it the id, say which topic it is in",
            )
        raise NotFound(f"message {message_id!r}", f"{where}, nor is it in topic {topic!r}")

    async def query(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int | None = None,
        limit: int = 32,
    ) -> list[StoredMessage]:
        """The newest messages with this key that were stored in that time, oldest first.

        A broker gives no more than 64.
        """
        if limit < 1:
            raise ClientError(f"limit is {limit}: it must be a whole number from 1")
        # Apache's index rounds times down to a second: what it has since a second before holds all
        # that are wanted, and what it has until the end may be too young, so we ask for more.
        count = limit if end_ms is None else max(limit, QUERY_RESULTS_MAX)
        end_ms = LONG_MAX if end_ms is None else end_ms
        found = await self._query(topic, key, count, max(0, begin_ms - 1000), end_ms)
        in_time = [each for each in found if begin_ms <= each.store_timestamp_ms <= end_ms]
        return in_time[-limit:]

    async def copies(
        self, topic: str, message_ids: Iterable[str], *, brokers: Collection[str] = ()
    ) -> dict[str, list[StoredMessage]]:
        """All messages of a topic that have these ids from their producers, oldest first: whatever
        was sent again is there several times. Of one id a broker gives no more than 64.

        NoRoute if one of these brokers, whose answers are needed, has none of the topic now.
        """
        servers = await self._readers_of(topic)
        for name in brokers:
            if name not in servers:
                asked = tuple(self._instance.name_servers.addresses)
                raise NoRoute(topic, asked, f"there is no broker {name!r}")
        room = asyncio.Semaphore(QUERIES_IN_FLIGHT_MAX)

        async def find(message_id: str) -> list[StoredMessage]:
            async with room:
                return await self._query_at(
                    servers, topic, message_id, QUERY_RESULTS_MAX, 0, LONG_MAX, is_unique_id=True
                )

        ids = list(dict.fromkeys(message_ids))
        return dict(zip(ids, await asyncio.gather(*map(find, ids)), strict=True))

    async def message_at(self, queue: MessageQueue, offset: int) -> StoredMessage:
        """The message at an offset of a queue, or NotFound."""
        request = PullMessage(
            consumer_group=TOOLS_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=1,
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        doing = f"read {describe(queue)} at offset {offset}"
        answer = await self._ask_queue(queue, request, doing=doing)
        for message in decode_records(answer.body, broker_name=queue.broker_name):
            if message.queue_offset == offset:  # an inner batch may begin before it
                return message
        raise NotFound(
            f"message at offset {offset} of {describe(queue)}",
            f"it has {answer.header.min_offset} up to, and without, {answer.header.max_offset}",
        )

    async def _place(self, message_id: str) -> tuple[str, OffsetMessageId] | None:
        """The place that an id stands for, if a broker is there: it could be anybody's host."""
        try:
            place = parse_offset_message_id(message_id)
        except MalformedRecord:
            return None
        for broker in await self.brokers():
            if place.store_host in broker.addresses.values():
                return broker.name, place
        return None

    async def _view(
        self, broker_name: str, place: OffsetMessageId, message_id: str
    ) -> StoredMessage:
        request = ViewMessageById(offset=place.physical_offset)
        doing = f"read message {message_id}"
        try:
            body = await self._ask(Address.parse(place.store_host), request, doing=doing)
        except BrokerError as error:
            if error.code == ResponseCode.SYSTEM_ERROR:  # all that a broker says of a wrong place
                raise NotFound(f"message {message_id!r}", str(error)) from error
            raise
        return decode_records(body, broker_name=broker_name)[0]

    async def _query(
        self, topic: str, key: str, limit: int, *times: int, is_unique_id: bool = False
    ) -> list[StoredMessage]:
        servers = await self._readers_of(topic)
        return await self._query_at(servers, topic, key, limit, *times, is_unique_id=is_unique_id)

    async def _query_at(
        self,
        servers: Mapping[str, Address],
        topic: str,
        key: str,
        limit: int,
        begin_ms: int,
        end_ms: int,
        *,
        is_unique_id: bool = False,
    ) -> list[StoredMessage]:
        request = QueryMessage(
            topic=topic,
            key=key,
            max_num=limit,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            # Not `unique_key_query`, which only raises the limit: what 4.9 and 5.x leave out of a
            # signature differs there.
            index_type=UNIQUE_ID if is_unique_id else None,
        )
        doing = f"look for {key!r} in topic {topic!r}"

        async def ask(name: str, address: Address) -> list[StoredMessage]:
            try:
                answer = await self._ask(address, request, doing=doing)
            except BrokerError as error:
                if error.code == ResponseCode.QUERY_NOT_FOUND:
                    return []
                raise
            return decode_records(answer.body, broker_name=name)

        found = await self._on_each(servers, ask, doing=doing)
        # A broker compares hashes only, so these may be others' as well.
        wanted = [
            message
            for messages in found.values()
            for message in messages
            if message.topic == topic
            and (key == message.message_id if is_unique_id else key in message.keys)
        ]
        return sorted(wanted, key=attrgetter("store_timestamp_ms", "physical_offset"))
