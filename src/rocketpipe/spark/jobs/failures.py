"""What went wrong in Spark, in one line: our own error's text out of pages of Java and Python.

Spark hands errors of tasks and planners on as text. Ours are found there by their full name, with
which Python ends a traceback; of all others the innermost cause is told.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from rocketpipe.errors import JobError, MQError

TEXT_MAX = 600  # characters of a line

_OURS = re.compile(r"^\s*(?:.*Error: )?rocketpipe\.errors\.\w+: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Exit)): (.+)$", re.MULTILINE)
# Py4J puts what Java raised behind a colon, in a line of its own.
_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w.$]+\.)?([\w$]+)(?:: (.+))?$", re.MULTILINE)
_NOISE = re.compile(r"\s*SQLSTATE: \w{5}|^Query \[id = .*?\] terminated with exception: ")
_CONDITION = re.compile(r"^\[([A-Z_.]+)\] ", re.MULTILINE)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """What is raised inside comes out as an error of ours; ours stay as they are."""
    try:
        yield
    except MQError:
        raise
    except Exception as error:
        raise JobError(one_line(error)) from error


def one_line(error: BaseException) -> str:
    """What a person has to know."""
    text = _text(error)
    for pattern in (_DISK_FULL, _OURS):
        if found := pattern.findall(text):
            return _shortened(found[-1])
    if causes := _CAUSE.findall(text):
        kind, reason = causes[-1]
        return _shortened(f"{_without_condition(reason)} ({kind})" if reason else kind)
    if found_python := _PYTHON.findall(text):
        kind, reason = found_python[-1]
        return _shortened(f"{reason} ({kind.rpartition('.')[2]})")
    lines = [line for line in text.splitlines() if line.strip()]
    first = _without_condition(lines[0]) if lines else ""
    return _shortened(first or type(error).__name__)


_DISK_FULL = re.compile(
    r"^.*?((?:No space left on device|File too large|Disk quota exceeded).*)$", re.M
)


def _text(error: BaseException) -> str:
    """All that it says; Spark's errors carry Java's stack, in which causes are named."""
    text = str(error)
    java = getattr(error, "getStackTrace", None)
    if callable(java):
        try:
            text += "\n" + (java() or "")
        except Exception:  # Java is gone: its text has to do
            pass
    return text


def _without_condition(text: str) -> str:
    return _CONDITION.sub("", text)


def _shortened(text: str) -> str:
    text = " ".join(_NOISE.sub("", _without_condition(text)).split())
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "..."
