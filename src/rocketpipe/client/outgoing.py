"""What goes out for a message or a batch, ready for any queue; the user's own is not touched."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rocketpipe.client.checks import check_batch, check_message, check_topic, is_delayed
from rocketpipe.client.encoded import Encoded
from rocketpipe.client.namespace import with_namespace
from rocketpipe.client.replies import Reply
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.errors import InvalidMessage
from rocketpipe.message import Message, MessageQueue
from rocketpipe.wire import properties as names
from rocketpipe.wire.batch import join_alike, join_batch
from rocketpipe.wire.compression import compress
from rocketpipe.wire.frame import RemotingCommand
from rocketpipe.wire.properties import (
    PROPERTIES_BYTES_MAX,
    encode_properties,
    encode_properties_bytes,
    message_properties,
)
from rocketpipe.wire.requests.sending import (
    SendBatchMessage,
    SendMessage,
    SendMessageV2,
    SendReplyMessageV2,
)
from rocketpipe.wire.sys_flag import COMPRESSED, TRANSACTION_PREPARED


class Outgoing(NamedTuple):
    """A tuple, since one is made for every message sent."""

    topic: str  # on the wire: with its namespace
    user_topic: str
    messages: Sequence[Message]
    message_id: str  # of a batch, all of them joined by commas
    body: bytes
    is_transaction: bool
    header: type[SendMessage]
    values: dict[str, Any]  # of the header, but for the queue's

    def request(self, queue: MessageQueue) -> SendMessage:
        """The header that sends it to this queue."""
        return self.header(**self.values, queue_id=queue.queue_id, broker_name=queue.broker_name)

    def command(self, queue: MessageQueue) -> RemotingCommand:
        """What goes to this queue: that header and the body, without the header being made."""
        queue_id, broker_name = queue.queue_id, queue.broker_name
        fields = self.header.ext_fields_of(
            **self.values, queue_id=queue_id, broker_name=broker_name
        )
        return RemotingCommand(self.header.code, fields, self.body)


class MessageIds(Protocol):
    """Gives every message an id of its own."""

    def __call__(self) -> str: ...

    def many(self, quantity: int) -> list[str]: ...


class Packer:
    """Makes messages ready to go, by the settings of one producer."""

    def __init__(
        self,
        settings: ProducerSettings,
        new_message_id: MessageIds,
        wall_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._group = with_namespace(settings.namespace, settings.producer_group)
        self._new_message_id = new_message_id
        self._wall_ms = wall_ms
        self._compression = settings.body_compression.sys_flag
        self._plain_properties: dict[bool, tuple[str, str]] = {}

    def pack(self, message: Message, extra: Mapping[str, str] | None = None) -> Outgoing:
        """One message, with properties of ours beside its own; InvalidMessage if it is not well."""
        settings = self._settings
        check_message(message, body_bytes_max=settings.message_bytes_max)
        header: type[SendMessage] = SendMessageV2
        if isinstance(message, Reply):
            header = SendReplyMessageV2
            extra = {**message.routing, **(extra or {})}
        body, sys_flag = self._compressed(message.body)
        if extra and names.TRAN_MSG in extra:  # users can't set it: the name is reserved
            sys_flag |= TRANSACTION_PREPARED
        message_id = self._new_message_id()
        return self._outgoing(
            header,
            message.topic,
            [message],
            message_id,
            body,
            self._properties(message, message_id, extra),
            sys_flag,
            flag=message.flag,
        )

    def pack_batch(self, messages: Sequence[Message], *, alike: bool = False) -> Outgoing:
        """Several messages of one topic as one; InvalidMessage if they can't be.

        To say that they differ in nothing but their bodies spares looking at each.
        """
        size_max = self._settings.message_bytes_max
        bodies = [message.body for message in messages]
        alike = alike and all(bodies) and len(max(bodies, key=len)) <= size_max
        to_check = messages[:1] if alike else messages
        for message in to_check:
            check_message(message, body_bytes_max=size_max)
        check_batch(to_check)
        ids = self._new_message_id.many(len(messages))
        if alike:
            before, _, after = self._properties(messages[0], ids[0]).partition(ids[0])
            body = join_alike(bodies, messages[0].flag, before.encode(), ids, after.encode())
        else:
            body = join_batch(
                (message.body, self._properties(message, message_id).encode(), message.flag)
                for message, message_id in zip(messages, ids, strict=True)
            )
        if len(body) > size_max:
            raise InvalidMessage(f"a batch of {len(body)} bytes; {size_max} are allowed")
        shared = encode_properties({names.WAIT: message_properties(messages[0])[names.WAIT]})
        return self._outgoing(
            SendBatchMessage,
            *(messages[0].topic, messages, ",".join(ids), body, shared, 0),
            batch=True,
        )

    def pack_encoded(self, encoded: Encoded) -> Outgoing:
        """What somebody else has encoded; its messages are taken for well, its size is not."""
        check_topic(encoded.topic)
        settings = self._settings
        body, sys_flag = encoded.body, 0
        if len(body) > settings.message_bytes_max:
            raise InvalidMessage(f"{len(body)} bytes; {settings.message_bytes_max} are allowed")
        if not encoded.is_batch:
            body, sys_flag = self._compressed(body)
        return self._outgoing(
            SendBatchMessage if encoded.is_batch else SendMessageV2,
            encoded.topic,
            encoded.messages,
            encoded.message_id,
            body,
            encoded.properties,
            sys_flag,
            batch=encoded.is_batch,
        )

    def _compressed(self, body: bytes) -> tuple[bytes, int]:
        """The body as it travels, and what sysFlag says of that. One that would not get smaller
        goes as it is: Java lets it grow, and brokers refuse it if it was as large as they allow."""
        if len(body) >= self._settings.compress_body_bytes_min:
            packed = compress(body, self._compression)
            if len(packed) < len(body):
                return packed, COMPRESSED | self._compression
        return body, 0

    def _properties(
        self, message: Message, message_id: str, extra: Mapping[str, str] | None = None
    ) -> str:
        """The string of all the properties a message travels with."""
        if (
            extra
            or message.tags
            or message.keys
            or message.properties
            or message.sharding_key
            or is_delayed(message)
        ):
            return self._all_properties(message, message_id, extra)
        # Most others differ by their ids alone: so the string is put together once, and the ids in
        # between. Properties were half of the cost of packing a batch.
        plain = self._plain_properties.get(message.wait_store_ok)
        if plain is None:
            head, _, tail = self._all_properties(message, "ID", None).partition("ID")
            plain = self._plain_properties[message.wait_store_ok] = head, tail
        return f"{plain[0]}{message_id}{plain[1]}"

    def _all_properties(
        self, message: Message, message_id: str, extra: Mapping[str, str] | None
    ) -> str:
        properties = message_properties(message)
        properties[names.UNIQ_KEY] = message_id
        if self._settings.namespace:
            properties[names.INSTANCE_ID] = self._settings.namespace
        if extra:
            properties.update(extra)
        text = encode_properties(properties)
        if len(text) > PROPERTIES_BYTES_MAX // 4 or not text.isascii():
            encode_properties_bytes(properties)  # says so if they are too long, or are not text
        return text

    def _outgoing(
        self,
        header: type[SendMessage],
        user_topic: str,
        messages: Sequence[Message],
        message_id: str,
        body: bytes,
        properties: str,
        sys_flag: int,
        *,
        flag: int = 0,
        batch: bool = False,
    ) -> Outgoing:
        settings = self._settings
        topic = user_topic
        # The topic of replies is the whole cluster's.
        if settings.namespace and header is not SendReplyMessageV2:
            topic = with_namespace(settings.namespace, topic)
            check_topic(topic)  # it got longer
        values = {
            "producer_group": self._group,
            "topic": topic,
            "default_topic": settings.create_topic_key,
            "default_topic_queue_nums": settings.default_topic_queue_nums,
            "sys_flag": sys_flag,
            "born_timestamp": self._wall_ms(),
            "flag": flag,
            "properties": properties,
            "reconsume_times": 0,
            "unit_mode": False,
            "batch": batch,
        }
        is_transaction = sys_flag & TRANSACTION_PREPARED != 0
        return Outgoing(
            topic, user_topic, messages, message_id, body, is_transaction, header, values
        )
