"""Frames and commands: the outermost layer of the protocol, in both header serializations.

    length (4)  = everything after this field
    word (4)    = serialize type (1 byte), header length (3 bytes)
    header      = JSON, or RocketMQ's own binary form
    body        = whatever the command says

A peer answers in the serialization it likes, so every frame is read by its own type byte.
"""

import json
import struct
from collections.abc import Container, Mapping
from dataclasses import field
from enum import IntEnum
from json.encoder import encode_basestring as quote  # the C version where there is one

from rocketpipe.codes import PROTOCOL_VERSION, LanguageCode, request_name, response_name
from rocketpipe.compiled import PlainPull, PlainSend, Pull, compiled
from rocketpipe.errors import InvalidMessage, MalformedFrame
from rocketpipe.lazy_dataclass import dataclass

FRAME_BYTES_MAX = 16 * 1024 * 1024  # what Apache's servers and clients accept, length included

_RESPONSE = 1  # bits of the flag
_ONEWAY = 2


class SerializeType(IntEnum):
    JSON = 0
    ROCKETMQ = 1


# Members and names of enums take three times as long to get at as those of a module.
_JSON, _ROCKETMQ = SerializeType


@dataclass(slots=True)
class RemotingCommand:
    """A request or an answer: who means what by it is in `code`, `ext_fields` and `body`."""

    code: int
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    remark: str | None = None
    opaque: int = 0
    flag: int = 0
    language: LanguageCode = LanguageCode.PYTHON
    version: int = PROTOCOL_VERSION
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        return self.flag & _RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & _ONEWAY != 0

    @property
    def name(self) -> str:
        """RocketMQ's name of the code, for people."""
        return response_name(self.code) if self.is_response else request_name(self.code)

    def mark_oneway(self) -> None:
        self.flag |= _ONEWAY

    def answer(
        self,
        code: int,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> "RemotingCommand":
        """The response to this request, in its own serialization."""
        return RemotingCommand(
            code,
            ext_fields if ext_fields is not None else {},
            body,
            remark,
            self.opaque,
            _RESPONSE,
            serialize_type=self.serialize_type,
        )

    def encode(self) -> bytes:
        """The whole frame, its length included."""
        if compiled is not None and self.serialize_type == _JSON:
            frame = compiled.write_frame(
                self.code,
                self.flag,
                self.opaque,
                self.version,
                self.language._name_,
                self.remark,
                self.ext_fields,
                self.body,
            )
            if frame is not None:
                return frame
        if self.serialize_type == _ROCKETMQ and -32768 <= self.code <= 32767:
            header = _encode_binary(self)
            kind = _ROCKETMQ
        else:  # Codes beyond 16 bits (POP and its kin) exist in JSON only.
            header = _encode_json(self)
            kind = _JSON
        if len(header) > _HEADER_BYTES_MAX:
            raise InvalidMessage(f"{self.name}: a header of {len(header)} bytes is too long")
        body = self.body
        return b"".join(
            (
                _PREFIX.pack(4 + len(header) + len(body), kind << 24 | len(header)),
                header,
                body,
            )
        )

    @classmethod
    def decode(cls, frame: bytes) -> "RemotingCommand":
        """Read one frame as `FrameDecoder` yields it: without its length."""
        if len(frame) < 4:
            raise MalformedFrame(f"a frame of {len(frame)} bytes has no room for a header")
        kind = frame[0]
        header_end = 4 + int.from_bytes(frame[1:4], "big")
        if header_end > len(frame):
            raise MalformedFrame(
                f"a header of {header_end - 4} bytes does not fit a frame of {len(frame)} bytes"
            )
        if kind == _JSON:
            command = _decode_json(frame[4:header_end])
        elif kind == _ROCKETMQ:
            command = _decode_binary(frame[4:header_end])
        else:
            raise MalformedFrame(f"unknown serialize type {kind}")
        command.body = frame[header_end:]
        return command


class FrameDecoder:
    """Cuts a stream of bytes into frames, however the network split it."""

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._data: bytes | bytearray = b""
        self._start = 0  # what lies before it in the data has been taken

    def feed(self, data: bytes) -> None:
        if not self._data:  # the usual case: nothing is left from before
            self._data = data
        elif self._start == 0 and isinstance(self._data, bytearray):
            self._data += data  # a large frame grows piece by piece, without copying it each time
        else:
            self._data = bytearray(memoryview(self._data)[self._start :])
            self._data += data
        self._start = 0

    def next_frame(self) -> bytes | None:
        """The next whole frame, without its length, or None until more bytes come."""
        data, start = self._data, self._start
        if len(data) - start < 4:
            return None
        length = int.from_bytes(data[start : start + 4], "big")
        if not 4 <= length <= self._frame_bytes_max - 4:
            raise MalformedFrame(self._bad_length(length, bytes(data[start : start + 4])))
        end = start + 4 + length
        if end > len(data):
            return None
        self.take_to(end)
        return bytes(memoryview(data)[start + 4 : end])

    def next_command(self) -> RemotingCommand | None:
        """The command of the next whole frame, or None until more bytes come."""
        if compiled is not None and self._data:
            found = compiled.read_frame(self._data, self._start, self._frame_bytes_max)
            if found is not None:
                end, code, ext_fields, body, remark, opaque, flag, language, version = found
                self.take_to(end)
                named = _LANGUAGES.get(language, LanguageCode.OTHER)
                return RemotingCommand(
                    code, ext_fields, body, remark, opaque, flag, named, version, _JSON
                )
        frame = self.next_frame()
        return None if frame is None else RemotingCommand.decode(frame)

    def next_pull(self, expected: Container[int]) -> Pull | None:
        """What `compiled.read_pull` tells of the next frame, if that is a whole and plain answer to
        one of these pulls. What else it may be, `next_command` tells."""
        if compiled is None or not self._data:
            return None
        pull = compiled.read_pull(self._data, self._start, self._frame_bytes_max)
        if pull is None or pull[1] not in expected:
            return None
        self.take_to(pull[0])
        return pull

    def plain_pull(self) -> PlainPull | None:
        """What `compiled.read_pull_request` tells of the next frame, if that is such a whole one.

        It stays here until somebody takes it: `take_to` where it ends.
        """
        if compiled is None or not self._data:
            return None
        return compiled.read_pull_request(self._data, self._start, self._frame_bytes_max)

    def plain_sends(self, most: int, words: tuple[bytes, ...], suffix: bytes) -> list[PlainSend]:
        """What `compiled.read_sends` tells of the next whole frames, while they are plain sends.

        They stay here until somebody takes them: `take_to` where the last of them ends.
        """
        if compiled is None or not self._data:
            return []
        return compiled.read_sends(
            self._data, self._start, self._frame_bytes_max, most, words, suffix
        )

    def take_to(self, end: int) -> None:
        if end < len(self._data):
            self._start = end
        else:  # nothing is kept for a peer that may have no more to say
            self._data, self._start = b"", 0

    @property
    def has_partial_frame(self) -> bool:
        return len(self._data) > 0

    def _bad_length(self, length: int, start: bytes) -> str:
        if length < 4:
            return f"a frame of {length} bytes has no room for a header"
        hint = ""
        if start in (b"HTTP", b"GET ", b"POST", b"HEAD", b"PUT "):
            hint = ": this is HTTP, not RocketMQ"
        elif start[0] in (0x15, 0x16) and start[1] == 3:
            hint = ": this is TLS, and we speak plain"
        return f"a frame of {length + 4} bytes is over the limit of {self._frame_bytes_max}{hint}"


# The JSON header. Java writes its members in alphabetical order; so do we, byte for byte.

_read_json = json.JSONDecoder().raw_decode


def _encode_json(command: RemotingCommand) -> bytes:
    fields = ",".join([f"{quote(k)}:{quote(v)}" for k, v in command.ext_fields.items()])
    ext_fields = f'"extFields":{{{fields}}},' if fields else ""
    remark = "" if command.remark is None else f'"remark":{quote(command.remark)},'
    text = (
        f'{{"code":{int(command.code)},{ext_fields}"flag":{command.flag},'
        f'"language":"{command.language._name_}","opaque":{command.opaque},{remark}'
        f'"serializeTypeCurrentRPC":"JSON","version":{command.version}}}'
    )
    return text.encode("utf-8", "replace")  # as Java: a lone surrogate becomes a question mark


def _decode_json(header: bytes) -> RemotingCommand:
    try:
        text = header.decode("utf-8").strip()
        members, end = _read_json(text)
        # One look tells that nothing is escaped, as is usual.
        if "\\" in text and (
            "\\ud" in text or "\\uD" in text
        ):  # half a pair of surrogates could not be written again
            mended = json.dumps(members, ensure_ascii=False).encode("utf-8", "replace")
            members = json.loads(mended)
    except (ValueError, RecursionError) as error:
        raise MalformedFrame(f"broken JSON header: {error}") from error
    if type(members) is not dict or end != len(text):
        raise MalformedFrame("broken JSON header: it is not one object")
    get = members.get
    ext_fields = get("extFields")
    if ext_fields is None:
        ext_fields = {}
    elif type(ext_fields) is not dict:
        raise MalformedFrame("broken JSON header: extFields is not an object")
    else:
        for value in ext_fields.values():
            if type(value) is not str:
                ext_fields = _as_text(ext_fields)
                break
    remark = get("remark")
    if remark is not None and type(remark) is not str:
        raise MalformedFrame("broken JSON header: remark is not text")
    return RemotingCommand(
        _json_int(get("code", 0), "code"),
        ext_fields,
        b"",
        remark,
        _json_int(get("opaque", 0), "opaque"),
        _json_int(get("flag", 0), "flag"),
        _json_language(get("language")),
        _json_int(get("version", 0), "version"),
        _JSON,
    )


def _json_int(value: object, name: str) -> int:
    if type(value) is not int or not -0x80000000 <= value <= 0x7FFFFFFF:
        raise MalformedFrame(f"broken JSON header: {name} is {str(value)[:40]!r}, not a 32-bit int")
    return value


_LANGUAGES: Mapping[object, LanguageCode] = {
    **{language.name: language for language in LanguageCode},
    **{int(language): language for language in LanguageCode},
    None: LanguageCode.JAVA,  # as Java's decoder: who does not say is Java
}


def _json_language(value: object) -> LanguageCode:
    # Java accepts the name and the number, and takes a name it does not know without a word.
    try:
        return _LANGUAGES.get(value, LanguageCode.OTHER)
    except TypeError:  # a list or an object
        raise MalformedFrame("broken JSON header: language is neither name nor number") from None


def _as_text(fields: dict[str, object]) -> dict[str, str]:
    # Java's decoder turns numbers and booleans into text; a null is a field that is not there.
    texts = {}
    for name, value in fields.items():
        if isinstance(value, str):
            texts[name] = value
        elif value is not None:
            try:
                texts[name] = json.dumps(value)
            except (ValueError, RecursionError) as error:  # an int of thousands of digits
                raise MalformedFrame(f"broken JSON header: field {name!r}: {error}") from error
    return texts


# RocketMQ's binary header.

_HEADER_BYTES_MAX = 0xFFFFFF  # the length of either kind of header has 24 bits
_PREFIX = struct.Struct(">iI")
_FIXED = struct.Struct(">hBhii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">H")
_KEY_BYTES_MAX = 32767


def _encode_binary(command: RemotingCommand) -> bytes:
    parts: list[bytes] = []
    for name, value in command.ext_fields.items():
        key = name.encode("utf-8", "replace")
        text = value.encode("utf-8", "replace")
        if len(key) > _KEY_BYTES_MAX:
            raise InvalidMessage(f"the field name {name[:40]!r}... is too long")
        parts += (_SHORT.pack(len(key)), key, _INT.pack(len(text)), text)
    fields = b"".join(parts)
    remark = (command.remark or "").encode("utf-8", "replace")
    return b"".join(
        (
            _FIXED.pack(
                command.code, command.language, command.version, command.opaque, command.flag
            ),
            _INT.pack(len(remark)),
            remark,
            _INT.pack(len(fields)),
            fields,
        )
    )


def _decode_binary(header: bytes) -> RemotingCommand:
    try:
        code, language, version, opaque, flag = _FIXED.unpack_from(header)
        remark, at = _take(header, _FIXED.size, _INT)
        length = _INT.unpack_from(header, at)[0]
        at += 4
        if length < 0 or at + length != len(header):
            raise MalformedFrame(
                f"the header's fields should take {length} bytes, but {len(header) - at} are left"
            )
        ext_fields = {}
        while at < len(header):
            name, at = _take(header, at, _SHORT)
            value, at = _take(header, at, _INT)
            if value:  # as in Java, where nothing tells an empty value from a missing one
                ext_fields[name] = value
    except struct.error as error:
        raise MalformedFrame("the header ends in the middle of a field") from error
    except UnicodeDecodeError as error:
        raise MalformedFrame(f"a header field is not UTF-8: {error}") from error
    return RemotingCommand(
        code,
        ext_fields,
        b"",
        remark or None,
        opaque,
        flag,
        _LANGUAGES.get(language, LanguageCode.OTHER),
        version,
        SerializeType.ROCKETMQ,
    )


def _take(header: bytes, at: int, length_format: struct.Struct) -> tuple[str, int]:
    """The text at this place, after its length, and where it ends."""
    (length,) = length_format.unpack_from(header, at)
    start = at + length_format.size
    end = start + length
    if length < 0 or end > len(header):
        raise MalformedFrame("the header ends in the middle of a field")
    return header[start:end].decode("utf-8"), end
