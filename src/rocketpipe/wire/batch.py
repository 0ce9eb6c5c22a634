"""The body of a batch: messages of one topic, one after another, without what they share."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from struct import Struct

from rocketpipe.compiled import compiled
from rocketpipe.errors import InvalidMessage, MalformedRecord
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.properties import decode_properties, encode_properties_bytes

_HEAD = Struct(">iiiii")  # total size, magic 0, CRC 0, flag, body length
_PROPERTIES_LENGTH = Struct(">h")
_HEAD_BYTES, _PROPERTIES_LENGTH_BYTES = _HEAD.size, _PROPERTIES_LENGTH.size
_MEMBER_BYTES_MIN = _HEAD_BYTES + _PROPERTIES_LENGTH_BYTES


@dataclass(frozen=True, slots=True)
class BatchMember:
    """One message of a batch. Its topic, sysFlag and birth are those of the whole batch."""

    body: bytes
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    flag: int = 0


def encode_batch(members: Iterable[BatchMember]) -> bytes:
    """The body that carries them (MessageDecoder.encodeMessages)."""
    return join_batch(
        (each.body, encode_properties_bytes(each.properties), each.flag) for each in members
    )


def join_batch(members: Iterable[tuple[bytes, bytes, int]]) -> bytes:
    """The same from bodies, encoded properties and flags."""
    parts: list[bytes] = []
    for body, properties, flag in members:
        size = _MEMBER_BYTES_MIN + len(body) + len(properties)
        if not -(1 << 31) <= flag < 1 << 31:
            raise InvalidMessage(f"flag {flag} does not fit 32 bits")
        parts += (
            # The broker works out magic and CRC anew when it makes full records of them.
            _HEAD.pack(size, 0, 0, flag, len(body)),
            body,
            _PROPERTIES_LENGTH.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def join_alike(
    bodies: list[bytes], flag: int, before: bytes, ids: list[str], after: bytes
) -> bytes:
    """The same for members that share all but their bodies and ids, in a third of the time.

    The ids, of one length, stand in the properties between `before` and `after`.
    """
    if compiled is not None:
        batch = compiled.join_alike(bodies, flag, before, ids, after)
        if batch is not None:
            return batch
    encoded_ids = ",".join(ids).encode().split(b",")
    length = len(before) + len(encoded_ids[0]) + len(after)
    between = _PROPERTIES_LENGTH.pack(length) + before
    size = _MEMBER_BYTES_MIN + length
    heads = {each: _HEAD.pack(size + each, 0, 0, flag, each) for each in set(map(len, bodies))}
    parts: list[bytes] = []
    for body, message_id in zip(bodies, encoded_ids, strict=True):
        parts += (heads[len(body)], body, between, message_id, after)
    return b"".join(parts)


def decode_batch(data: bytes) -> list[BatchMember]:
    """Every member of a batch; MalformedRecord unless they fill it exactly."""
    return [
        BatchMember(body, decode_properties(str(properties, "utf-8", "replace")), flag)
        for flag, body, properties in split_batch(data)
    ]


def split_batch(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """Flag, body and encoded properties of every member; MalformedRecord as `decode_batch`."""
    members = []
    data_end = len(data)
    start = 0
    while start < data_end:
        if data_end - start < _MEMBER_BYTES_MIN:
            raise MalformedRecord(f"{data_end - start} stray bytes at {start} of a batch")
        # Like Java, no matter what stands in place of magic and CRC.
        size, _, _, flag, body_length = _HEAD.unpack_from(data, start)
        body_end = start + _HEAD_BYTES + body_length
        properties_start = body_end + _PROPERTIES_LENGTH_BYTES
        end = start + size
        if body_length < 0 or not properties_start <= end <= data_end:
            raise MalformedRecord(f"batch member at {start}: sizes {size} and {body_length}")
        (properties_length,) = _PROPERTIES_LENGTH.unpack_from(data, body_end)
        if properties_start + properties_length != end:
            raise MalformedRecord(f"batch member at {start}: {properties_length} of properties")
        members.append((flag, data[start + _HEAD_BYTES : body_end], data[properties_start:end]))
        start = end
    return members
