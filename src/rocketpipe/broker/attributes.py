"""Attributes of topics: which there are, and how an administrator changes them."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rocketpipe.wire.java_text import read_integer


class AttributeFault(Exception):
    """A change that can't be made, in Apache's words."""


class _Attribute(NamedTuple):
    is_changeable: bool  # once the topic exists
    verify: Callable[[str], None]


def change_attributes(
    current: Mapping[str, str], changes: str | None, *, is_new: bool
) -> dict[str, str]:
    """The attributes after changes like `+a=1,-b` (AttributeParser, AttributeUtil)."""
    changed = dict(current)
    for sign, name, value in _parse(changes or ""):
        if not name or "+" in name or "-" in name:
            raise AttributeFault("kv string format wrong.")
        if is_new and sign != "+":
            raise AttributeFault(
                f"only add attribute is supported while creating topic. key: {name}"
            )
        if sign == "-" and name not in current:
            raise AttributeFault(f"attempt to delete a nonexistent key: {name}")
        attribute = TOPIC_ATTRIBUTES.get(name)
        if attribute is None:
            raise AttributeFault(f"unsupported key: {name}")
        if not is_new and not attribute.is_changeable:
            raise AttributeFault(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "-":
            del changed[name]
        else:
            attribute.verify(value)
            changed[name] = value
    return changed


def _parse(changes: str) -> list[tuple[str, str, str]]:
    """Sign, name and value of each change."""
    parsed: dict[str, tuple[str, str, str]] = {}
    for change in changes.split(",") if changes else ():
        key, equals, value = change.partition("=")
        if equals and "+" not in key:
            raise AttributeFault(f"add/alter attribute format is wrong: {key}")
        if not equals and "-" not in key:
            raise AttributeFault(f"delete attribute format is wrong: {key}")
        if key in parsed:
            raise AttributeFault(f"key duplication: {key}")
        parsed[key] = (key[:1], key[1:], value)
    names = [name for _, name, _ in parsed.values()]
    for name in names:
        if names.count(name) > 1:
            raise AttributeFault(f"alter duplication key. key: {name}")
    return list(parsed.values())


def _one_of(*values: str) -> Callable[[str], None]:
    def verify(value: str) -> None:
        if value not in values:
            raise AttributeFault(f"value is not in set: [{', '.join(values)}]")

    return verify


def _reserve_time(value: str) -> None:
    try:
        is_in_range = read_integer(value, 64) >= -1
    except ValueError as error:
        raise AttributeFault(str(error)) from error
    if not is_in_range:
        raise AttributeFault("value is not in range(-1, 9223372036854775807)")


TOPIC_ATTRIBUTES: Mapping[str, _Attribute] = {
    "queue.type": _Attribute(False, _one_of("BatchCQ", "SimpleCQ")),
    "cleanup.policy": _Attribute(False, _one_of("DELETE", "COMPACTION")),
    "message.type": _Attribute(
        True,
        _one_of(
            "UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE", "MIXED"
        ),
    ),
    "reserve.time": _Attribute(True, _reserve_time),
}
