"""Sending many messages: neighbours that may travel together are packed into batches."""

from collections.abc import Iterable, Iterator

from rocketpipe.client.checks import RETRY_PREFIX, is_delayed
from rocketpipe.client.replies import Reply
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.errors import MQError
from rocketpipe.message import Message, SendResult

MEMBER_BYTES = 200  # about what properties and lengths add to a body


def packs(messages: Iterable[Message], settings: ProducerSettings) -> Iterator[list[Message]]:
    """The messages, in order, cut into runs of those that may be a batch together."""
    pack: list[Message] = []
    size = 0
    for message in messages:
        alone = _goes_alone(message, settings)
        more = 0 if alone else len(message.body) + MEMBER_BYTES
        if pack and (
            alone
            or len(pack) >= settings.batch_messages_max
            or size + more > settings.batch_bytes_max
            or message.topic != pack[0].topic
            or message.wait_store_ok != pack[0].wait_store_ok
        ):
            yield pack
            pack, size = [], 0
        pack.append(message)
        size += more
        if alone:
            yield pack
            pack, size = [], 0
    if pack:
        yield pack


def _goes_alone(message: object, settings: ProducerSettings) -> bool:
    """Those no batch may hold, delayed ones and replies; and large ones: it can't compress them."""
    if (
        not isinstance(message, Message)
        or type(message.topic) is not str
        or type(message.body) is not bytes
    ):
        return True  # it gets its error later, in its place
    return (
        len(message.body) >= settings.compress_body_bytes_min
        or is_delayed(message)
        or isinstance(message, Reply)
        or message.topic.startswith(RETRY_PREFIX)
    )


def split_result(result: SendResult, count: int) -> list[SendResult | MQError]:
    """What a batch's result says of each of its messages."""
    ids = result.message_id.split(",")
    offset_ids = result.offset_message_id.split(",")
    if len(offset_ids) != count:  # an inner batch, which is one message to the broker
        offset_ids = [result.offset_message_id] * count
    # Not _replace, which takes twice as long: one of these is made for every message.
    status, _, _, queue, offset, *rest = result
    return [
        SendResult._make((status, message_id, offset_id, queue, queue_offset, *rest))
        for queue_offset, (message_id, offset_id) in enumerate(
            zip(ids, offset_ids, strict=True), offset
        )
    ]
