"""What pull and push consumers have in common: a life, a group, queues, and offsets to store."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import ClassVar, Self

from rocketpipe.client.background import Background
from rocketpipe.client.consumer.member import Member
from rocketpipe.client.consumer.offsets import OffsetStore, QueueEnds, RemoteOffsets, first_offset
from rocketpipe.client.consumer.process_queue import Assigned, Cache, ProcessQueue
from rocketpipe.client.consumer.pulling import Pulled, Puller
from rocketpipe.client.consumer.queue_reader import QueueReader
from rocketpipe.client.consumer.rebalancing import Choose, Rebalancer
from rocketpipe.client.consumer.settings import ConsumerSettings
from rocketpipe.client.consumer.subscriptions import SQL92, Expression, subscription
from rocketpipe.client.environment import Environment
from rocketpipe.client.instance import ClientInstance
from rocketpipe.client.lifecycle import Lifecycle, State
from rocketpipe.client.namespace import with_namespace, without_namespace
from rocketpipe.client.route import subscribe_queues
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import MQError, NoRoute
from rocketpipe.message import MessageQueue, StoredMessage
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.dispatch import Refusal
from rocketpipe.wire.bodies.consumer_info import ConsumeMessageDirectlyResult
from rocketpipe.wire.bodies.groups import CheckClientConfig as CheckedSubscription
from rocketpipe.wire.bodies.heartbeat import ConsumeType, MessageModel, SubscriptionData
from rocketpipe.wire.requests.clients import CheckClientConfig

log = logging.getLogger(__name__)


class BaseConsumer(ABC):
    """Not for users: see AsyncPullConsumer and AsyncPushConsumer.

    Inside, topics, groups and queues have their names on the wire: with the namespace.
    """

    _consume_type: ClassVar[ConsumeType]

    def __init__(self, settings: ConsumerSettings, environment: Environment | None) -> None:
        self._settings = settings
        self._environment = environment
        self._group = with_namespace(settings.namespace, settings.consumer_group)
        self._lifecycle = Lifecycle(f"consumer {settings.consumer_group!r}")
        self._background = Background()
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._wishes: dict[str, Expression] = {}  # subscriptions made before the start
        self._assigned: dict[MessageQueue, Assigned] = {}
        self._is_member = False
        self._cache = Cache(settings)

    # Its life.

    async def start(self) -> None:
        """Get ready; a consumer can be started once."""
        self._lifecycle.begin()
        settings = self._settings
        async with AsyncExitStack() as ending:
            instance = ClientInstance.join(settings.client_settings(), self._environment)
            ending.push_async_callback(instance.leave)
            self._instance = instance
            self._started_ms = instance.environment.clock.wall_ms()
            self._puller = Puller(instance, self._group, timeout=settings.pull_timeout)
            self._ends = QueueEnds(instance)
            self._offsets = self._offset_store()
            self._rebalancer = Rebalancer(
                *(instance, settings, self._group, self._subscriptions, self._share),
                chooses=self._chooses(),
            )
            ending.push_async_callback(self._leave_group)
            ending.push_async_callback(self._release_all)
            ending.push_async_callback(self._background.close)
            self._background.every(settings.persist_offset_interval, self._persist)
            self._prepare(ending)
            await self._subscribe(self._wishes)
            self._ending = ending.pop_all()
        self._lifecycle.started()

    async def close(self) -> None:
        """Store how far it is, and leave the group. Closing twice is no error."""
        if self._lifecycle.close():
            async with self._ending:  # all of it, even if our caller is cancelled
                pass

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def client_id(self) -> str:
        """By which brokers and the other members know the client this consumer belongs to."""
        self._lifecycle.require_running()
        return self._instance.client_id

    async def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Read this topic as a member of the group: all messages, those with tags such as
        `TagA || TagB`, or those that Sql92(...) accepts. In place of what was wanted of it before.
        """
        subscription(topic, expression, version=0)  # refuses what makes no sense
        if self._lifecycle.state is State.JUST_CREATED:
            self._wishes[topic] = expression
            return
        self._lifecycle.require_running()
        await self._subscribe({topic: expression})

    async def unsubscribe(self, topic: str) -> None:
        """Read this topic no more."""
        if self._lifecycle.state is State.JUST_CREATED:
            self._wishes.pop(topic, None)
            return
        self._lifecycle.require_running()
        topic = self._wire_topic(topic)
        if self._subscriptions.pop(topic, None) is not None:
            await self._rebalancer.give_up(topic)
            await self._instance.send_heartbeats()

    async def assigned(self) -> list[MessageQueue]:
        """The queues that are read now."""
        self._lifecycle.require_running()
        return sorted(map(self._users_queue, self._assigned))

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Every queue of a topic that can be read."""
        self._lifecycle.require_running()
        timeout = self._settings.request_timeout
        wire = self._wire_topic(topic)
        route = await self._instance.routes.get(wire, None, timeout=timeout)
        return [self._users_queue(queue) for queue in subscribe_queues(route)]

    # What the two kinds do in ways of their own.

    @abstractmethod
    def _prepare(self, ending: AsyncExitStack) -> None:
        """Start what has to run before the first queue is read, and see that it ends."""

    @property
    def _model(self) -> MessageModel:
        return MessageModel.CLUSTERING

    def _chooses(self) -> Choose | None:
        """Which queues are ours, if we do not share them with the group."""
        return None

    def _offset_store(self) -> OffsetStore:
        return RemoteOffsets(self._instance, self._group)

    @abstractmethod
    def _take(self, queue: ProcessQueue, messages: list[StoredMessage]) -> None:
        """These were pulled."""

    @abstractmethod
    def _moved(self, queue: ProcessQueue, pulled: Pulled) -> None:
        """The broker has nothing at our offset, or the group's offset was reset."""

    @abstractmethod
    def _commit_offset(self, assigned: Assigned) -> int | None:
        """How far the group may be said to be with a queue; None to say nothing."""

    def _running_properties(self) -> dict[str, str]:
        """What there is to say of this kind of consumer to those who ask how it is doing."""
        return {}

    async def _come_to_rest(self, assigned: Assigned) -> None:
        """A queue is about to be left, or to begin anew: let what must end before that end."""
        return

    async def _left(self, queue: MessageQueue) -> None:
        """A queue is not ours any more, and how far we were is stored."""
        return

    async def _may_take(self, queue: MessageQueue) -> bool:
        """Whether a queue that is ours can be had now."""
        return True

    # The group.

    async def _subscribe(self, wishes: Mapping[str, Expression]) -> None:
        version = self._instance.environment.clock.wall_ms()
        wanted = [
            subscription(self._wire_topic(topic), expression, version=version)
            for topic, expression in wishes.items()
        ]
        for data in wanted:
            await self._meet(data)
        if not wanted:
            return
        if not self._is_member:
            self._instance.add_consumer(self._group, Member(self))
            self._is_member = True
            self._background.spawn(self._rebalancer.run())
        self._subscriptions.update((data.topic, data) for data in wanted)
        await self._instance.send_heartbeats()
        await self._rebalancer.rebalance()

    async def _meet(self, data: SubscriptionData) -> None:
        """Know the topic's brokers. Those who have to understand a filter are asked if they do."""
        timeout = self._settings.request_timeout
        try:
            route = await self._instance.routes.get(data.topic, None, timeout=timeout)
        except NoRoute as error:
            log.warning("%s; the group waits for it", error)
            return
        masters = map(route.master, route.brokers)
        await self._require_understood(data, [each for each in masters if each is not None])

    async def _require_understood(
        self, data: SubscriptionData, addresses: Iterable[Address]
    ) -> None:
        """BrokerError if one of them can't filter so: a pull would bring every message then."""
        if data.expression_type != SQL92:
            return
        body = CheckedSubscription(
            client_id=self._instance.client_id,
            group=self._group,
            namespace=self._settings.namespace,
            subscription_data=data,
        ).encode()
        timeout = self._settings.request_timeout
        for address in addresses:
            await self._instance.connections.request(
                address, CheckClientConfig(), body, timeout=timeout
            )

    async def _leave_group(self) -> None:
        if self._is_member:
            self._is_member = False
            await self._instance.remove_consumer(self._group)

    # Its queues.

    async def _share(self, topic: str, queues: set[MessageQueue]) -> bool:
        """From now on these queues of the topic are ours; whether all of them could be had."""
        mine = {queue for queue in self._assigned if queue.topic == topic}
        if mine != queues:
            log.info("group %s: %d queues of %s are ours", self._group, len(queues), topic)
        await asyncio.gather(*map(self._release, mine - queues))
        outcomes = await asyncio.gather(
            *(self._acquire(queue) for queue in sorted(queues - mine)), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, MQError):
                log.info("group %s: %s", self._group, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
        return all(outcome is True for outcome in outcomes)

    async def _acquire(self, queue: MessageQueue) -> bool:
        if not await self._may_take(queue):
            return False
        offset = await first_offset(self._offsets, self._ends, self._settings, queue)
        if queue not in self._assigned:
            self._begin(queue, offset)
        return True

    def _begin(self, queue: MessageQueue, offset: int) -> Assigned:
        """Read a queue from this offset on."""
        process_queue = ProcessQueue(queue, offset, self._cache)
        gate = self._gate(queue)
        reader = QueueReader(
            *(self._instance, self._settings, self._puller, self._cache, process_queue),
            lambda: self._subscription(queue),
            is_member=self._is_member and queue.topic in self._subscriptions,
            gate=gate,
            take=self._take,
            moved=self._moved,
        )
        task = asyncio.get_running_loop().create_task(reader.run())
        assigned = self._assigned[queue] = Assigned(process_queue, gate, task)
        log.info("group %s reads %s from offset %d on", self._group, queue, offset)
        return assigned

    def _gate(self, queue: MessageQueue) -> asyncio.Event:
        gate = asyncio.Event()
        gate.set()
        return gate

    def _subscription(self, queue: MessageQueue) -> SubscriptionData | None:
        return self._subscriptions.get(queue.topic)

    async def _restart(self, queue: MessageQueue, offset: int) -> None:
        """Read a queue from another offset on, if it is ours."""
        assigned = self._assigned.get(queue)
        if assigned is not None:
            await self._come_to_rest(assigned)
            await self._end_reader(assigned)
            if self._assigned.get(queue) is assigned and not assigned.is_leaving:  # as before
                self._begin(queue, offset)

    async def _release(self, queue: MessageQueue) -> None:
        """Read a queue no more, and store how far we were."""
        assigned = self._assigned.get(queue)
        if assigned is None or assigned.is_leaving:
            return
        assigned.is_leaving = True
        await self._come_to_rest(assigned)
        offset = self._commit_offset(assigned)
        await self._end_reader(assigned)
        await self._write({queue: offset} if offset is not None else {})
        self._puller.forget(queue)
        await self._left(queue)
        self._assigned.pop(queue, None)

    async def _end_reader(self, assigned: Assigned) -> None:
        assigned.process_queue.drop()
        if assigned.reader is not asyncio.current_task():
            assigned.reader.cancel()
            await asyncio.gather(assigned.reader, return_exceptions=True)

    async def _release_all(self) -> None:
        await self._persist()
        for queue, assigned in self._assigned.items():
            await self._end_reader(assigned)
            await self._left(queue)
        self._assigned.clear()

    # Offsets.

    async def _persist(self) -> None:
        """Store how far we are; also where that has not changed, as a broker may have lost it."""
        offsets = {
            queue: offset
            for queue, assigned in self._assigned.items()
            for offset in [self._commit_offset(assigned)]
            if offset is not None
        }
        await self._write(offsets)

    async def _write(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Store them; if that fails, they will be the next time."""
        try:
            if offsets:
                await self._offsets.write(offsets)
        except (MQError, OSError) as error:
            log.warning("group %s: offsets were not stored: %s", self._group, error)

    async def _reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Somebody wants the group to go on from these; where a queue is ours, that is for us."""
        ours = {queue: offset for queue, offset in offsets.items() if queue in self._assigned}
        for queue, offset in ours.items():
            await self._restart(queue, offset)
        await self._write(ours)

    async def _consume_directly(self, message: StoredMessage) -> ConsumeMessageDirectlyResult:
        remark = f"The Consumer Group <{self._group}> not exist in this consumer"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)  # Java's words for one with no listener

    # Names: the user's own, and those on the wire.

    def _wire_topic(self, topic: str) -> str:
        return with_namespace(self._settings.namespace, topic)

    def _wire_queue(self, queue: MessageQueue) -> MessageQueue:
        return replace(queue, topic=self._wire_topic(queue.topic))

    def _users_queue(self, queue: MessageQueue) -> MessageQueue:
        return replace(queue, topic=without_namespace(self._settings.namespace, queue.topic))
