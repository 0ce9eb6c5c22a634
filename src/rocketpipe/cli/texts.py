"""What people type and read: moments, durations, permissions, queues, sizes."""

import argparse
import math
import re
from typing import NamedTuple

from rocketpipe.clock import SystemClock
from rocketpipe.message import MessageQueue
from rocketpipe.wire.bodies.route import Perm

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_SIZE = re.compile(r"(\d+)\s*(B|KB|MB|GB)?")
_SIZE_BITS = {"B": 0, "KB": 10, "MB": 20, "GB": 30}
_PERMS = {
    "rw": Perm.READ | Perm.WRITE,
    "r": Perm.READ,
    "w": Perm.WRITE,
}

TIME_HELP = "2026-11-16T18:00, 10m (ago), or milliseconds since 1970"


# Of arguments.


def seconds(text: str) -> float:
    """`1.5`, `500ms`, `10s`, `5m`, `2h`, `1d`."""
    match = _DURATION.fullmatch(text.strip())
    value = float(match[1]) * _UNITS[match[2] or "s"] if match else 0.0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: write 500ms, 10s, 5m or 2h")
    return value


def moment_ms(text: str) -> int:
    """A time, in ms: of day, of so long ago, or in ms already."""
    text = text.strip()
    if text.isdigit() and len(text) >= 10:  # fewer would be days after 1970 began
        return int(text)
    match = _DURATION.fullmatch(text)
    if match and match[2]:
        return SystemClock().wall_ms() - round(seconds(text) * 1000)
    from datetime import datetime  # `serve` knows no moments, and starts faster

    try:
        return round(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: write {TIME_HELP}") from None


def pair(text: str) -> tuple[str, str]:
    """`KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: write KEY=VALUE")
    return key.strip(), value.strip()


def perm(text: str) -> Perm:
    try:
        return _PERMS[text.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{text!r}: write rw, r or w") from None


def count(text: str) -> int:
    """A whole number from 1."""
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def size(text: str) -> int:
    """Bytes: `1000`, `64KB`, `128MB`, `1GB`, in powers of 1024."""
    match = _SIZE.fullmatch(text.strip().upper())
    value = int(match[1]) << _SIZE_BITS[match[2] or "B"] if match else 0
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write 64KB, 128MB or 1GB")
    return value


def rate(text: str) -> float:
    """So many a second."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:  # nor is it nan
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate: write a number above 0")
    return value


class QueueName(NamedTuple):
    """A queue of a topic that is named elsewhere."""

    broker_name: str
    queue_id: int

    def of(self, topic: str) -> MessageQueue:
        return MessageQueue(topic, self.broker_name, self.queue_id)


def queue_name(text: str) -> QueueName:
    """`broker-a:0`."""
    broker_name, _, number = text.rpartition(":")
    if not broker_name or not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a queue: write BROKER:ID")
    return QueueName(broker_name, int(number))


# For people.


def show_time(time_ms: int | None) -> str:
    if time_ms is None or time_ms <= 0:
        return "-"
    from datetime import UTC, datetime

    local = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone()
    return local.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03d}"


def show_perm(value: Perm) -> str:
    letters = (("r", Perm.READ), ("w", Perm.WRITE), ("x", Perm.INHERIT))
    return "".join(letter for letter, bit in letters if value & bit) or "none"


def show_queue(queue: MessageQueue) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"


def harmless(text: str) -> str:
    """Without what would move a terminal's cursor or change its colours."""
    return "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in text)


def show_body(body: bytes) -> str:
    """The text of a body, or its bytes as hex digits."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{body.hex()}"
