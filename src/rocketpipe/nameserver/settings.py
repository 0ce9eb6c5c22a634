"""What can be set about a NameServer, by Apache's names in Python's spelling."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from rocketpipe.errors import InvalidSetting
from rocketpipe.lazy_dataclass import dataclass
from rocketpipe.wire.java_text import read_bool, read_integer, write_bool
from rocketpipe.wire.naming import wire_name

# Never to be changed from outside, whatever the setting of that name says.
_BLACK_LIST: Final = frozenset(
    {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
)
# The other settings of Apache's NamesrvConfig 5.5.0.
WITHOUT_EFFECT: Final = (
    "clientRequestThreadPoolNums",
    "clientRequestThreadPoolQueueCapacity",
    "clusterTest",
    "configStorePath",
    "defaultThreadPoolNums",
    "defaultThreadPoolQueueCapacity",
    "enableControllerInNamesrv",
    "kvConfigPath",
    "notifyMinBrokerIdChanged",
    "productEnvName",
    "rocketmqHome",
    "unRegisterBrokerQueueCapacity",
)
_IN_MILLISECONDS: Final = frozenset({"scan_not_active_broker_interval"})  # on the wire


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerSettings:
    """Apache's defaults; the limits are ours, as Apache's NameServer has none."""

    order_message_enable: bool = False  # routes tell the queues of ordered topics
    return_order_topic_config_to_broker: bool = True  # when it registers
    scan_not_active_broker_interval: float = 5.0
    support_acting_master: bool = False  # in routes, a slave may stand in for a lost master
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True  # by cluster, and those of units
    need_wait_for_service: bool = False  # give no routes until brokers had time to register
    wait_seconds_for_service: float = 45.0
    delete_topic_with_broker_registration: bool = False  # those that it no longer names
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
    kv_config_path: Path | None = None  # where the KV configuration outlives the process

    brokers_max: int = 1024  # each slave counts
    topics_max: int = 100_000  # once for each broker that has it; and queues of static topics
    kv_config_bytes_max: int = 8 * 1024 * 1024  # of all namespaces, keys and values

    def __post_init__(self) -> None:
        for name in ("scan_not_active_broker_interval", "wait_seconds_for_service"):
            seconds = getattr(self, name)
            if not isinstance(seconds, int | float) or not seconds > 0:
                raise InvalidSetting(f"{name} is {seconds!r}: it must be a number above 0")
        for name in ("brokers_max", "topics_max", "kv_config_bytes_max"):
            number = getattr(self, name)
            if type(number) is not int or number < 1:
                raise InvalidSetting(f"{name} is {number!r}: it must be a whole number above 0")

    def to_config(self) -> dict[str, str]:
        """The settings as the answer to 319 has them: Java's names and texts, in order."""
        config = {}
        for field in fields(self):
            match getattr(self, field.name):
                case bool(value):
                    config[wire_name(field.name, field.type)] = write_bool(value)
                case int(value) | float(value):
                    number = value * 1000 if field.name in _IN_MILLISECONDS else value
                    config[wire_name(field.name, field.type)] = f"{number:.0f}"
                case None:
                    pass
                case value:
                    config[wire_name(field.name, field.type)] = str(value)
        return dict(sorted(config.items()))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> "NameServerSettings":
        """Settings by RocketMQ's own names; InvalidSetting for one that is not known here."""
        known = {wire_name(field.name, field.type) for field in fields(cls)} - {"kvConfigPath"}
        for name in properties:
            if name not in known:
                raise InvalidSetting(f"{name} is not a setting of this NameServer")
        return cls().updated(properties)

    def updated(self, config: Mapping[str, str]) -> "NameServerSettings":
        """The settings after a 318. Names that we do not know are ignored, as Apache does."""
        changes: dict[str, Any] = {}
        for field in fields(self):
            name = wire_name(field.name, field.type)
            if name not in config:
                continue
            text = config[name].strip()
            try:
                match getattr(self, field.name):
                    case bool():
                        changes[field.name] = read_bool(text)
                    case int() | float():
                        number = read_integer(text, 32)
                        is_ms = field.name in _IN_MILLISECONDS
                        changes[field.name] = number / 1000 if is_ms else number
                    case _:
                        changes[field.name] = text
            except ValueError as error:
                raise InvalidSetting(f"{name} is {error}") from None
        return replace(self, **changes)

    def is_black_listed(self, name: str) -> bool:
        """Whether a 318 may not name it."""
        return name in _BLACK_LIST or name in self.config_black_list.split(";")
