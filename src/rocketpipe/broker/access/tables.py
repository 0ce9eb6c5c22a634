"""Reads the tables of a TOML file by kind: what is missing, wrong or unknown has a name and place.

No error tells a value, which may be a secret.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from rocketpipe.errors import InvalidSetting

E = TypeVar("E", bound=StrEnum)


class Table:
    """One table: each value is taken once, and `end` refuses what nobody took."""

    def __init__(self, place: str, content: Mapping[str, object]) -> None:
        self.place = place
        self._content = dict(content)

    def wrong(self, name: str, why: str) -> InvalidSetting:
        return InvalidSetting(f"{self.place}{name}: {why}")

    def text(self, name: str, default: str | None = None) -> str:
        value = self._content.pop(name, default)
        if not isinstance(value, str):
            raise self.wrong(name, "it is missing" if value is None else "it must be text")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._content.pop(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "it must be true or false")
        return value

    def texts(self, name: str) -> list[str]:
        values = self._content.pop(name, [])
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            raise self.wrong(name, "it must be a list of texts")
        return values

    def word(self, name: str, kind: type[E], default: E) -> E:
        return self._one_of(name, kind, self.text(name, default))

    def words(self, name: str, kind: type[E]) -> list[E]:
        return [self._one_of(name, kind, text) for text in self.texts(name)]

    def tables(self, name: str) -> list["Table"]:
        values = self._content.pop(name, [])
        if not isinstance(values, list) or not all(isinstance(each, dict) for each in values):
            raise self.wrong(name, f"it must be written as [[{name}]]")
        return [Table(f"{name}[{number}].", each) for number, each in enumerate(values, 1)]

    def end(self) -> None:
        if self._content:
            raise self.wrong(next(iter(self._content)), "it is not known here")

    def _one_of(self, name: str, kind: type[E], text: str) -> E:
        for each in kind:
            if each.lower() == text.strip().lower():
                return each
        raise self.wrong(name, f"it must be one of {', '.join(kind)}")
