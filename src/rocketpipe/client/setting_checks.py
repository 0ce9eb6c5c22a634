"""Whether a setting can be used: what can't be is refused by its name, with InvalidSetting."""

from math import inf
from types import UnionType

from rocketpipe.errors import InvalidSetting


def require_type(settings: object, allowed: type | UnionType, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, allowed):
            wanted = getattr(allowed, "__name__", allowed)
            # Without the value, which may be a secret.
            raise InvalidSetting(f"{name} is of type {type(value).__name__}: it must be {wanted}")


def require_positive(settings: object, *names: str) -> None:
    for name in names:
        check_seconds(name, getattr(settings, name))


def check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < inf:
        raise InvalidSetting(f"{name} is {value!r}: it must be a number of seconds above 0")


def require_count(settings: object, *names: str, minimum: int = 1) -> None:
    for name in names:
        value = getattr(settings, name)
        if type(value) is not int or value < minimum:
            raise InvalidSetting(f"{name} is {value!r}: it must be a whole number from {minimum}")
