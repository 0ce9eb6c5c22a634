"""Requests: a message is sent, and whoever consumes it sends a reply to this very client."""

import asyncio
import logging
from uuid import UUID

from rocketpipe.client.instance import ClientInstance
from rocketpipe.client.outgoing import Packer
from rocketpipe.client.replies import reply_topic
from rocketpipe.client.route import TopicRoute
from rocketpipe.client.sender import Sender, Target
from rocketpipe.errors import MQError, ReplyTimeout
from rocketpipe.message import Message, StoredMessage
from rocketpipe.wire import properties as names

log = logging.getLogger(__name__)


class Requester:
    """Asks, by the sender of one producer."""

    def __init__(self, instance: ClientInstance, packer: Packer, sender: Sender) -> None:
        self._instance = instance
        self._packer = packer
        self._sender = sender
        self._known_in: dict[str, TopicRoute] = {}  # routes whose brokers all know us, by topic

    async def request(self, message: Message, target: Target, *, timeout: float) -> StoredMessage:
        """The reply; SendFailed when the request did not get through, else ReplyTimeout."""
        now = asyncio.get_running_loop().time
        deadline = now() + timeout
        random_bits = self._instance.environment.dice.getrandbits(128)
        correlation_id = str(UUID(int=random_bits, version=4))
        outgoing = self._packer.pack(
            message,
            {
                names.CORRELATION_ID: correlation_id,
                names.REPLY_TO_CLIENT: self._instance.client_id,
                names.TTL: str(round(timeout * 1000)),
            },
        )
        await self._make_known(outgoing.topic, timeout)
        with self._instance.replies.expect(correlation_id) as reply:
            sending = asyncio.create_task(
                self._sender.send(outgoing, target, timeout=deadline - now())
            )
            try:
                # A reply may be faster than the broker's answer, or come though that is lost.
                await asyncio.wait((sending, reply), return_when=asyncio.FIRST_COMPLETED)
                if not reply.done():
                    sending.result()
                    await asyncio.wait((reply,), timeout=deadline - now())
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            if not reply.done():
                raise ReplyTimeout(message.topic, correlation_id, timeout)
            return reply.result()

    async def _make_known(self, topic: str, timeout: float) -> None:
        """Let every broker know this client through which a reply might come.

        A consumer sends its reply to any broker of the cluster, and one that did not get our
        heartbeat yet could not hand it on.
        """
        route = await self._sender.route(topic, timeout=timeout)
        if self._known_in.get(topic) is route:
            return
        try:
            async with asyncio.timeout(timeout / 3):  # a sick broker shall not use up all of it
                routes = [route, *await self._reply_routes(route, timeout)]
                masters = {each.master(name): None for each in routes for name in each.brokers}
                await self._instance.greet(address for address in masters if address is not None)
        except TimeoutError:
            log.info("not every broker of topic %s may know this client yet", topic)
        self._known_in[topic] = route

    async def _reply_routes(self, route: TopicRoute, timeout: float) -> list[TopicRoute]:
        routes = []
        for cluster in sorted({each for each in route.clusters.values() if each}):
            try:
                topic = reply_topic(cluster)
                routes.append(await self._instance.routes.get(topic, None, timeout=timeout))
            except MQError as error:
                log.info("replies may come through brokers that do not know us: %s", error)
        return routes
