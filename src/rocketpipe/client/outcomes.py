"""What became of each of many messages."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

from rocketpipe.errors import MQError
from rocketpipe.message import SendResult

Outcome = SendResult | MQError

_UNKNOWN = MQError("not sent yet")  # nobody sees it


class SendOutcomes(Sequence[Outcome]):
    """A result or an error for each message, in order.

    Brokers answer for whole batches, and so they are kept here: a million results of their own
    would take longer to make than the batches take to send, and most are never looked at.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._packs: list[SendResult | list[Outcome]] = []  # one result for all of a pack, or each
        self._length = 0

    def expect(self, count: int) -> int:
        """There will be so many more, from one pack: its number, for `settle`."""
        self._starts.append(self._length)
        self._packs.append([_UNKNOWN] * count)
        self._length += count
        return len(self._packs) - 1

    def settle(self, pack: int, outcome: SendResult | list[Outcome]) -> None:
        """What became of a pack: one result for all of it, or one of each message."""
        self._packs[pack] = outcome

    def extend(self, more: "SendOutcomes") -> None:
        """Add what became of others, behind these."""
        self._starts += [self._length + start for start in more._starts]
        self._packs += more._packs
        self._length += len(more)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Outcome]:
        return chain.from_iterable(map(self._of_pack, range(len(self._packs))))

    @overload
    def __getitem__(self, index: int) -> Outcome: ...
    @overload
    def __getitem__(self, index: slice) -> list[Outcome]: ...
    def __getitem__(self, index: int | slice) -> Outcome | list[Outcome]:
        if isinstance(index, slice):
            return list(self)[index]
        place = range(self._length)[index]
        pack = bisect_right(self._starts, place) - 1
        return self._of_pack(pack)[place - self._starts[pack]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SendOutcomes | list) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SendOutcomes({list(self)!r})"

    def _of_pack(self, pack: int) -> list[Outcome]:
        outcome = self._packs[pack]
        if isinstance(outcome, list):
            return outcome
        following = self._starts[pack + 1 :][:1] or [self._length]
        return split_result(outcome, following[0] - self._starts[pack])


def split_result(result: SendResult, count: int) -> list[Outcome]:
    """What a batch's result says of each of its messages."""
    ids = result.message_id.split(",")
    offset_ids = result.offset_message_id.split(",")
    if len(offset_ids) != count:  # an inner batch, which is one message to the broker
        offset_ids = [result.offset_message_id] * count
    # Not _replace, which takes twice as long: one of these is made for every message.
    status, _, _, queue, offset, *rest = result
    return [
        SendResult._make((status, message_id, offset_id, queue, queue_offset, *rest))
        for queue_offset, (message_id, offset_id) in enumerate(
            zip(ids, offset_ids, strict=True), offset
        )
    ]
