"""The body of a batch: messages of one topic, one after another, without what they share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct

from rocketpipe.errors import InvalidMessage, MalformedRecord
from rocketpipe.wire.properties import decode_properties, encode_properties_bytes

_HEAD = Struct(">iiiii")  # total size, magic 0, CRC 0, flag, body length
_PROPERTIES_LENGTH = Struct(">h")
_MEMBER_BYTES_MIN = _HEAD.size + _PROPERTIES_LENGTH.size


@dataclass(frozen=True, slots=True)
class BatchMember:
    """One message of a batch. Its topic, sysFlag and birth are those of the whole batch."""

    body: bytes
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    flag: int = 0


def encode_batch(members: Iterable[BatchMember]) -> bytes:
    """The body that carries them (MessageDecoder.encodeMessages)."""
    parts: list[bytes] = []
    for member in members:
        properties = encode_properties_bytes(member.properties)
        body_length = len(member.body)
        size = _MEMBER_BYTES_MIN + body_length + len(properties)
        if not -(1 << 31) <= member.flag < 1 << 31:
            raise InvalidMessage(f"flag {member.flag} does not fit 32 bits")
        parts += (
            # The broker works out magic and CRC anew when it makes full records of them.
            _HEAD.pack(size, 0, 0, member.flag, body_length),
            member.body,
            _PROPERTIES_LENGTH.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch(data: bytes) -> list[BatchMember]:
    """Every member of a batch; MalformedRecord unless they fill it exactly."""
    members = []
    start = 0
    while start < len(data):
        if len(data) - start < _MEMBER_BYTES_MIN:
            raise MalformedRecord(f"{len(data) - start} stray bytes at {start} of a batch")
        # Like Java, no matter what stands in place of magic and CRC.
        size, _, _, flag, body_length = _HEAD.unpack_from(data, start)
        body_start = start + _HEAD.size
        body_end = body_start + body_length
        properties_start = body_end + _PROPERTIES_LENGTH.size
        end = start + size
        if body_length < 0 or not properties_start <= end <= len(data):
            raise MalformedRecord(f"batch member at {start}: sizes {size} and {body_length}")
        (properties_length,) = _PROPERTIES_LENGTH.unpack_from(data, body_end)
        if properties_start + properties_length != end:
            raise MalformedRecord(f"batch member at {start}: {properties_length} of properties")
        properties = decode_properties(str(data[properties_start:end], "utf-8", "replace"))
        members.append(BatchMember(bytes(data[body_start:body_end]), properties, flag))
        start = end
    return members
