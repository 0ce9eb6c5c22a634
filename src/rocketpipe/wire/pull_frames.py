"""The frames of many pulls from a queue: they differ in three numbers, the rest is encoded once."""

import struct
from dataclasses import replace

from rocketpipe.codes import request_name
from rocketpipe.wire.frame import SerializeType
from rocketpipe.wire.requests.reading import PullMessage
from rocketpipe.wire.signature import Credentials, signed_fields

_PREFIX = struct.Struct(">iI")
# Where the numbers stand. Within a text its quotes are escaped, so these are found nowhere else.
_OFFSET, _COUNT, _OPAQUE = b'"queueOffset":"%d"', b'"maxMsgNums":"%d"', b'"opaque":%d,'


_LONGEST = {_OFFSET: 0x7FFF_FFFF_FFFF_FFFF, _COUNT: 0x7FFF_FFFF, _OPAQUE: 0x7FFF_FFFF}


class PullFrames:
    def __init__(
        self,
        pull: PullMessage,
        *,
        serialize_type: SerializeType = SerializeType.JSON,
        credentials: Credentials | None = None,
    ) -> None:
        """`pull` is any of them; which messages it asks for does not matter.

        InvalidMessage if its filter is too long.
        """
        self.code = int(pull.code)
        self.name = request_name(self.code)
        self._pull = pull
        self._serialize_type = serialize_type
        self._credentials = credentials
        # A signature is of all fields, and of a binary header all is counted.
        is_plain = credentials is None and serialize_type == SerializeType.JSON
        self._header = self._make_header() if is_plain else None

    def encode(self, opaque: int, offset: int, messages_max: int) -> bytes:
        """The frame of a pull."""
        if self._header is None:
            return self._encode_anew(opaque, offset, messages_max)
        header = self._header % (offset, messages_max, opaque)
        return _PREFIX.pack(4 + len(header), len(header)) + header

    def _make_header(self) -> bytes:
        numbers = (_LONGEST[_OPAQUE], _LONGEST[_OFFSET], _LONGEST[_COUNT])
        header = self._encode_anew(*numbers)[_PREFIX.size :].replace(b"%", b"%%")
        for place, number in _LONGEST.items():
            assert header.count(place % number) == 1
            header = header.replace(place % number, place)
        return header

    def _encode_anew(self, opaque: int, offset: int, messages_max: int) -> bytes:
        pull = replace(self._pull, queue_offset=offset, max_msg_nums=messages_max)
        command = pull.to_command()
        command.opaque, command.serialize_type = opaque, self._serialize_type
        if self._credentials is not None:
            command.ext_fields = signed_fields(command.ext_fields, b"", self._credentials)
        return command.encode()
