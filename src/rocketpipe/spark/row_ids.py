"""The ids of rows: the same row of the same task has the same id, however often it is sent.

An id is 32 hex digits, as every producer's: 20 for the query, the batch and the partition, and 12
that count the rows. RocketMQ's tools take digits 21 to 28 for the milliseconds since the month
began, and look for a message from then on. There stand the upper digits of the row's number, nearly
always zeros: so they look from the month's first day on, and find it.
"""

import hashlib
import json

import numpy as np
import numpy.typing as npt

DIGITS = 32
_TASK_DIGITS = 20
_ROW_DIGITS = DIGITS - _TASK_DIGITS


def task_digits(*names: str | int) -> str:
    """What the ids of one task begin with, given what nothing but this task is called."""
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:_TASK_DIGITS].upper()


def ids_with_commas(task: str, first_row: int, count: int) -> npt.NDArray[np.uint8]:
    """The ids of so many rows from one on, a line for each, with a comma behind it."""
    lines = np.empty((count, DIGITS + 1), np.uint8)
    lines[:, :_TASK_DIGITS] = np.frombuffer(task.encode(), np.uint8)
    pairs = np.arange(first_row, first_row + count, dtype=">u8").view(np.uint8).reshape(count, 8)
    lines[:, _TASK_DIGITS:DIGITS] = _HEX[pairs[:, -_ROW_DIGITS // 2 :]].reshape(count, _ROW_DIGITS)
    lines[:, DIGITS] = ord(",")
    return lines


def row_of(message_id: str) -> int:
    """The number of the row that got this id."""
    return int(message_id[_TASK_DIGITS:], 16)


# The two digits of each byte.
_HEX = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint8).reshape(256, 2)
