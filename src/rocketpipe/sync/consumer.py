"""The blocking consumers."""

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

from rocketpipe.client.consumer.listeners import Listener
from rocketpipe.client.consumer.pull_consumer import POLL_TIMEOUT, AsyncPullConsumer
from rocketpipe.client.consumer.push_consumer import AsyncPushConsumer
from rocketpipe.client.consumer.ranges import READY_BYTES_MAX
from rocketpipe.client.consumer.settings import PullConsumerSettings, PushConsumerSettings
from rocketpipe.client.consumer.subscriptions import Expression
from rocketpipe.client.environment import Environment
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.sync.client import BlockingClient


class PullConsumer(BlockingClient):
    """Reads messages when asked to. Every method is AsyncPullConsumer's of the same name, and
    blocks.

    with PullConsumer("billing", namesrv="127.0.0.1:9876") as consumer:
        consumer.subscribe("orders", "paid || refunded")
        for message in consumer:
            ...

    Settings are those of PullConsumerSettings, by name or as such an object.
    """

    _LISTENS = True

    def __init__(
        self,
        consumer_group: str | PullConsumerSettings,
        *,
        environment: Environment | None = None,
        **settings: Any,
    ) -> None:
        self._async = AsyncPullConsumer(consumer_group, environment=environment, **settings)
        super().__init__(self._async)
        self.settings = self._async.settings

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._async._keep_last_poll(kind)
        self.close()

    @property
    def client_id(self) -> str:
        """By which brokers and the other members know the client this consumer belongs to."""

        async def client_id() -> str:
            return self._async.client_id

        return self._call(client_id())

    def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Read this topic as a member of the group: all messages, those with tags such as
        `TagA || TagB`, or those that Sql92(...) accepts. In place of what was wanted of it before.
        """
        self._call(self._async.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Read this topic no more."""
        self._call(self._async.unsubscribe(topic))

    def assign(self, queues: Iterable[MessageQueue], expression: Expression = "*") -> None:
        """Read these queues and no others, whoever else reads them, from where the group is."""
        self._call(self._async.assign(list(queues), expression))

    def assigned(self) -> list[MessageQueue]:
        """The queues that are read now."""
        return self._call(self._async.assigned())

    def queues(self, topic: str) -> list[MessageQueue]:
        """Every queue of a topic that can be read."""
        return self._call(self._async.queues(topic))

    def poll(
        self, *, timeout: float = POLL_TIMEOUT, messages_max: int | None = None
    ) -> list[StoredMessage]:
        """Messages of any of its queues, in order for each queue; none if none came in time.

        OffsetGap when messages that were to come next are gone, unless `skip_gaps` is set: `seek`
        says where to go on.
        """
        return self._call(self._async.poll(timeout=timeout, messages_max=messages_max))

    def __iter__(self) -> Iterator[StoredMessage]:
        return self

    def __next__(self) -> StoredMessage:
        try:
            return self._call(self._async.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def pull_range(
        self,
        queue: MessageQueue,
        start: int,
        end: int,
        *,
        expression: Expression = "*",
        skip_gaps: bool | None = None,
    ) -> Iterator[bytes]:
        """The stored messages of a queue from offset `start` up to, and without, `end`.

        Whole answers, as `rocketpipe.wire.record.decode_records` reads them, in order; several
        pulls are on their way at once. Nothing is assigned for it, and nothing committed. With
        tags, brokers compare hashes only: who reads has to compare tags. OffsetGap when an offset
        is not there, unless gaps are to be skipped.
        """

        async def begin() -> Any:
            return self._async._pull_range(
                *(queue, start, end, expression, skip_gaps), bytes_min=READY_BYTES_MAX
            )

        async def next_ones() -> list[bytes]:  # many: a hop from thread to thread costs more
            return await anext(answers, [])

        answers = self._call(begin())
        try:
            while some := self._call(next_ones()):
                yield from some
        finally:
            self._call(answers.aclose())

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on with this offset of a queue."""
        self._call(self._async.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on with the first message that a queue has."""
        self._call(self._async.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with the next message that comes to a queue."""
        self._call(self._async.seek_to_end(queue))

    def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Go on with the first message of a queue that was stored at this time or later."""
        self._call(self._async.seek_to_time(queue, timestamp_ms))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Give no messages of these queues, until they are resumed."""
        self._call(self._async.pause(list(queues)))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Give messages of these queues again."""
        self._call(self._async.resume(list(queues)))

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store these offsets for the group; by default, all that poll gave is consumed.

        Returns when the brokers have them.
        """
        self._call(self._async.commit(offsets))

    def offsets(self) -> dict[MessageQueue, int]:
        """Of each queue that it reads, the offset that poll gives next."""
        return self._call(self._async.offsets())

    def committed(self, queue: MessageQueue) -> int | None:
        """The offset that is stored for the group; None if there is none."""
        return self._call(self._async.committed(queue))

    def lag(self) -> dict[MessageQueue, int]:
        """Of each queue that it reads, how many messages poll has not given yet."""
        return self._call(self._async.lag())


class PushConsumer(BlockingClient):
    """Gives messages to a listener as they come. Every method is AsyncPushConsumer's of the same
    name, and blocks.

    def on_messages(messages: list[StoredMessage]) -> None:
        ...

    with PushConsumer(
        "billing", on_messages, subscriptions={"orders": "paid"}, namesrv="127.0.0.1:9876"
    ):
        threading.Event().wait()

    Settings are those of PushConsumerSettings, by name or as such an object.
    """

    _LISTENS = True

    def __init__(
        self,
        consumer_group: str | PushConsumerSettings,
        listener: Listener,
        *,
        subscriptions: Mapping[str, Expression] | None = None,
        environment: Environment | None = None,
        **settings: Any,
    ) -> None:
        self._async = AsyncPushConsumer(
            consumer_group,
            listener,
            subscriptions=subscriptions,
            environment=environment,
            **settings,
        )
        super().__init__(self._async)
        self.settings = self._async.settings

    @property
    def client_id(self) -> str:
        """By which brokers and the other members know the client this consumer belongs to."""

        async def client_id() -> str:
            return self._async.client_id

        return self._call(client_id())

    def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Read this topic as a member of the group: all messages, those with tags such as
        `TagA || TagB`, or those that Sql92(...) accepts. In place of what was wanted of it before.
        """
        self._call(self._async.subscribe(topic, expression))

    def unsubscribe(self, topic: str) -> None:
        """Read this topic no more."""
        self._call(self._async.unsubscribe(topic))

    def assigned(self) -> list[MessageQueue]:
        """The queues that are read now."""
        return self._call(self._async.assigned())

    def queues(self, topic: str) -> list[MessageQueue]:
        """Every queue of a topic that can be read."""
        return self._call(self._async.queues(topic))

    def suspend(self) -> None:
        """Pull no more for now; what is here already still goes to the listener."""
        self._call(self._async.suspend())

    def resume(self) -> None:
        """Pull again."""
        self._call(self._async.resume())
