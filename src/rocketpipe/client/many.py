"""Sending many messages: neighbours that may travel together are packed into batches."""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from operator import attrgetter
from typing import NamedTuple

from rocketpipe.client.checks import RETRY_PREFIX, is_delayed
from rocketpipe.client.replies import Reply
from rocketpipe.client.settings import ProducerSettings
from rocketpipe.message import Message

MEMBER_BYTES = 200  # about what properties and lengths add to a body

# Everything but the body. Neighbours that have it in common need to be looked at only once.
_shape = attrgetter(*(each.name for each in fields(Message) if each.name != "body"))


class Pack(NamedTuple):
    """Neighbours that may be a batch together."""

    messages: list[Message]
    alike: bool  # they differ in their bodies alone, which are bytes


def packs(messages: Iterable[Message], settings: ProducerSettings) -> Iterator[Pack]:
    """The messages, in order, cut into runs of those that may be a batch together."""
    count_max, bytes_max = settings.batch_messages_max, settings.batch_bytes_max
    body_bytes_max = settings.compress_body_bytes_min - 1
    pack: list[Message] = []
    size = 0
    shape = None  # of the first in the pack
    alike = True
    for message in messages:
        if (
            type(message) is Message
            and _shape(message) == shape
            and type(message.body) is bytes
            and len(message.body) <= body_bytes_max
        ):
            is_like_first, alone = True, False
        else:
            is_like_first, alone = False, _goes_alone(message, settings)
        more = 0 if alone else len(message.body) + MEMBER_BYTES
        if pack and (
            alone
            or len(pack) >= count_max
            or size + more > bytes_max
            or not (is_like_first or _may_go_together(message, pack[0]))
        ):
            yield Pack(pack, alike)
            pack, size, shape, alike = [], 0, None, True
        if alone:
            yield Pack([message], alike=False)
            continue
        if not pack:
            shape = _shape(message)
        elif not is_like_first:
            alike = False
        pack.append(message)
        size += more
    if pack:
        yield Pack(pack, alike)


def _may_go_together(one: Message, other: Message) -> bool:
    return one.topic == other.topic and one.wait_store_ok == other.wait_store_ok


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
