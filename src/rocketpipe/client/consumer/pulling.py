"""Pulling: one request for the messages of a queue from an offset on."""

from enum import Enum
from typing import NamedTuple

from rocketpipe.client.instance import ClientInstance
from rocketpipe.client.route import MASTER_ID, TopicRoute
from rocketpipe.codes import ResponseCode
from rocketpipe.errors import BrokerError, NoRoute, RemotingError
from rocketpipe.message import MessageQueue
from rocketpipe.remoting.address import Address
from rocketpipe.remoting.unanswered import PullWaiter
from rocketpipe.wire.bodies.heartbeat import SubscriptionData
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.pull_frames import PullFrames
from rocketpipe.wire.requests.reading import (
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    PullAnswer,
    PullMessage,
)

RESET = "OFFSET_RESET"  # the remark of a broker at which somebody has reset the group's offset


class PullStatus(Enum):
    """How a pull ended; in Java's words."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


_STATUSES = {int(status.value): status for status in PullStatus}


class Pulled(NamedTuple):
    """What a broker answered to a pull."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    body: bytes  # stored messages, as `wire.record` reads them
    remark: str  # the broker's own word for the status

    @property
    def is_reset(self) -> bool:
        """The group shall go on from another offset, because somebody wants it so."""
        return self.status is PullStatus.OFFSET_ILLEGAL and self.remark == RESET


class Puller:
    """Pulls for one group, from the master or from the slave that a broker suggested."""

    def __init__(self, instance: ClientInstance, group: str, *, timeout: float) -> None:
        self._instance = instance
        self._group = group
        self._timeout = timeout
        self._suggested: dict[MessageQueue, int] = {}  # broker ids

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: SubscriptionData,
        *,
        messages_max: int,
        suspend: float = 0.0,
        is_member: bool = False,
    ) -> Pulled:
        """The answer, which the broker may hold back for so long; MQError when there is none.

        The broker knows the subscription of a member of the group from its heartbeats.
        """
        request = self._request(queue, offset, subscription, messages_max, suspend, is_member)
        address = self._address(queue)
        if address is None:
            address = await broker_address(self._instance, queue, self._broker_id(queue))
        try:
            answer = await self._instance.connections.request(
                address, request, timeout=self._timeout
            )
        except BrokerError as error:
            if error.code == ResponseCode.GO_AWAY:
                leave(self._instance, address)
            raise
        except RemotingError:
            self._suggested.pop(queue, None)  # the master may do better
            self._instance.routes.refresh_soon(queue.topic)
            raise
        return self._pulled(queue, answer)

    def frames(self, queue: MessageQueue, subscription: SubscriptionData) -> PullFrames:
        """Of the pulls that `pull_nowait` sends."""
        settings = self._instance.settings
        return PullFrames(
            self._request(queue, 0, subscription, 0),
            serialize_type=settings.remoting.serialize_type,
            credentials=settings.credentials,
        )

    def pull_nowait(
        self,
        queue: MessageQueue,
        frames: PullFrames,
        offset: int,
        waiter: PullWaiter,
        *,
        messages_max: int,
    ) -> bool:
        """Send a pull, whose answer is for `read`; False if something has to be waited for before.

        A waiter who gets a plain answer as it was read tells `follow` which broker it suggests.
        """
        address = self._address(queue)
        connection = None if address is None else self._instance.connections.find(address)
        return connection is not None and connection.pull_nowait(
            frames, offset, messages_max, waiter, timeout=self._timeout
        )

    def read(self, queue: MessageQueue, answer: RemotingCommand) -> Pulled | None:
        """What it says; None when the broker refused."""
        if answer.code not in PullMessage.accepts:
            return None
        return self._pulled(queue, PullAnswer.from_answer(answer))

    def _request(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: SubscriptionData,
        messages_max: int,
        suspend: float = 0.0,
        is_member: bool = False,
    ) -> PullMessage:
        sys_flag = PULL_SUSPEND if suspend else 0
        return PullMessage(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=messages_max,
            sys_flag=sys_flag if is_member else sys_flag | PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=round(suspend * 1000),
            subscription=None if is_member else subscription.sub_string,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )

    def _pulled(self, queue: MessageQueue, answer: PullAnswer) -> Pulled:
        header = answer.header
        self.follow(queue, header.suggest_which_broker_id)
        return Pulled(
            _STATUSES[answer.code],
            header.next_begin_offset,
            header.min_offset,
            header.max_offset,
            answer.body,
            answer.remark or "",
        )

    def follow(self, queue: MessageQueue, broker_id: int) -> None:
        """Pull from this broker next."""
        if broker_id != MASTER_ID:
            self._suggested[queue] = broker_id
        elif self._suggested:
            self._suggested.pop(queue, None)

    def _broker_id(self, queue: MessageQueue) -> int:
        return self._suggested.get(queue, MASTER_ID) if self._suggested else MASTER_ID

    def _address(self, queue: MessageQueue) -> Address | None:
        """Where the queue can be read, as far as that is known already."""
        route = self._instance.routes.find(queue.topic)
        return None if route is None else _reader_of(route, queue, self._broker_id(queue))

    def forget(self, queue: MessageQueue) -> None:
        self._suggested.pop(queue, None)


async def broker_address(
    instance: ClientInstance, queue: MessageQueue, broker_id: int = MASTER_ID
) -> Address:
    """Where the queue can be read: at this broker if it is there, else at any of that name."""
    timeout = instance.settings.request_timeout
    for ask in (instance.routes.get, instance.routes.refresh):
        route = await ask(queue.topic, None, timeout=timeout)
        address = _reader_of(route, queue, broker_id)
        if address is not None:
            return address
    asked = tuple(instance.name_servers.addresses)
    raise NoRoute(queue.topic, asked, f"there is no broker {queue.broker_name!r}")


def _reader_of(route: TopicRoute, queue: MessageQueue, broker_id: int) -> Address | None:
    brokers = route.brokers.get(queue.broker_name)
    if not brokers:
        return None
    return brokers.get(broker_id) or brokers.get(MASTER_ID) or min(brokers.items())[1]


def leave(instance: ClientInstance, address: Address) -> None:
    """The broker is going away: the next request makes a new connection."""
    connection = instance.connections.find(address)
    if connection is not None:
        instance.connections.retire(connection)
