"""What an archive knows about its table, and which of its files are to be published when."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OpenFile:
    """A file that waits to be published."""

    name: str  # in the folder `open`
    partition: str  # where its rows belong: topic=.../date=...
    size: int
    since_ms: int


@dataclass(frozen=True)
class State:
    """All that an archive knows about its table."""

    number: int
    settings: dict[str, Any]
    query: str | None = None  # the id of the streaming query whose batches are counted
    batch: int = -1
    archived: int = 0
    quarantined: int = 0
    published: int = 0  # files
    waiting: tuple[OpenFile, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()  # to be done: from `open` to a place in the table
    obsolete: tuple[str, ...] = ()  # to be deleted in `open`: they were joined into others

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "State":
        return cls(
            **{
                **value,
                "waiting": tuple(OpenFile(**each) for each in value["waiting"]),
                "moves": tuple((source, target) for source, target in value["moves"]),
                "obsolete": tuple(value["obsolete"]),
            }
        )


@dataclass(frozen=True)
class Merge:
    """Files of one partition that become one; a single file is only moved."""

    partition: str
    files: tuple[OpenFile, ...]


def plan_merges(
    waiting: Sequence[OpenFile], *, file_bytes: int, until_ms: int | None
) -> list[Merge]:
    """What is to be published now: partitions with enough to fill a file, and those with a file
    from before `until_ms`; everything if that is None."""
    partitions: defaultdict[str, list[OpenFile]] = defaultdict(list)
    for each in waiting:
        partitions[each.partition].append(each)
    merges = []
    for partition, files in sorted(partitions.items()):
        is_old = until_ms is None or min(each.since_ms for each in files) <= until_ms
        if not is_old and sum(each.size for each in files) < file_bytes:
            continue
        some: list[OpenFile] = []
        for each in files:
            if each.size >= file_bytes // 2:  # nothing is won by writing it again
                merges.append(Merge(partition, (each,)))
                continue
            some.append(each)
            if sum(one.size for one in some) >= file_bytes:
                merges.append(Merge(partition, tuple(some)))
                some = []
        if some:
            merges.append(Merge(partition, tuple(some)))
    return merges
