"""Messages that a listener failed to consume: sent back to come again, or to the dead letters."""

import logging

from rocketpipe.client.consumer.pulling import broker_address
from rocketpipe.client.consumer.settings import CONCURRENT_RECONSUME_MAX, PushConsumerSettings
from rocketpipe.client.consumer.subscriptions import retry_topic
from rocketpipe.client.hooks import Hooks
from rocketpipe.client.instance import ClientInstance
from rocketpipe.client.outgoing import Packer
from rocketpipe.client.queue_choice import policy_settings
from rocketpipe.client.route import MASTER_ID
from rocketpipe.client.sender import Sender
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.errors import MQError
from rocketpipe.message import Message, MessageQueue, StoredMessage
from rocketpipe.wire import properties as names
from rocketpipe.wire.requests.sending import ConsumerSendMsgBack

log = logging.getLogger(__name__)

FIRST_DELAY_LEVEL = 3
SEND_TIMEOUT = 5.0
INT_MAX = (1 << 31) - 1


class SendBack:
    """Asks the broker that stored a message to store it again; if it can't, any broker will do."""

    def __init__(
        self, instance: ClientInstance, settings: PushConsumerSettings, group: str
    ) -> None:
        self._instance = instance
        self._group = group
        self._timeout = settings.request_timeout
        times = settings.max_reconsume_times
        if times is None:
            times = INT_MAX if settings.orderly else CONCURRENT_RECONSUME_MAX
        self.times_max = times
        client = settings.client_settings()
        own = {name: getattr(client, name) for name in client.__dataclass_fields__}
        # In Java's place, CLIENT_INNER_PRODUCER, ACL 1 would look for a right to the retry topic of
        # that group, which no reader has: so there Java's orderly consumers can't bury anything.
        inner = ProducerSettings(settings.consumer_group, **own)
        environment = instance.environment
        self._packer = Packer(inner, instance.new_message_id, environment.clock.wall_ms)
        policy = policy_settings(inner.policy).build(environment.dice)
        self._sender = Sender(inner, instance, policy, Hooks(()))

    async def send(self, queue: MessageQueue, message: StoredMessage, delay_level: int) -> None:
        """The message will come again, or is with the dead letters; MQError when neither."""
        request = ConsumerSendMsgBack(
            offset=message.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=message.topic,
            max_reconsume_times=self.times_max,
            broker_name=queue.broker_name,
        )
        try:
            address = await broker_address(self._instance, queue, MASTER_ID)
            await self._instance.connections.request(address, request, timeout=self._timeout)
        except MQError as error:
            log.warning("message %s could not be sent back: %s", message.message_id, error)
            await self.send_anew(message, delay_level)
        else:
            self._look_for_retries_at(queue.broker_name)

    def _look_for_retries_at(self, broker_name: str) -> None:
        """Know soon that they are there: each broker makes the topic when the group greets it, and
        a NameServer that was asked right then did not know of all yet."""
        topic = retry_topic(self._group)
        route = self._instance.routes.find(topic)
        if route is None or broker_name not in route.brokers:
            self._instance.routes.refresh_soon(topic)

    async def send_anew(self, message: StoredMessage, delay_level: int = 0) -> None:
        """The same as a message of our own to the retry topic, which any broker may take.

        Java's fallback (DefaultMQPushConsumerImpl.sendMessageBackAsNormalMessage): the broker moves
        it on to the dead letters when it came too often.
        """
        times = message.reconsume_times + 1
        properties = dict(message.properties)
        for name in (names.TRAN_MSG, names.DELAY):
            properties.pop(name, None)
        properties.setdefault(names.RETRY_TOPIC, message.topic)
        properties.setdefault(names.ORIGIN_MESSAGE_ID, message.offset_message_id)
        if delay_level < 0:
            # Without a delay: 4.9 would keep to it even on the way to the dead letters.
            times = max(times, self.times_max + 1)
        else:
            level = delay_level or FIRST_DELAY_LEVEL + message.reconsume_times
            properties[names.DELAY] = str(level)
        again = Message(retry_topic(self._group), message.body, flag=message.flag)
        outgoing = self._packer.pack(again, properties)
        counted = {"reconsume_times": times, "max_reconsume_times": self.times_max}
        outgoing = outgoing._replace(values=outgoing.values | counted)
        await self._sender.send(outgoing, None, timeout=SEND_TIMEOUT)
