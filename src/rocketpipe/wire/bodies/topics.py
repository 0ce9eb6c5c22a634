"""A broker's topics: as it keeps them, tells them to its slaves (21) and registers them (103)."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import field, replace
from enum import StrEnum
from typing import Final, Self

from rocketpipe.errors import MalformedBody
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.bodies.codec import Body
from rocketpipe.wire.bodies.route import Perm
from rocketpipe.wire.fastjson import dumps, loads

V5_0_0: Final = 413  # the ordinal of release 5.0.0 in a command's `version`
INFLATED_BYTES_MAX: Final = 64 * 1024 * 1024  # four times the largest frame


class TopicFilterType(StrEnum):
    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVersion(Body):
    """Tells whether a table has changed: two are the same table when all three are equal."""

    state_version: int = 0
    timestamp: int = 0  # of the last change, in ms
    counter: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig(Body):
    """A topic on one broker; also the answer to 351."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: Perm = Perm.READ | Perm.WRITE
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)

    def encode_line(self, *, with_attributes: bool = True) -> str:
        """The short form of a compressed registration; it has no room for `order` and sys flag."""
        line = (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm:d}"
            f" {self.topic_filter_type}"
        )
        return f"{line} {dumps(self.attributes).decode()}" if with_attributes else line

    @classmethod
    def decode_line(cls, line: bytes) -> Self:
        parts = line.split(b" ", 5)
        if len(parts) < 5:
            raise MalformedBody(f"a topic's line has {len(parts)} parts instead of 5 or 6")
        name, read, write, perm, filter_type, *attributes = parts
        return cls.from_json(
            {
                "topicName": _text(name),
                "readQueueNums": loads(read),
                "writeQueueNums": loads(write),
                "perm": loads(perm),
                "topicFilterType": _text(filter_type),
                "attributes": loads(attributes[0]) if any(attributes) else {},
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigList(Body):
    """The body of 18; attributes are changes here: `+name` with a value, or `-name`."""

    topic_config_list: tuple[TopicConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfigSerializeWrapper(Body):
    """All the topics of a broker: the answer to 21, and config/topics.json.

    The mappings belong to static topics, which 4.9 does not have.
    """

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_info_map: dict[str, object] = field(default_factory=dict)
    topic_queue_mapping_detail_map: dict[str, object] = field(default_factory=dict)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerBody(Body):
    """The body of 103. `encode` and `decode` are its plain form; a header tells which one it is."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper
    filter_server_list: tuple[str, ...] = ()

    def encode_compressed(self, *, version: int = V5_0_0) -> bytes:
        """The compressed form, as a broker of this version writes it.

        From 5.0 on there are attributes and mappings. A NameServer of 4.9 refuses a line that has
        attributes; one of 5.x looks for mappings if the command's version is 5.0 or later.
        """
        topics = self.topic_config_serialize_wrapper
        lines = [
            topic.encode_line(with_attributes=version >= V5_0_0).encode()
            for topic in topics.topic_config_table.values()
        ]
        parts = [
            _sized(topics.data_version.encode()),
            _counted(lines),
            _sized(dumps(self.filter_server_list)),
        ]
        if version >= V5_0_0:
            parts.append(_counted([*map(dumps, topics.topic_queue_mapping_info_map.values())]))
        return zlib.compress(b"".join(parts), 9)

    @classmethod
    def decode_compressed(cls, body: bytes) -> Self:
        """Read the compressed form, with mappings when there are any bytes left for them."""
        sections = _Sections(_inflate(body))
        data_version = DataVersion.decode(sections.sized())
        topics = [TopicConfig.decode_line(line) for line in sections.counted()]
        plain = cls.from_json(
            {"topicConfigSerializeWrapper": {}, "filterServerList": loads(sections.sized())}
        )
        mappings = [loads(mapping) for mapping in sections.counted()] if sections else []
        wrapper = TopicConfigSerializeWrapper(
            topic_config_table={topic.topic_name: topic for topic in topics},
            data_version=data_version,
            topic_queue_mapping_info_map={_topic_of(mapping): mapping for mapping in mappings},
        )
        return replace(plain, topic_config_serialize_wrapper=wrapper)


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"not UTF-8 at byte {error.start}") from error


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _counted(items: list[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(map(_sized, items))


class _Sections:
    """Reads the parts of an inflated body one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def __bool__(self) -> bool:
        return self._position < len(self._data)

    def sized(self) -> bytes:
        return self._take(self._number())

    def counted(self) -> Iterator[bytes]:
        for _ in range(self._number()):
            yield self.sized()

    def _number(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def _take(self, size: int) -> bytes:
        part = self._data[self._position : self._position + size] if size >= 0 else b""
        if len(part) != size:
            raise MalformedBody(f"{size} bytes are promised at byte {self._position}")
        self._position += size
        return part


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise MalformedBody(str(error)) from error
    if inflater.unconsumed_tail:
        raise MalformedBody(f"more than {INFLATED_BYTES_MAX} bytes when decompressed")
    if not inflater.eof:
        raise MalformedBody("the compressed data ends too early")
    return inflated


def _topic_of(mapping: object) -> str:
    topic = mapping.get("topic") if isinstance(mapping, dict) else None
    if not isinstance(topic, str):
        raise MalformedBody("a queue mapping without a topic")
    return topic
