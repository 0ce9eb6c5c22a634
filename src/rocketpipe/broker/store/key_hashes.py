"""The key hashes of messages that come together, most of which differ in their ids' last digits.

To hash an id of 32 digits takes longer than anything else that is done for a message of a batch.
But its producer counts, and so one id differs from the next in the last four: all before them is
hashed once.
"""

from rocketpipe.broker.store.record_facts import key_hashes
from rocketpipe.wire.hashing import index_hash, java_string_hash
from rocketpipe.wire.properties import UNIQ_KEY

_MARK = f"{UNIQ_KEY}\x01".encode()
_ID_DIGITS = 32  # of a producer with an IPv4 address
_LAST_DIGITS = 4


class KeyHashes:
    """`of` says what `key_hashes` says, of one message of a topic after another."""

    __slots__ = ("_head", "_head_hash", "_others", "_start", "_sys_flag", "_tail", "_topic")

    def __init__(self, topic: str, sys_flag: int) -> None:
        self._topic = topic
        self._sys_flag = sys_flag
        # Of the message before: where the last digits of its id began, or 0 if it is not to be
        # compared with; what stood before and behind them; the hashes of what stood there.
        self._start = 0
        self._head = self._tail = b""
        self._head_hash = 0
        self._others: list[int] = []

    def of(self, properties: bytes) -> list[int]:
        start = self._start
        end = start + _LAST_DIGITS
        if start and properties[:start] == self._head and properties[end:] == self._tail:
            last = properties[start:end]
            if last.isalnum():
                one, two, three, four = last
                value = self._head_hash + one * 29791 + two * 961 + three * 31 + four
                return [index_hash(value), *self._others]
        hashes = key_hashes(self._topic, properties, self._sys_flag)
        self._start = 0
        if hashes:
            self._learn(properties, hashes)
        return hashes

    def _learn(self, properties: bytes, hashes: list[int]) -> None:
        """If all is as it should be with its id, the next message may be like this one."""
        place = properties.find(_MARK)
        first = place + len(_MARK)
        end = first + _ID_DIGITS
        if (
            properties.count(_MARK) == 1  # of several ids, the last one counts
            and (place == 0 or properties[place - 1] == 2)
            and properties[end : end + 1] == b"\x02"
            and properties[first:end].isalnum()
        ):
            self._start = end - _LAST_DIGITS
            self._head, self._tail = properties[: self._start], properties[end:]
            before = f"{self._topic}#{properties[first : self._start].decode()}"
            self._head_hash = java_string_hash(before) * 923521  # 31 to the fourth
            self._others = hashes[1:]
