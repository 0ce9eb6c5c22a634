"""The words of a filter: what stands in it, one after another, looked at no further than needed.

Apache's parser ends where nothing fits any more and never sees what is behind. So neither may we:
`a = 1 #` is an error, for the word after a condition is looked at, and `a = 1 b #` is none.
"""

import re
from typing import NamedTuple

from rocketpipe.errors import InvalidSetting

END = "<EOF>"
WORD, STRING, DECIMAL, FLOAT = "word", "string", "decimal", "float"

_KEYWORDS = frozenset(
    {
        *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"),
        *("CONTAINS", "STARTSWITH", "ENDSWITH"),
    }
)
# Where several fit, the longest wins in Apache's, so longer ones stand first here.
_TOKEN = re.compile(
    r"""
    (?P<skipped> [ \t\n\r\f]+ | --[^\n\r]*(?:\r\n|\n|\r) | /\*.*?\*/ )
    | (?P<float> [0-9]+\.[0-9]*(?:e[+-]?[0-9]+)? | \.[0-9]+(?:e[+-]?[0-9]+)? | [0-9]+e[+-]?[0-9]+ )
    | (?P<decimal> 0 | [1-9][0-9]*l? )
    | (?P<string> '(?:''|[^'])*' )
    | (?P<word> [a-z_$][a-z0-9_$]* )
    | (?P<symbol> <> | <= | >= | [=<>(),+-] )
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII | re.DOTALL,
)


class Token(NamedTuple):
    """A word of a filter. Keywords and symbols are kinds of their own."""

    kind: str
    text: str
    start: int


class Tokens:
    """The words of a filter, with as much foresight as is asked for."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._ahead: list[Token] = []
        self._read_to = 0  # up to here there are tokens
        self._taken_to = 0  # up to here they were taken

    def kind(self, ahead: int = 0) -> str:
        """What comes next, or after so many others."""
        while len(self._ahead) <= ahead:
            self._ahead.append(self._read())
        return self._ahead[ahead].kind

    def take(self, *kinds: str) -> Token:
        """The next, which must be of one of these kinds."""
        if self.kind() not in kinds:
            raise self.unexpected()
        token = self._ahead.pop(0)
        self._taken_to = token.start + len(token.text)
        return token

    def unexpected(self) -> InvalidSetting:
        """What to raise when the next does not fit."""
        self.kind()
        token = self._ahead[0]
        return InvalidSetting(f'Encountered "{token.text[:40] or END}" {self._place(token.start)}')

    def start(self) -> int:
        """Where the next begins."""
        self.kind()
        return self._ahead[0].start

    def text_since(self, start: int) -> str:
        """What was taken since then, as it was written."""
        return self._source[start : self._taken_to]

    def _read(self) -> Token:
        while True:
            start = self._read_to
            if start == len(self._source):
                return Token(END, "", start)
            found = _TOKEN.match(self._source, start)
            if found is None:
                raise InvalidSetting(
                    f'Lexical error {self._place(start)}  Encountered: "{self._source[start]}"'
                )
            self._read_to = found.end()
            kind, text = found.lastgroup or "", found[0]
            if kind == "skipped":
                continue
            if kind == "symbol" or (kind == WORD and text.upper() in _KEYWORDS):
                kind = text.upper()
            return Token(kind, text, start)

    def _place(self, at: int) -> str:
        if not self._source:
            return "at line 0, column 0."
        at = min(at, len(self._source) - 1)  # the end is where the last character is
        line = self._source.count("\n", 0, at) + 1
        column = at - (self._source.rfind("\n", 0, at) + 1) + 1
        return f"at line {line}, column {column}."
