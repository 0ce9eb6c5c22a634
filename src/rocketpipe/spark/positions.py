"""Where reading begins or ends in each queue, as options say it: offsets, times, or words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rocketpipe.errors import InvalidSetting
from rocketpipe.message import MessageQueue
from rocketpipe.spark.options import OptionParser, parse_object, wrong

EARLIEST, LATEST, GROUP, OFFSET, TIME = "earliest", "latest", "group", "offset", "time"
WORDS = (EARLIEST, LATEST, GROUP)
_SPECIAL = {-2: EARLIEST, -1: LATEST}  # as Spark's Kafka connector has them

_OFFSETS_FORM = 'JSON such as {"topic":{"broker":{"0":23}}}'
_QUEUES_FORM = 'JSON such as {"topic":{"broker":[0,1]}}'


class Position(NamedTuple):
    """A place in a queue."""

    kind: str  # one of the five above
    value: int = 0  # the offset, or the time in ms


@dataclass(frozen=True)
class Positions:
    """A place in every queue: in those that are named, and in the others."""

    others: Position
    by_queue: Mapping[MessageQueue, Position] = field(default_factory=dict)

    def of(self, queue: MessageQueue) -> Position:
        return self.by_queue.get(queue, self.others)

    @property
    def needs_group(self) -> bool:
        return self.others.kind == GROUP


def parse_positions(parser: OptionParser, side: str) -> Positions | None:
    """What the options of this side, `starting` or `ending`, say; None if they say nothing."""
    offsets, time = f"{side}Offsets", f"{side}Timestamp"
    times = f"{side}OffsetsByTimestamp"
    parser.at_most_one(offsets, time, times)
    timestamp_ms = parser.maybe_count(time, minimum=0)
    # Queues that JSON does not name are where the side's default is.
    default = Position(EARLIEST if side == "starting" else LATEST)
    if timestamp_ms is not None:
        return Positions(Position(TIME, timestamp_ms))
    given_times = parser.json_object(times)
    if given_times is not None:
        return Positions(default, _by_queue(times, given_times, _time))
    text = parser.text(offsets)
    if text is None:
        return None
    if text.lower() in WORDS:
        return Positions(Position(text.lower()))
    if not text.startswith("{"):
        raise wrong(offsets, text, f"{', '.join(WORDS)} or {_OFFSETS_FORM}")
    return Positions(default, _by_queue(offsets, parse_object(offsets, text), _offset))


def parse_queues(name: str, given: Mapping[str, Any]) -> tuple[MessageQueue, ...]:
    """The queues that JSON like `{"topic":{"broker":[0,1]}}` names."""
    queues = []
    for topic, brokers in given.items():
        for broker, ids in _object(name, brokers, _QUEUES_FORM).items():
            if not isinstance(ids, list) or not all(_is_whole(each) for each in ids):
                raise InvalidSetting(f"option {name}: {ids!r:.100} must be {_QUEUES_FORM}")
            queues += [MessageQueue(topic, broker, queue_id) for queue_id in ids]
    if not queues or len(set(queues)) < len(queues):
        raise InvalidSetting(f"option {name} names no queue, or one of them twice")
    return tuple(sorted(queues))


def _by_queue(name: str, given: Mapping[str, Any], read: Any) -> dict[MessageQueue, Position]:
    positions = {}
    for topic, brokers in given.items():
        for broker, queues in _object(name, brokers, _OFFSETS_FORM).items():
            for queue_id, value in _object(name, queues, _OFFSETS_FORM).items():
                if not (queue_id.isascii() and queue_id.isdigit()):
                    raise InvalidSetting(f"option {name}: {queue_id!r:.100} is no queue's number")
                positions[MessageQueue(topic, broker, int(queue_id))] = read(name, value)
    return positions


def _object(name: str, value: object, form: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidSetting(f"option {name}: {value!r:.100} must be {form}")
    return value


def _offset(name: str, value: object) -> Position:
    if type(value) is int and value in _SPECIAL:
        return Position(_SPECIAL[value])
    if not _is_whole(value):
        raise InvalidSetting(
            f"option {name}: {value!r:.100} must be an offset, -2 for earliest or -1 for latest"
        )
    return Position(OFFSET, value)  # type: ignore[arg-type]


def _time(name: str, value: object) -> Position:
    if not _is_whole(value):
        raise InvalidSetting(f"option {name}: {value!r:.100} must be a time in ms since 1970")
    return Position(TIME, value)  # type: ignore[arg-type]


def _is_whole(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63
