"""The parts of a filter: what each evaluates to, and which may stand together (Apache's checks).

A part is a function from properties to a value. What its class says of it in Java is written beside
it: `NOT a` and `a > 1` are boolean, `5` and `TRUE` are constants, and only `a` is a property.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rocketpipe.broker.sql92.values import Value, are_equal, compared, negated, ordered
from rocketpipe.errors import InvalidSetting

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]
Truth = bool | None

# How deep parts may stand in one another, so that no filter exhausts the stack.
DEPTH_MAX = 64

_ORDERS: Mapping[str, Callable[[int], bool]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}


class Expression(NamedTuple):
    """A part of a filter."""

    evaluate: Evaluate
    text: str  # as it was written, for errors
    depth: int = 1
    is_boolean: bool = False
    is_property: bool = False
    is_constant: bool = False
    value: Value = None  # of a constant


def constant(value: Value, text: str) -> Expression:
    is_boolean = value is None or isinstance(value, bool)
    return Expression(
        lambda properties: value, text, is_boolean=is_boolean, is_constant=True, value=value
    )


def property_named(name: str) -> Expression:
    return Expression(lambda properties: properties.get(name), name, is_property=True)


def condition(part: Expression) -> Expression:
    """A part where only true, false and unknown make sense. A property is never true by itself."""
    if part.is_boolean:
        return part
    if not part.is_property:
        raise InvalidSetting(f"Expression will not result in a boolean value: {part.text}")
    name = part.text
    return _boolean(lambda properties: False if name in properties else None, part)


def any_of(parts: Sequence[Expression]) -> Expression:
    """OR of them all: the first that is true ends it."""
    evaluates = [part.evaluate for part in parts]

    def evaluate(properties: Properties) -> Truth:
        result: Truth = False
        for each in evaluates:
            value = each(properties)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return _boolean(evaluate, *parts)


def all_of(parts: Sequence[Expression]) -> Expression:
    """AND of them all: the first that is false ends it."""
    evaluates = [part.evaluate for part in parts]

    def evaluate(properties: Properties) -> Truth:
        result: Truth = True
        for each in evaluates:
            value = each(properties)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return _boolean(evaluate, *parts)


def negation(part: Expression) -> Expression:
    """NOT: what is unknown stays so."""
    inner = condition(part).evaluate

    def evaluate(properties: Properties) -> Truth:
        value = inner(properties)
        return None if value is None else not value

    return _boolean(evaluate, part)


def minus(part: Expression) -> Expression:
    inner = part.evaluate
    return Expression(lambda properties: negated(inner(properties)), part.text, _depth(part))


def equality(left: Expression, right: Expression) -> Expression:
    for part in (left, right):
        if part.is_constant and part.value is None:
            raise InvalidSetting(f"'{part.text}' cannot be compared.")
    if left.is_constant and left.is_boolean and right.is_constant and not right.is_boolean:
        raise InvalidSetting(f"'{left.text}' cannot be compared with '{right.text}'")
    first, second = left.evaluate, right.evaluate
    return _boolean(
        lambda properties: are_equal(first(properties), second(properties)), left, right
    )


def missing(part: Expression) -> Expression:
    """IS NULL."""
    inner = part.evaluate
    return _boolean(lambda properties: inner(properties) is None, part)


def comparison(operator: str, left: Expression, right: Expression) -> Expression:
    """`<`, `<=`, `>` or `>=`, which is for numbers."""
    for part in (left, right):
        is_number = type(part.value) in (int, float)
        if part.is_boolean or (part.is_constant and not is_number):
            raise InvalidSetting(f"Value '{part.text}' cannot be compared.")
    first, second, fits = left.evaluate, right.evaluate, _ORDERS[operator]

    def evaluate(properties: Properties) -> Truth:
        order = ordered(first(properties), second(properties))
        return None if order is None else fits(order)

    return _boolean(evaluate, left, right)


def between(part: Expression, low: Expression, high: Expression) -> Expression:
    bounds = all_of([comparison(">=", part, low), comparison("<=", part, high)])
    if low.is_constant and high.is_constant and compared(high.value, low.value) < 0:
        raise InvalidSetting(
            f"Illegal values of between, left value({low.text}) must less than or equal to "
            f"right value({high.text})"
        )
    return bounds


def not_between(part: Expression, low: Expression, high: Expression) -> Expression:
    return any_of([comparison("<", part, low), comparison(">", part, high)])


def membership(part: Expression, texts: Sequence[str], *, is_wanted: bool) -> Expression:
    """IN, or NOT IN."""
    if not part.is_property:
        raise InvalidSetting(f"Expected a property for In expression, got: {part.text}")
    inner, members = part.evaluate, frozenset(texts)

    def evaluate(properties: Properties) -> Truth:
        value = inner(properties)
        return None if value is None else (value in members) is is_wanted

    return _boolean(evaluate, part)


def text_search(
    finds: Callable[[str, str], bool], part: Expression, text: str, *, is_wanted: bool
) -> Expression:
    """CONTAINS and its kin, and their opposites: false for whatever is no text, and for no text."""
    inner = part.evaluate

    def evaluate(properties: Properties) -> Truth:
        value = inner(properties)
        return bool(text) and isinstance(value, str) and finds(value, text) is is_wanted

    return _boolean(evaluate, part)


def _boolean(evaluate: Evaluate, *parts: Expression) -> Expression:
    return Expression(evaluate, parts[0].text, _depth(*parts), is_boolean=True)


def _depth(*parts: Expression) -> int:
    depth = max(part.depth for part in parts) + 1
    if depth > DEPTH_MAX:
        raise InvalidSetting(f"the filter is nested deeper than {DEPTH_MAX}")
    return depth
