"""What a row may hold: each rule looks at a whole column, and an error names the first bad row."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketpipe.client.checks import check_topic
from rocketpipe.errors import InvalidMessage
from rocketpipe.spark.row_ids import FIRST_ROW
from rocketpipe.wire.properties import RESERVED_NAMES

# What Python calls a space, in RE2's words.
_SPACE = r"[\s\v\x1c-\x1f\x{85}\p{Z}]"
_RESERVED = pa.array(sorted({*RESERVED_NAMES, FIRST_ROW}), pa.string())

Rows = npt.NDArray[np.int64]  # in which row each value of a column stands


class InvalidRow(Exception):
    """A row of a batch that can't be a message, by its place there."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason


def refuse(bad: Any, reason: str | Callable[[int], str], rows: Rows | None = None) -> None:
    """InvalidRow where `bad`, a mask over a column's values, is true for the first time.

    The reason may depend on the value's place in the column.
    """
    mask = np.asarray(bad.fill_null(False)) if isinstance(bad, pa.Array) else bad
    if mask.any():
        place = int(mask.argmax())
        text = reason if isinstance(reason, str) else reason(place)
        raise InvalidRow(place if rows is None else int(rows[place]), text)


def check_text(what: str, texts: pa.StringArray, rows: Rows | None = None) -> None:
    """Whatever is to stand in a property string."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        refuse(np.array([not _is_utf8(each) for each in texts]), f"{what} is not UTF-8", rows)
    # Nothing in a property string is escaped, and this ends a property.
    refuse(
        pc.match_substring(texts, "\x02"),
        lambda n: f"{what} {texts[n].as_py()!r:.100} contains 0x02",
        rows,
    )


def check_keys(keys: pa.StringArray, rows: Rows | None = None) -> None:
    check_text("a key", keys, rows)
    refuse(
        pc.or_(pc.equal(keys, ""), pc.match_substring_regex(keys, _SPACE)),
        lambda n: f"key {keys[n].as_py()!r:.100}: a key is not empty and has no blanks",
        rows,
    )


def check_properties(names: pa.StringArray, values: pa.StringArray, rows: Rows) -> None:
    def name(n: int) -> str:
        return f"property {names[n].as_py()!r:.100}"

    refuse(pc.is_null(values), lambda n: f"{name(n)} is null", rows)
    check_text("the name of a property", names, rows)
    check_text("a property", values, rows)
    blank = pc.or_(_is_blank(names), _is_blank(values))
    refuse(blank, lambda n: f"{name(n)}: neither name nor value may be blank", rows)
    refuse(pc.match_substring(names, "\x01"), lambda n: f"{name(n)} has 0x01 in its name", rows)
    reserved = pc.is_in(names, value_set=_RESERVED)
    refuse(reserved, lambda n: f"{name(n)} is RocketMQ's own, or ours: choose another name", rows)


def check_topics(topics: list[str], rows: Rows) -> None:
    """Each of the topics that there are, and the first row that has it."""
    for topic, row in zip(topics, rows.tolist(), strict=True):
        try:
            check_topic(topic)
        except InvalidMessage as error:
            raise InvalidRow(row, str(error)) from None


def _is_blank(texts: pa.StringArray) -> pa.BooleanArray:
    return pc.or_(pc.equal(texts, ""), pc.utf8_is_space(texts))


def _is_utf8(text: pa.StringScalar) -> bool:
    try:
        text.as_py()
    except UnicodeDecodeError:
        return False
    return True
