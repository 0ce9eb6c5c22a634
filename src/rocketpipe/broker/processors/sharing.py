"""Consumers that ask a broker which queues they shall read, and administrators who say how."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketpipe.broker.pop.sharing import share_queues
from rocketpipe.broker.processors.topics import refuse_on_slave
from rocketpipe.codes import RequestCode, ResponseCode
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.connection import Connection
from rocketpipe.remoting.dispatch import Handler, Refusal
from rocketpipe.wire.allocation import STRATEGIES
from rocketpipe.wire.bodies.groups import (
    GroupRequestMode,
    MessageQueueAssignment,
    QueryAssignmentAnswer,
    QueryAssignmentRequest,
)
from rocketpipe.wire.bodies.heartbeat import MessageModel
from rocketpipe.wire.bodies.route import Perm, TopicRouteData
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.pop_receipt import RETRY_PREFIX

if TYPE_CHECKING:
    from rocketpipe.broker.broker import Broker

log = logging.getLogger(__name__)

ROUTES_MAX = 10_000  # that are remembered
QUEUES_MAX = 1 << 16  # a route that speaks of more is damaged


def handlers(broker: "Broker") -> Mapping[int, Handler]:
    processor = _SharingProcessor(broker)
    return {
        RequestCode.QUERY_ASSIGNMENT: processor.query,
        RequestCode.SET_MESSAGE_REQUEST_MODE: processor.set_mode,
    }


class _SharingProcessor:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._settings = broker.settings
        self._modes = broker.pop.modes
        self._queues: dict[str, tuple[float, list[MessageQueue]]] = {}  # by topic, with when

    async def query(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        asked = QueryAssignmentRequest.decode(request.body)
        mode = self._modes.get(asked.topic, asked.consumer_group)
        share = self._share(asked, mode, await self._queues_of(asked.topic))
        assignments = None
        if share is not None:
            assignments = tuple(
                MessageQueueAssignment(message_queue=queue, mode=mode.mode) for queue in share
            )
        answer = QueryAssignmentAnswer(message_queue_assignments=assignments)
        return request.answer(ResponseCode.SUCCESS, body=answer.encode())

    def _share(
        self, asked: QueryAssignmentRequest, mode: GroupRequestMode, queues: list[MessageQueue]
    ) -> list[MessageQueue] | None:
        """None where nothing can be said: then a consumer keeps what it has."""
        if not queues:
            return None
        is_shared = asked.message_model is MessageModel.CLUSTERING
        if not is_shared or not self._settings.server_load_balancer_enable:
            return queues
        group = self._broker.clients.consumers.get(asked.consumer_group)
        allocate = STRATEGIES.get(asked.strategy_name or "")
        if group is None or allocate is None:
            log.info("no queues for %s: not there, or no strategy of ours", asked)
            return None
        client_ids = sorted({client.client_id for client in group.members.values()})
        return share_queues(allocate, mode, queues, client_ids, asked.client_id)

    async def _queues_of(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic on all brokers, sorted; as a NameServer said not long ago."""
        now = self._broker.clock.monotonic()
        since, queues = self._queues.get(topic, (0.0, []))
        if queues and now - since < self._settings.load_balance_poll_name_server_interval:
            return queues
        route = await self._broker.registration.route(topic)
        if route is None:
            return queues
        queues = _readable_queues(topic, route)
        if len(self._queues) >= ROUTES_MAX:
            self._queues.clear()
        self._queues[topic] = (now, queues)
        return queues

    async def set_mode(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        mode = GroupRequestMode.decode(request.body)
        refuse_on_slave(self._broker)
        if mode.topic.startswith(RETRY_PREFIX):
            raise Refusal(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if mode.topic not in self._broker.topics.table:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{mode.topic}] not exist")
        if self._broker.groups.find(mode.consumer_group) is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist"
            )
        self._modes.set(mode)
        await self._modes.saved.wait_saved()
        return request.answer(ResponseCode.SUCCESS)


def _readable_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    queues = sorted(
        MessageQueue(topic, each.broker_name, queue_id)
        for each in route.queue_datas
        if each.perm & Perm.READ
        for queue_id in range(min(each.read_queue_nums, QUEUES_MAX))
    )
    return queues[:QUEUES_MAX]
