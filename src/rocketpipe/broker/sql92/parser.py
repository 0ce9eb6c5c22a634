"""Makes a filter of its text: `compile_filter("price > 5 AND region = 'north'")`.

The grammar is Apache's (SelectorParser.jj), down to what surprises: NOT binds closer than any
comparison, so that `NOT a = 1` is `(NOT a) = 1`; and the text is read up to where nothing fits any
more, so that `a = 0x10` is `a = 0`.
"""

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

from rocketpipe.broker.sql92.expressions import (
    DEPTH_MAX,
    Expression,
    Properties,
    all_of,
    any_of,
    between,
    comparison,
    condition,
    constant,
    equality,
    membership,
    minus,
    missing,
    negation,
    not_between,
    property_named,
    text_search,
)
from rocketpipe.broker.sql92.tokens import DECIMAL, FLOAT, STRING, WORD, Tokens
from rocketpipe.errors import InvalidSetting
from rocketpipe.wire.java_text import read_integer

# Whether a message with such properties is wanted.
Matches = Callable[[Properties], bool]

CHARACTERS_MAX = 32 * 1024
FILTERS_CACHED = 100  # as many as Apache keeps

_FLOAT_MAX, _FLOAT_MIN = 1.7976931348623157e308, 5e-324  # Double.MAX_VALUE and MIN_VALUE
_SEARCHES: Mapping[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_NEGATABLE = (*_SEARCHES, "BETWEEN", "IN")
_ORDERS = ("<", "<=", ">", ">=")


def compile_filter(text: str) -> Matches:
    """What decides for each message whether the filter wants it; InvalidSetting if it is wrong."""
    if len(text) > CHARACTERS_MAX:
        raise InvalidSetting(f"a filter of {len(text)} characters: {CHARACTERS_MAX} are the most")
    compiled = _compiled(text)
    if isinstance(compiled, InvalidSetting):
        raise InvalidSetting(*compiled.args)
    return compiled


@lru_cache(maxsize=FILTERS_CACHED)  # wrong ones too: clients ask for them again and again
def _compiled(text: str) -> Matches | InvalidSetting:
    try:
        evaluate = parse(text).evaluate
    except InvalidSetting as error:
        return InvalidSetting(*error.args)  # without the traceback, which holds the parser

    def matches(properties: Properties) -> bool:
        try:
            return evaluate(properties) is True
        except ValueError:  # what can't be compared
            return False

    return matches


def parse(text: str) -> Expression:
    """The condition a text begins with."""
    return condition(_Parser(text).disjunction())


class _Parser:
    """Each method takes as much as belongs together."""

    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)
        self._depth = 0

    def disjunction(self) -> Expression:
        return self._chain("OR", any_of, lambda: self._chain("AND", all_of, self._equality))

    def _chain(
        self,
        joint: str,
        joined: Callable[[list[Expression]], Expression],
        take: Callable[[], Expression],
    ) -> Expression:
        parts = [take()]
        while self._tokens.kind() == joint:
            self._tokens.take(joint)
            parts.append(take())
        return parts[0] if len(parts) == 1 else joined([condition(part) for part in parts])

    def _equality(self) -> Expression:
        tokens = self._tokens
        start = tokens.start()
        left = self._comparison()
        while (kind := tokens.kind()) in ("=", "<>", "IS"):
            tokens.take(kind)
            if kind == "IS":
                is_negated = tokens.kind() == "NOT"
                if is_negated:
                    tokens.take("NOT")
                tokens.take("NULL")
                left = missing(left)
            else:
                is_negated = kind == "<>"
                left = equality(left, self._comparison())
            if is_negated:
                left = negation(left)
            left = left._replace(text=tokens.text_since(start))
        return left

    def _comparison(self) -> Expression:
        tokens = self._tokens
        start = tokens.start()
        left = self._unary()
        while True:
            is_wanted = tokens.kind() != "NOT"
            if is_wanted and tokens.kind() not in (*_NEGATABLE, *_ORDERS):
                return left
            if not is_wanted:
                if tokens.kind(1) not in _NEGATABLE:
                    raise tokens.unexpected()
                tokens.take("NOT")
            kind = tokens.take(tokens.kind()).kind
            left = self._compared(left, kind, is_wanted=is_wanted)
            left = left._replace(text=tokens.text_since(start))

    def _compared(self, left: Expression, kind: str, *, is_wanted: bool) -> Expression:
        if kind in _SEARCHES:
            return text_search(_SEARCHES[kind], left, self._string(), is_wanted=is_wanted)
        if kind == "IN":
            return membership(left, self._strings(), is_wanted=is_wanted)
        if kind == "BETWEEN":
            low = self._unary()
            self._tokens.take("AND")
            return (between if is_wanted else not_between)(left, low, self._unary())
        return comparison(kind, left, self._unary())

    def _unary(self) -> Expression:
        tokens = self._tokens
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidSetting(f"the filter is nested deeper than {DEPTH_MAX}")
        start, kind = tokens.start(), tokens.kind()
        if kind in ("+", "-", "NOT"):
            tokens.take(kind)
            part = self._unary()
            if kind != "+":
                part = (minus if kind == "-" else negation)(part)
                part = part._replace(text=tokens.text_since(start))
        elif kind == "(":
            tokens.take("(")
            part = self.disjunction()
            tokens.take(")")
        elif kind == WORD:
            part = property_named(tokens.take(WORD).text)
        else:
            part = self._literal()
        self._depth -= 1
        return part

    def _literal(self) -> Expression:
        token = self._tokens.take(DECIMAL, FLOAT, STRING, "TRUE", "FALSE", "NULL")
        if token.kind == DECIMAL:
            return constant(_whole_number(token.text), token.text)
        if token.kind == FLOAT:
            return constant(_floating_number(token.text), token.text)
        if token.kind == STRING:
            return constant(_unquoted(token.text), token.text)
        return constant({"TRUE": True, "FALSE": False}.get(token.kind), token.kind)

    def _strings(self) -> list[str]:
        """A list in brackets."""
        self._tokens.take("(")
        texts = [self._string()]
        while self._tokens.kind() == ",":
            self._tokens.take(",")
            texts.append(self._string())
        self._tokens.take(")")
        return texts

    def _string(self) -> str:
        return _unquoted(self._tokens.take(STRING).text)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _whole_number(text: str) -> int:
    try:
        return read_integer(text.rstrip("lL"), 64)
    except ValueError as error:
        raise InvalidSetting(str(error)) from error


def _floating_number(text: str) -> float:
    value = float(text)
    if value > _FLOAT_MAX:
        raise InvalidSetting(f"{text} is greater than {_FLOAT_MAX}")
    if value < _FLOAT_MIN:  # and so is 0.0: as Apache has it
        raise InvalidSetting(f"{text} is less than {_FLOAT_MIN}")
    return value
