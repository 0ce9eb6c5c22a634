"""What planning asks a cluster: which queues there are, what they hold, where a place is."""

import logging
import re
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar

from rocketpipe.client.consumer.ranges import PASSING
from rocketpipe.client.namespace import with_namespace, without_namespace
from rocketpipe.client.route import TopicRoute, subscribe_queues
from rocketpipe.errors import (
    BrokerError,
    BrokersFailed,
    InvalidSetting,
    MQError,
    NoRoute,
    NotFound,
    RemotingError,
)
from rocketpipe.message import MessageQueue
from rocketpipe.spark.offsets import Offsets
from rocketpipe.spark.planning import Held, name_of, report_loss
from rocketpipe.spark.positions import EARLIEST, GROUP, LATEST, OFFSET, Position, Positions
from rocketpipe.spark.read_options import ReadOptions
from rocketpipe.sync.admin import Admin
from rocketpipe.sync.consumer import PullConsumer

log = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_PAUSE = 0.5  # seconds before the first retry; twice as long before each more


class ClusterView:
    """A cluster as the planner of a query sees it. Queues have their users' names, without the
    namespace. What fails for the moment is tried again, as often as the options say."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._namespace = options.connection.namespace
        self._admin = Admin(**options.connection.client_settings())
        self._consumer: PullConsumer | None = None
        self._committed: Offsets = {}

    def __enter__(self) -> Self:
        self._admin.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._admin.close()

    # Queues and what they hold.

    def topics(self) -> tuple[str, ...]:
        """Those that the options name or describe; the system's own are never meant."""
        options = self._options
        if options.topic_pattern is None:
            return options.topics or tuple(dict.fromkeys(each.topic for each in options.assigned))
        pattern = re.compile(options.topic_pattern)
        theirs = self._patiently(self._admin.topics)
        system = self._patiently(self._admin.system_topics)
        return tuple(
            name
            for name in map(self._users_topic, sorted(set(theirs) - system))
            # Where groups keep what failed is read by those who ask for it.
            if name is not None
            and pattern.fullmatch(name)
            and name.startswith("%") <= options.topic_pattern.startswith("%")
        )

    def held(self, topics: Iterable[str]) -> dict[MessageQueue, Held]:
        """What each queue of these topics, or each that is assigned, holds now. NoRoute where a
        topic is not."""
        held = {}
        for topic in topics:
            held.update(self._patiently(lambda topic=topic: self._held(topic)))  # type: ignore[misc]
        wanted = self._options.assigned
        if not wanted:
            return held
        for queue in wanted:
            if queue not in held:
                raise InvalidSetting(f"option assign: the cluster has no {name_of(queue)}")
        return {queue: held[queue] for queue in wanted}

    def _held(self, topic: str) -> dict[MessageQueue, Held]:
        wire = with_namespace(self._namespace, topic)
        route: TopicRoute = self._admin.route(wire)
        stats = self._admin.topic_stats(wire).queues
        held = {}
        for queue in subscribe_queues(route):
            if (found := stats.get(queue)) is not None:
                first, end = found.min_offset, found.max_offset
            else:  # brokers tell only of queues that are written to
                first, end = self._admin.min_offset(queue), self._admin.max_offset(queue)
            users = MessageQueue(topic, queue.broker_name, queue.queue_id)
            held[users] = Held(max(0, first), max(0, end))
        return held

    # Places in queues.

    def resolve(
        self, positions: Positions, held: dict[MessageQueue, Held], *, is_start: bool
    ) -> Offsets:
        """The offset that stands at a position, for each queue."""
        for queue in positions.by_queue:
            if queue not in held:
                side = "starting" if is_start else "ending"
                raise InvalidSetting(f"the {side} offsets name {name_of(queue)}, which is not read")
        return {
            queue: self._patiently(
                lambda queue=queue, now=now: self._offset(  # type: ignore[misc]
                    queue, positions.of(queue), now, is_start
                )
            )
            for queue, now in held.items()
        }

    def _offset(self, queue: MessageQueue, position: Position, now: Held, is_start: bool) -> int:
        if position.kind == EARLIEST:
            return now.first
        if position.kind == LATEST:
            return now.end
        if position.kind == OFFSET:
            return self._checked(queue, position.value, now, is_start)
        if position.kind == GROUP:
            assert self._options.group is not None
            group = with_namespace(self._namespace, self._options.group)
            offset = self._admin.consumer_offset(group, self._wire(queue))
            if offset is None or offset < 0:  # a group that has not begun yet
                return now.first
            return self._checked(queue, offset, now, is_start)
        offset = self._first_stored_at(queue, position.value, now)
        if is_start and offset == now.end and self._options.no_offset_is_error:
            raise InvalidSetting(
                f"{name_of(queue)} has no message that was stored at {position.value} or later;"
                " with the option startingOffsetsByTimestampStrategy=latest it is begun at its end"
            )
        return offset

    def _checked(self, queue: MessageQueue, offset: int, now: Held, is_start: bool) -> int:
        """An offset somebody gave, which the queue may not reach, or not have any more."""
        if offset > now.end:
            raise InvalidSetting(
                f"offset {offset} of {name_of(queue)}: it has {now.first} up to {now.end}"
            )
        if offset < now.first and is_start:
            report_loss(queue, offset, now.first, fails=self._options.fail_on_data_loss)
        return max(offset, now.first)

    def _first_stored_at(self, queue: MessageQueue, time_ms: int, now: Held) -> int:
        """The first message that was stored at that time or later; the end if there is none.

        Brokers before 5.1 find the message nearest in time, or any of those of one millisecond. So
        the answer is looked at, and if it is not right, halving finds what is.
        """
        wire = self._wire(queue)

        def is_late(offset: int) -> bool:
            try:
                return self._admin.message_at(wire, offset).store_timestamp_ms >= time_ms
            except NotFound:
                return False  # deleted since, so among the oldest

        first, end = now.first, now.end
        if first == end:
            return end
        guess = min(max(self._admin.search_offset(wire, time_ms), first), end)
        if (guess == end or is_late(guess)) and (guess == first or not is_late(guess - 1)):
            return guess
        while first < end:
            middle = (first + end) // 2
            if is_late(middle):
                end = middle
            else:
                first = middle + 1
        return first

    # A group's progress.

    def commit(self, offsets: Offsets) -> None:
        """Store how far the group is, for those who watch its lag: where it has moved since."""
        if self._consumer is None:
            consumer = PullConsumer(**self._options.consumer_settings())
            consumer.start()
            self._consumer = consumer
        consumer = self._consumer
        # A broker may not know the group before the group has read something there.
        moved = {queue: at for queue, at in offsets.items() if at != self._committed.get(queue, 0)}
        self._patiently(lambda: consumer.commit(moved))
        self._committed.update(moved)

    # Names, and patience.

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        topic = with_namespace(self._namespace, queue.topic)
        return MessageQueue(topic, queue.broker_name, queue.queue_id)

    def _users_topic(self, wire: str) -> str | None:
        """The user's name of a topic; None for one outside of the namespace."""
        users = without_namespace(self._namespace, wire)
        return users if with_namespace(self._namespace, users) == wire else None

    def _patiently(self, ask: Callable[[], T]) -> T:
        """What it returns; Spark itself never asks twice, and ends the query instead."""
        pause = _FIRST_PAUSE
        for left in range(self._options.retries, -1, -1):
            try:
                return ask()
            except (RemotingError, BrokerError, BrokersFailed) as error:
                if not left or not _may_pass(error):
                    raise
                log.warning("asked in vain, and will again in %s s: %s", pause, error)
                threading.Event().wait(pause)
                pause *= 2
        raise AssertionError


def _may_pass(error: MQError) -> bool:
    if isinstance(error, BrokersFailed):
        return all(_may_pass(each) for _, each in error.failures)
    if isinstance(error, BrokerError):
        return error.code in PASSING
    return isinstance(error, RemotingError) and not isinstance(error, NoRoute)
