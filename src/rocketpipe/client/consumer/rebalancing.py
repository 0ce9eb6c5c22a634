"""Rebalancing: which queues this member of a group reads, worked out anew as things change."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from rocketpipe.client.consumer.settings import ConsumerSettings
from rocketpipe.client.instance import ClientInstance
from rocketpipe.client.namespace import with_namespace, without_namespace
from rocketpipe.client.route import TopicRoute, subscribe_queues
from rocketpipe.errors import ClientError, MQError, NoRoute
from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies.heartbeat import SubscriptionData
from rocketpipe.wire.requests.clients import GetConsumerListByGroup

log = logging.getLogger(__name__)

INCOMPLETE_PAUSE = 1.0  # before the next try, when a queue could not be had

# Given a topic and the queues that are ours now; whether all of them could be taken.
Share = Callable[[str, set[MessageQueue]], Awaitable[bool]]
# For consumers who do not share queues with their group: which of a topic's they read.
Choose = Callable[[Sequence[MessageQueue]], set[MessageQueue]]


class Rebalancer:
    """Looks at the start, when told to, and every so often."""

    def __init__(
        self,
        instance: ClientInstance,
        settings: ConsumerSettings,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        share: Share,
        *,
        chooses: Choose | None,
    ) -> None:
        self._instance = instance
        self._settings = settings
        self._group = group
        self._subscriptions = subscriptions
        self._share = share
        self._chooses = chooses
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()

    def soon(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        pause = INCOMPLETE_PAUSE
        while True:
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass
            is_complete = await self.rebalance()
            pause = self._settings.rebalance_interval if is_complete else INCOMPLETE_PAUSE

    async def rebalance(self) -> bool:
        """Whether every topic's queues are now as they should be."""
        async with self._turn:
            self._wake.clear()
            is_complete = True
            for topic in list(self._subscriptions):
                try:
                    is_complete &= await self._share(topic, await self._queues(topic))
                except MQError as error:
                    log.info("rebalance of %s for group %s: %s", topic, self._group, error)
                    is_complete = False
                except Exception:  # as a user's own allocation may raise
                    log.exception("rebalance of %s for group %s", topic, self._group)
                    is_complete = False
            return is_complete

    async def give_up(self, topic: str) -> None:
        """No queue of it is ours."""
        async with self._turn:
            await self._share(topic, set())

    async def _queues(self, topic: str) -> set[MessageQueue]:
        timeout = self._settings.request_timeout
        route = await self._instance.routes.get(topic, None, timeout=timeout)
        queues = subscribe_queues(route)
        if self._chooses is not None:
            return self._chooses(queues)
        client_id = self._instance.client_id
        client_ids = await self._client_ids(route)
        if client_id not in client_ids:
            await self._instance.send_heartbeats()  # a broker that was restarted knows nobody
            client_ids = await self._client_ids(route)
        if client_id not in client_ids:
            raise ClientError(f"brokers do not take {client_id} for a member of {self._group}")
        return self._allocate(queues, sorted(client_ids))

    def _allocate(
        self, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> set[MessageQueue]:
        settings, client_id = self._settings, self._instance.client_id
        namespace = settings.namespace
        if isinstance(settings.allocation, str):  # Java's see names on the wire, and hash them
            return set(settings.allocate(queues, client_ids, client_id))
        users = [
            replace(queue, topic=without_namespace(namespace, queue.topic)) for queue in queues
        ]
        return {
            replace(queue, topic=with_namespace(namespace, queue.topic))
            for queue in settings.allocate(users, client_ids, client_id)
        }

    async def _client_ids(self, route: TopicRoute) -> tuple[str, ...]:
        """The members of the group, as any of the topic's brokers knows them."""
        addresses = [each for name in route.brokers for each in [route.master(name)] if each]
        addresses = self._instance.environment.dice.sample(addresses, len(addresses))
        failure: MQError = NoRoute(
            route.topic, tuple(self._instance.name_servers.addresses), "it has no masters"
        )
        for address in addresses:
            try:
                answer = await self._instance.connections.request(
                    address,
                    GetConsumerListByGroup(consumer_group=self._group),
                    timeout=self._settings.request_timeout,
                )
                return answer.consumer_id_list
            except MQError as error:
                failure = error
        raise failure
