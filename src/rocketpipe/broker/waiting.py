"""Which messages wait before they are delivered, and where: by their properties, as Apache has it.

A delay level puts a message into SCHEDULE_TOPIC_XXXX (`delays.py`), a time of its own into
rmq_sys_wheel_timer (`timers.py`); either keeps the real topic and queue as properties.
"""

from collections.abc import Mapping

from rocketpipe.broker.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rocketpipe.broker.settings import BrokerSettings
from rocketpipe.broker.store.values import MessageDraft, PutStatus
from rocketpipe.errors import MalformedData
from rocketpipe.wire.java_text import read_integer, write_bool
from rocketpipe.wire.properties import (
    DELAY,
    PROPERTIES_BYTES_MAX,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    decode_properties,
    encode_properties,
)

TIMED = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)

TIMER_PREFIX = "TIMER_DEL"  # of all three
# What is added to the properties of a timer when it is delivered must find room then.
DELIVERY_PROPERTIES_BYTES = 100

_DELAY_MARK = f"{DELAY}\x01"


class CanNotWait(Exception):
    """A message asks for a delay that it can't have."""

    def __init__(self, status: PutStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def may_wait(properties: str) -> bool:
    """A quick look, for there is one at every message: False if nothing in it asks for a delay."""
    return _DELAY_MARK in properties or TIMER_PREFIX in properties


def placed_to_wait(draft: MessageDraft, settings: BrokerSettings, now_ms: int) -> MessageDraft:
    """The draft in the place where it waits, or as it is; CanNotWait (handleScheduleMessage)."""
    properties = decode_properties(draft.properties)
    try:
        level = read_integer(properties.get(DELAY, "0"), 32)
    except ValueError as error:
        raise CanNotWait(PutStatus.MESSAGE_ILLEGAL, f"{DELAY}: {error}") from error
    if level > 0:
        for name in TIMED:  # a level wins over a time
            properties.pop(name, None)
        level = min(level, len(settings.store.delay_levels))
        properties[DELAY] = str(level)
        return _moved(draft, properties, SCHEDULE_TOPIC, level - 1)
    # What has a TIMER_OUT_MS has waited already: it comes from a consumer, say.
    if TIMER_OUT_MS in properties or properties.keys().isdisjoint(TIMED):
        return draft
    if not settings.timer_wheel_enable:
        raise CanNotWait(PutStatus.WHEEL_TIMER_NOT_ENABLE, "timers are not enabled")
    try:
        deliver_ms = _deliver_ms(properties, now_ms)
    except ValueError as error:
        raise CanNotWait(PutStatus.WHEEL_TIMER_MSG_ILLEGAL, str(error)) from error
    if deliver_ms <= now_ms:
        if TIMER_DEL_UNIQKEY in properties:
            raise CanNotWait(PutStatus.WHEEL_TIMER_MSG_ILLEGAL, "too late to take a message back")
        return draft
    if deliver_ms - now_ms > settings.timer_max_delay * 1000:
        raise CanNotWait(PutStatus.WHEEL_TIMER_MSG_ILLEGAL, "too far in the future")
    precision_ms = round(settings.store.timer_precision * 1000)
    # The slot that ends at the time or, if no slot does, the one in which the time is: at the end
    # of it the message is due.
    properties[TIMER_OUT_MS] = str((deliver_ms - 1) // precision_ms * precision_ms)
    timer = _moved(draft, properties, TIMER_TOPIC, 0)
    length = len(timer.properties.encode(errors="replace"))
    if length > PROPERTIES_BYTES_MAX - DELIVERY_PROPERTIES_BYTES:
        raise CanNotWait(PutStatus.MESSAGE_ILLEGAL, "properties: too long to be delivered")
    return timer


def timer_remark(status: PutStatus, settings: BrokerSettings) -> str | None:
    """Apache's words for a time that can't be had; None for all other reasons."""
    if status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL:
        return (
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{settings.timer_max_delay * 1000:.0f}ms; or if set del msg, the delay time should be "
            "bigger than the current time"
        )
    if status is PutStatus.WHEEL_TIMER_NOT_ENABLE:
        enabled = write_bool(settings.timer_wheel_enable)
        return f"accurate timer message is not enabled, timerWheelEnable is {enabled}"
    return None


def real_place(properties: Mapping[str, str]) -> tuple[str, int]:
    """The topic and the queue that a message waits to go to, or MalformedData."""
    topic = properties.get(REAL_TOPIC, "")
    try:
        queue_id = read_integer(properties.get(REAL_QID, ""), 32)
    except ValueError as error:
        raise MalformedData(f"{REAL_QID} of a message that waits: {error}") from error
    if not topic or topic == HALF_TOPIC or queue_id < 0:
        raise MalformedData(f"a message waits for queue {queue_id} of topic {topic!r}")
    return topic, queue_id


def _deliver_ms(properties: Mapping[str, str], now_ms: int) -> int:
    if text := properties.get(TIMER_DELAY_SEC):
        return now_ms + read_integer(text, 64) * 1000
    if text := properties.get(TIMER_DELAY_MS):
        return now_ms + read_integer(text, 64)
    return read_integer(properties[TIMER_DELIVER_MS], 64)


def _moved(
    draft: MessageDraft, properties: dict[str, str], topic: str, queue_id: int
) -> MessageDraft:
    properties |= {REAL_TOPIC: draft.topic, REAL_QID: str(draft.queue_id)}
    return draft._replace(topic=topic, queue_id=queue_id, properties=encode_properties(properties))
