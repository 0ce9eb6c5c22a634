"""The ids of rows: the same row of the same task has the same id, however often it is sent.

An id is 32 hex digits, as every producer's: 20 for the query, the batch and the partition, and 12
that count the rows. RocketMQ's tools take digits 21 to 28 for the milliseconds since the month
began, and look for a message from then on. There stand the upper digits of the row's number, always
zeros: so they look from the month's first day on, and find it.

One row of a task announces all others of its topic (`client.bulk`): the first that is not delayed.
Most often it is row 0; else each row says which one it is, as a property. A delayed row comes to
its topic when nobody knows, so it stands for itself.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

DIGITS = 32
TASK_DIGITS = 20
FIRST_ROW = "SPARK_FIRST_ROW"  # the property
ROWS_MAX = 1 << 32
_ROW_DIGITS = DIGITS - TASK_DIGITS


def task_digits(*names: str | int) -> str:
    """What the ids of one task begin with, given what nothing but this task is called."""
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:TASK_DIGITS].upper()


def ids_with_commas(task: str, first_row: int, count: int) -> npt.NDArray[np.uint8]:
    """The ids of so many rows from one on, a line for each, with a comma behind it."""
    begins = np.frombuffer(task.encode(), np.uint8)
    return _lines(begins, np.arange(first_row, first_row + count, dtype=">u8"))


def ids_of_rows(tasks: Sequence[str], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """The same for rows that are not one task's, nor without gaps."""
    begins = np.frombuffer("".join(tasks).encode(), np.uint8).reshape(len(tasks), TASK_DIGITS)
    return _lines(begins, rows.astype(">u8"))


def _lines(begins: npt.NDArray[np.uint8], rows: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    count = len(rows)
    lines = np.empty((count, DIGITS + 1), np.uint8)
    lines[:, :TASK_DIGITS] = begins
    pairs = rows.view(np.uint8).reshape(count, 8)
    lines[:, TASK_DIGITS:DIGITS] = _HEX[pairs[:, -_ROW_DIGITS // 2 :]].reshape(count, _ROW_DIGITS)
    lines[:, DIGITS] = ord(",")
    return lines


def row_id(task: str, row: int) -> str:
    """The id of one row."""
    return f"{task}{row:0{_ROW_DIGITS}X}"


def row_of(message_id: str) -> int:
    """The number of the row that got this id."""
    return int(message_id[TASK_DIGITS:], 16)


# The two digits of each byte.
_HEX = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint8).reshape(256, 2)
