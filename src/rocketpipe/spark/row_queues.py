"""Rows that have to go to a certain queue: one that the row names, or that of its sharding key."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketpipe.client.selectors import queue_number
from rocketpipe.message import MessageQueue
from rocketpipe.spark.row_checks import refuse

Numbers = npt.NDArray[np.int64]

_NONE = -1


def queue_numbers(
    columns: dict[str, Any],
    topic: str,
    rows: Numbers,
    queues_of: Callable[[str], Sequence[MessageQueue]],
) -> tuple[Sequence[MessageQueue], Numbers]:
    """The topic's queues, and for each of its rows the number of its queue, or -1 for any."""
    by_key, named = _keyed(columns, rows), _named(columns, rows)
    is_keyed, is_named = np.asarray(pc.is_valid(by_key)), np.asarray(pc.is_valid(named[1]))
    refuse(is_keyed & is_named, "shardingKey and queueId: give one of them", rows)
    numbers = np.full(len(rows), _NONE, np.int64)
    if not is_keyed.any() and not is_named.any():
        return (), numbers
    queues = queues_of(topic)
    if is_keyed.any():
        keys = by_key.dictionary_encode()
        chosen = np.array([queue_number(key, len(queues)) for key in keys.dictionary.to_pylist()])
        numbers[is_keyed] = chosen[np.asarray(keys.indices.filter(is_keyed))]
    if is_named.any():
        place = {(each.broker_name, each.queue_id): n for n, each in enumerate(queues)}
        some = np.flatnonzero(is_named)
        names = list(
            zip(*(column.take(pa.array(some)).to_pylist() for column in named), strict=True)
        )
        numbers[some] = [place.get(name, _NONE) for name in names]
        refuse(
            numbers[some] == _NONE,
            lambda n: (
                f"topic {topic!r} has no queue {names[n][1]} of broker {names[n][0]!r} now: "
                f"brokers {', '.join(sorted({each.broker_name for each in queues}))} have some"
            ),
            rows[some],
        )
    return queues, numbers


def _keyed(columns: dict[str, Any], rows: Numbers) -> pa.StringArray:
    """The key of each row; null where there is none, or an empty one."""
    if "shardingKey" not in columns:
        return pa.nulls(len(rows), pa.string())
    keys = columns["shardingKey"].cast(pa.string()).take(pa.array(rows))
    return pc.if_else(pc.equal(keys, ""), None, keys)


def _named(columns: dict[str, Any], rows: Numbers) -> tuple[pa.StringArray, pa.Int64Array]:
    """The broker and the queue's id that each row names, or nulls."""
    if "queueId" not in columns:
        return pa.nulls(len(rows), pa.string()), pa.nulls(len(rows), pa.int64())
    brokers = columns["brokerName"].cast(pa.string()).take(pa.array(rows))
    ids = columns["queueId"].cast(pa.int64()).take(pa.array(rows))
    lacking = pc.xor(pc.is_null(brokers), pc.is_null(ids))
    refuse(lacking, "queueId and brokerName name a queue only together", rows)
    return brokers, ids
