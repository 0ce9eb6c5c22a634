"""The routes a client has learnt: asked for when first needed, kept, and asked for anew."""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from rocketpipe.client.background import Background
from rocketpipe.client.name_servers import NameServers
from rocketpipe.client.route import TopicRoute, in_order, template_route, topic_route
from rocketpipe.client.shared_work import SharedWork
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError, MQError, NoNameServer, NoRoute, RequestTimeout
from rocketpipe.remoting.address import Address
from rocketpipe.wire.bodies.route import TopicRouteData
from rocketpipe.wire.requests.nameserver import GetRouteinfoByTopic

log = logging.getLogger(__name__)

REFRESH_PAUSE = 1.0  # between two looks at one topic because of failing brokers


class Template(NamedTuple):
    """What a topic that does not exist yet will be made after."""

    topic: str
    queue_nums_max: int


class Routes:
    """Routes by topic. A changed route replaces the old one, and a failed refresh keeps it."""

    def __init__(
        self,
        name_servers: NameServers,
        *,
        request_timeout: float,
        on_change: Callable[[TopicRoute], None],
    ) -> None:
        self._name_servers = name_servers
        self._request_timeout = request_timeout
        self._on_change = on_change
        self._routes: dict[str, TopicRoute] = {}
        self._templates: dict[str, Template] = {}
        self._lookups = SharedWork[str, TopicRoute]()
        self._next_look: dict[str, float] = {}
        self._background = Background()

    def find(self, topic: str) -> TopicRoute | None:
        """The route, if it is known already."""
        return self._routes.get(topic)

    async def get(self, topic: str, template: Template | None, *, timeout: float) -> TopicRoute:
        """The route, asked for if need be; NoRoute or NoNameServer when there is none."""
        return self._routes.get(topic) or await self.refresh(topic, template, timeout=timeout)

    async def refresh(self, topic: str, template: Template | None, *, timeout: float) -> TopicRoute:
        """The route as a NameServer has it now; all who ask at the same time ask once."""
        if template is not None:
            self._templates[topic] = template
        try:
            return await self._lookups.get(topic, lambda: self._look_up(topic), timeout)
        except TimeoutError:
            asked = ", ".join(self._name_servers.addresses)
            failure = RequestTimeout(asked, GetRouteinfoByTopic.code.name, timeout)
            raise NoNameServer(_question(topic), ((asked, failure),)) from None

    def refresh_soon(self, topic: str) -> None:
        """Look at it again, as its brokers fail; not more than once a second."""
        now = asyncio.get_running_loop().time()
        if now >= self._next_look.get(topic, now):
            self._next_look[topic] = now + REFRESH_PAUSE
            self._background.spawn(self.refresh(topic, None, timeout=self._request_timeout))

    async def refresh_all(self) -> None:
        for topic in list(self._routes):
            try:
                await self.refresh(topic, None, timeout=self._request_timeout)
            except MQError as error:
                log.info("kept the old route: %s", error)
                if isinstance(error, NoNameServer):
                    return  # it would be the same for all the others

    def address(self, broker_name: str, broker_id: int) -> Address | None:
        """Where a broker is, in whichever route it stands."""
        for route in self._routes.values():
            address = route.brokers.get(broker_name, {}).get(broker_id)
            if address is not None:
                return address
        return None

    def addresses(self) -> dict[Address, int]:
        """Every broker's address in any route, and its id there."""
        return {
            address: broker_id
            for route in self._routes.values()
            for broker in route.brokers.values()
            for broker_id, address in broker.items()
        }

    async def close(self) -> None:
        await self._lookups.close()
        await self._background.close()

    async def _look_up(self, topic: str) -> TopicRoute:
        data = await self._ask(topic)
        template = self._templates.get(topic)
        if data is None and template is not None:
            of_template = await self._ask(template.topic)
            data = of_template and template_route(of_template, template.queue_nums_max)
        if data is None:
            also = f", nor the template {template.topic!r}" if template else ""
            reason = f"the topic does not exist{also}"
            if topic not in self._routes:
                self._templates.pop(topic, None)  # or every misspelt name would stay
            raise NoRoute(topic, tuple(self._name_servers.addresses), reason)
        data = in_order(data)
        known = self._routes.get(topic)
        if known is not None and known.data == data:
            return known
        route = self._routes[topic] = topic_route(topic, data)
        log.info("route of %s: %d queues to write to", topic, len(route.publish_queues))
        self._on_change(route)
        return route

    async def _ask(self, topic: str) -> TopicRouteData | None:
        try:
            return await self._name_servers.ask(
                GetRouteinfoByTopic(topic=topic, accept_standard_json_only=True),
                question=_question(topic),
                timeout=self._request_timeout,
            )
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            raise


def _question(topic: str) -> str:
    return f"the route of topic {topic!r}"
