"""Offsets of a stream, as Spark keeps them in its checkpoints: JSON, for years.

    {"version": 1, "topics": {"orders": {"broker-a": {"0": 23, "1": 17}}}}

Each offset is that of the next message to be read. Spark compares offsets as text, so everything
stands in a fixed order.
"""

from collections.abc import Mapping
from typing import Any

from rocketpipe.errors import InvalidSetting
from rocketpipe.message import MessageQueue

VERSION = 1

Offsets = dict[MessageQueue, int]


def to_json(offsets: Mapping[MessageQueue, int]) -> dict[str, Any]:
    """What `json.dumps` writes the same way for the same offsets."""
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        queues = topics.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})
        queues[str(queue.queue_id)] = offsets[queue]
    return {"version": VERSION, "topics": topics}


def from_json(value: Mapping[str, Any]) -> Offsets:
    """The offsets in a checkpoint; InvalidSetting when it is not one of ours, or a newer one."""
    version = value.get("version")
    if version != VERSION:
        raise InvalidSetting(
            f"the checkpoint holds offsets of version {version!r:.50}: this release of rocketpipe"
            f" reads version {VERSION}"
        )
    try:
        return {
            MessageQueue(topic, broker, int(queue_id)): int(offset)
            for topic, brokers in value["topics"].items()
            for broker, queues in brokers.items()
            for queue_id, offset in queues.items()
        }
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise InvalidSetting(f"the checkpoint holds no offsets of ours: {error!r}") from None
