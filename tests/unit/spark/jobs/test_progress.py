"""How far a stream is behind, as its progress tells it."""

import json
from types import SimpleNamespace
from typing import Any

from rocketpipe.spark.jobs.progress import lag_of


def offsets(first: int, second: int) -> str:
    return json.dumps({"version": 1, "topics": {"orders": {"broker-a": {"0": first, "1": second}}}})


def progress(start: str | None, end: str, latest: str | None) -> Any:
    source = SimpleNamespace(startOffset=start, endOffset=end, latestOffset=latest)
    return SimpleNamespace(sources=[source])


def test_what_waited_before_a_micro_batch_and_what_is_left_after_it() -> None:
    told = progress(offsets(10, 20), offsets(15, 30), offsets(15, 37))
    assert lag_of(told) == 7
    assert lag_of(told, before=True) == 22


def test_before_the_first_all_waited() -> None:
    assert lag_of(progress(None, offsets(3, 4), offsets(3, 4)), before=True) == 7


def test_releases_that_do_not_tell_the_latest_offset_tell_no_lag() -> None:
    assert lag_of(progress(offsets(1, 1), offsets(2, 2), None)) is None
