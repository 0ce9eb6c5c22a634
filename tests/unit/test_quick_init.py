"""Classes with a quick `__init__` behave as they would without it."""

import copy
import inspect
import pickle
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from rocketpipe.quick_init import quick_init


def declared() -> Any:
    @dataclass(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 2
        _: KW_ONLY
        tags: Sequence[str] = field(default=(), metadata={"post_init": True})
        name: str | None = None

        def __post_init__(self) -> None:
            object.__setattr__(self, "tags", tuple(self.tags))

    return Point


SLOW, QUICK = declared(), quick_init(declared())


@quick_init
@dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: int = 0


@pytest.mark.parametrize(
    "make",
    [
        lambda cls: cls(1),
        lambda cls: cls(1, 3, tags=["a"], name="n"),
        lambda cls: cls(x=1, y=5),
        lambda cls: replace(cls(1), tags=["b"]),
    ],
)
def test_the_same_arguments_give_the_same_value(make: Callable[[Any], Any]) -> None:
    assert repr(make(QUICK)) == repr(make(SLOW))


@pytest.mark.parametrize(
    "make", [lambda cls: cls(), lambda cls: cls(1, 2, []), lambda cls: cls(z=1)]
)
def test_the_same_arguments_are_refused(make: Callable[[Any], Any]) -> None:
    for cls in (SLOW, QUICK):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            make(cls)


def test_the_signature_stays() -> None:
    assert str(inspect.signature(QUICK)) == str(inspect.signature(SLOW))


def test_what_is_to_be_made_ready_is() -> None:
    assert QUICK(1, tags=["a"]).tags == ("a",)


def test_it_stays_frozen_and_can_be_copied_and_pickled() -> None:
    pair = Pair(1)
    with pytest.raises(FrozenInstanceError):
        pair.left = 2  # type: ignore[misc]
    assert copy.copy(pair) == pickle.loads(pickle.dumps(pair)) == pair


def test_a_class_that_inherits_has_all_fields() -> None:
    @quick_init
    @dataclass(frozen=True, slots=True)
    class Triple(Pair):
        third: int = 3

    assert repr(Triple(1, third=4)).endswith("Triple(left=1, right=0, third=4)")
