"""How values compare: Java's types, which a property's text takes from what it is compared with.

There are text, whole numbers, floating ones, truth, and None where a property is missing. A whole
number is an Integer where Java's would be, else a Long: a text that is no Integer can't be compared
with one. That is a ValueError, and a message that raises one does not match, whatever else the
filter says (ExpressionMessageFilter.isMatchedByCommitLog).
"""

import math

from rocketpipe.wire.java_text import read_bool, read_double, read_integer

Value = str | int | float | bool | None

_INTEGER_MAX = (1 << 31) - 1


def are_equal(left: Value, right: Value) -> bool | None:
    """`=`: None, which is unknown, where the left side is missing and the right is not."""
    if left is None or right is None:
        return left is right or (None if left is None else False)
    return (type(left) is type(right) and left == right) or compared(left, right) == 0


def ordered(left: Value, right: Value) -> int | None:
    """Below zero, zero or above, for `<` and its kin; None where a side is missing."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        left, right = read_double(left), read_double(right)
    return compared(left, right)


def negated(value: Value) -> Value:
    """A number with the other sign; what is no number is unknown."""
    return -value if type(value) in (int, float) else None  # type: ignore[operator]


def compared(left: Value, right: Value) -> int:
    """ComparisonExpression.__compare, which calls less what it can't compare."""
    kinds = type(left), type(right)
    if kinds[0] is not kinds[1]:
        if bool in kinds:
            if kinds[0] is not str:
                if kinds[1] is str:
                    raise ValueError("truth is compared with a text")  # in Java, a failed cast
                return -1
            left = read_bool(str(left))
        elif isinstance(left, str):
            left = _number_like(right, left)
        elif isinstance(right, str):
            right = _number_like(left, right)
        else:  # a whole number and a floating one
            assert isinstance(left, int | float)
            assert isinstance(right, int | float)
            left, right = float(left), float(right)
    if isinstance(left, float) and isinstance(right, float):
        return _compared_floats(left, right)
    return (left > right) - (left < right)  # type: ignore[operator]  # they are of one type


def _number_like(other: Value, text: str) -> int | float:
    """The number a text stands for, where it is compared with this one."""
    if isinstance(other, float):
        return read_double(text)
    assert isinstance(other, int)
    return read_integer(text, 32 if abs(other) <= _INTEGER_MAX else 64)


def _compared_floats(left: float, right: float) -> int:
    """Double.compareTo: NaN is equal to itself and above all else, -0.0 is below 0.0."""
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) - math.isnan(right)
    if left == right == 0:
        left, right = math.copysign(1, left), math.copysign(1, right)
    return (left > right) - (left < right)
