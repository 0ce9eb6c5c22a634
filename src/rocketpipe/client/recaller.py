"""Recall: a timed message is taken back before it is delivered (RocketMQ 5.3.2 and later)."""

import asyncio

from rocketpipe.client.checks import RETRY_PREFIX, check_topic
from rocketpipe.client.hooks import Hooks, RecallContext
from rocketpipe.client.instance import ClientInstance
from rocketpipe.client.namespace import with_namespace
from rocketpipe.client.sender import DEFAULT_REGION
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.errors import BrokerError, InvalidMessage, MalformedRecord
from rocketpipe.wire.message_id import RecallHandle, parse_recall_handle
from rocketpipe.wire.requests.sending import RecallMessage

DLQ_PREFIX = "%DLQ%"


def checked_handle(topic: str, recall_handle: str, namespace: str | None) -> RecallHandle:
    """What a handle stands for; InvalidMessage unless it takes back a message of this topic."""
    if not isinstance(topic, str):
        raise InvalidMessage(f"topic {topic!r:.100} is not text")
    if not isinstance(recall_handle, str):  # the result of a send may have none
        raise InvalidMessage(
            f"recall handle {recall_handle!r:.100} is not text: only timed messages have one, from "
            "brokers of 5.3.2 or later"
        )
    check_topic(topic)
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise InvalidMessage(f"topic {topic!r}: nothing in it can be recalled")
    try:
        handle = parse_recall_handle(recall_handle)
    except MalformedRecord as error:
        raise InvalidMessage(str(error)) from error
    wire_topic = with_namespace(namespace, topic)
    if handle.topic != wire_topic:
        raise InvalidMessage(f"a recall handle of topic {handle.topic!r}, not of {wire_topic!r}")
    return handle


class Recaller:
    """Asks brokers to take messages back, for one producer."""

    def __init__(self, settings: ProducerSettings, instance: ClientInstance, hooks: Hooks) -> None:
        self._settings = settings
        self._instance = instance
        self._hooks = hooks

    async def recall(self, topic: str, recall_handle: str, *, timeout: float) -> str:
        """The id of the message that is taken back; BrokerError when its broker refuses."""
        namespace = self._settings.namespace
        handle = checked_handle(topic, recall_handle, namespace)
        now = asyncio.get_running_loop().time
        deadline = now() + timeout
        broker = await self._instance.master(handle.topic, handle.broker_name, timeout=timeout)
        request = RecallMessage(
            producer_group=with_namespace(namespace, self._settings.producer_group),
            topic=handle.topic,
            recall_handle=recall_handle,
            broker_name=handle.broker_name,
        )
        try:
            reply = await self._instance.connections.request(
                broker, request, timeout=deadline - now()
            )
        except BrokerError as error:
            self._tell(topic, handle, None, error)
            raise
        self._tell(topic, handle, reply.region_id, None)
        return reply.msg_id

    def _tell(
        self, topic: str, handle: RecallHandle, region_id: str | None, error: BrokerError | None
    ) -> None:
        context = RecallContext(
            producer_group=self._settings.producer_group,
            topic=topic,
            message_id=handle.unique_id,
            region_id=region_id or DEFAULT_REGION,
            error=error,
        )
        self._hooks.recalled(context)
