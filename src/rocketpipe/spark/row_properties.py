"""What the columns of rows add to the properties of their messages, all rows at once."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketpipe.spark.row_checks import check_keys, check_properties, check_text, refuse
from rocketpipe.wire import properties as names

_INT_MAX = (1 << 31) - 1

Columns = dict[str, Any]  # Arrow arrays, by name


def row_properties(columns: Columns) -> tuple[pa.BinaryArray | None, npt.NDArray[np.bool_]]:
    """What the columns add to each row's properties, and which rows are delayed."""
    count = len(columns["body"])
    parts = []
    if "tags" in columns:
        parts.append(_text_property("tags", names.TAGS, columns["tags"]))
    if "keys" in columns:
        parts.append(_property(names.KEYS, _keys(columns["keys"])))
    if "shardingKey" in columns:
        parts.append(_text_property("the sharding key", names.SHARDING_KEY, columns["shardingKey"]))
    is_delayed = np.zeros(count, np.bool_)
    if "delayLevel" in columns or "deliverAt" in columns:
        level, deliver_at = _delay_level(columns, count), _deliver_at_ms(columns, count)
        has_level, has_time = np.asarray(level.is_valid()), np.asarray(deliver_at.is_valid())
        refuse(has_level & has_time, "delayLevel and deliverAt: give one of them")
        is_delayed = has_level | has_time
        parts.append(_property(names.DELAY, level.cast(pa.string())))
        parts.append(_property(names.TIMER_DELIVER_MS, deliver_at.cast(pa.string())))
    if "properties" in columns:
        parts.append(_user_properties(columns["properties"]))
    return (join(*parts) if parts else None), is_delayed


def _text_property(what: str, name: str, column: Any) -> pa.BinaryArray:
    texts = as_type(column, pa.string())
    check_text(what, texts)
    return _property(name, texts)


def _property(name: str, values: pa.StringArray) -> pa.BinaryArray:
    """Null where there is no value: an empty text is none."""
    values = pc.if_else(pc.equal(values, ""), None, values)
    return pc.binary_join_element_wise(f"{name}\x01", values, "\x02", "").cast(pa.binary())


def _keys(column: Any) -> pa.StringArray:
    if not pa.types.is_nested(column.type):
        texts = as_type(column, pa.string())
        check_keys(texts)
        return texts
    lists = column.cast(pa.list_(pa.string()))
    keys, rows = lists.flatten(), np.asarray(pc.list_parent_indices(lists)).astype(np.int64)
    refuse(pc.is_null(keys), "a key is null", rows)
    check_keys(keys, rows)
    return pc.binary_join(lists, " ")


def _user_properties(column: Any) -> pa.BinaryArray:
    # As a list of pairs: pyarrow flattens that with regard to nulls and slices.
    pairs = column.cast(pa.map_(pa.string(), pa.string())).cast(
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    )
    flat, rows = pairs.flatten(), np.asarray(pc.list_parent_indices(pairs)).astype(np.int64)
    property_names, values = flat.field("key"), flat.field("value")
    check_properties(property_names, values, rows)
    texts = pc.binary_join_element_wise(property_names, "\x01", values, "\x02", "")
    ends = np.cumsum(np.bincount(rows, minlength=len(column)))
    offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(offsets, texts), "").cast(pa.binary())


def _delay_level(columns: Columns, count: int) -> pa.Int64Array:
    """Null where there is none: 0 is at once."""
    if "delayLevel" not in columns:
        return pa.nulls(count, pa.int64())
    levels = columns["delayLevel"].cast(pa.int64())
    refuse(
        pc.or_(pc.less(levels, 0), pc.greater(levels, _INT_MAX)),
        lambda n: f"delayLevel {levels[n]}: levels start at 1; 0 is at once",
    )
    return pc.if_else(pc.equal(levels, 0), None, levels)


def _deliver_at_ms(columns: Columns, count: int) -> pa.Int64Array:
    if "deliverAt" not in columns:
        return pa.nulls(count, pa.int64())
    times = columns["deliverAt"].cast(pa.timestamp("us", columns["deliverAt"].type.tz))
    microseconds = times.cast(pa.int64())
    refuse(pc.less(microseconds, 0), lambda n: f"deliverAt {times[n]}: it is before 1970")
    return pc.divide(microseconds, 1000)


def join(*parts: pa.BinaryArray | bytes) -> pa.BinaryArray:
    """The columns one behind the other, row by row; a null is nothing."""
    return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")


def as_type(column: Any, kind: Any) -> Any:
    """Spark has other types for long columns, if it is set so."""
    return column if column.type == kind else column.cast(kind)
