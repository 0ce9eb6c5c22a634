"""Classes declared lazily behave as those that the standard library declares."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, FrozenInstanceError, field, replace
from typing import Any, ClassVar

import pytest

from rocketpipe import lazy_dataclass


def declared(dataclass: Callable[..., Callable[[type], Any]]) -> Any:
    @dataclass(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 2
        _: KW_ONLY
        tags: list[str] = field(default_factory=list, hash=False)
        name: str | None = field(default=None, compare=False)
        secret: str = field(default="s", repr=False)
        origin: ClassVar[int] = 0

        def __post_init__(self) -> None:
            object.__setattr__(self, "x", int(self.x))

    return Point


STANDARD, LAZY = declared(dataclasses.dataclass), declared(lazy_dataclass.dataclass)


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Pair:
    """Two numbers."""

    left: int
    right: int = 0


@lazy_dataclass.dataclass(frozen=True, slots=True, kw_only=True)
class Triple(Pair):
    third: int


@lazy_dataclass.dataclass(slots=True)
class Count:
    count: int = 0
    names: list[str] = field(default_factory=list)


@lazy_dataclass.dataclass(slots=True, eq=False)
class Single:
    count: int = 0


@lazy_dataclass.dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    pass


@pytest.mark.parametrize(
    "make",
    [
        lambda cls: cls(1),
        lambda cls: cls("1", 3, tags=["a"], name="n", secret="t"),
        lambda cls: cls(x=1, y=5),
        lambda cls: replace(cls(1), tags=["b"]),
    ],
)
def test_the_same_arguments_give_the_same_value(make: Callable[[Any], Any]) -> None:
    standard, lazy = make(STANDARD), make(LAZY)
    assert repr(lazy) == repr(standard)
    assert hash(lazy) == hash(standard)
    assert dataclasses.asdict(lazy) == dataclasses.asdict(standard)
    assert lazy == make(LAZY)
    assert lazy != standard


@pytest.mark.parametrize(
    "make", [lambda cls: cls(), lambda cls: cls(1, 2, []), lambda cls: cls(z=1)]
)
def test_the_same_arguments_are_refused(make: Callable[[Any], Any]) -> None:
    for cls in (STANDARD, LAZY, LAZY):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            make(cls)


def test_values_are_equal_when_the_fields_are_that_count() -> None:
    assert LAZY(1) != LAZY(2)
    assert LAZY(1, name="a") == LAZY(1, name="b")
    assert Pair(1) != Triple(1, third=0)


def test_a_factory_makes_a_new_one_each_time() -> None:
    assert LAZY(1).tags is not LAZY(1).tags


def test_it_is_frozen_and_can_be_copied_and_pickled() -> None:
    pair = Pair(1)
    with pytest.raises(FrozenInstanceError):
        pair.left = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del pair.left
    assert not hasattr(pair, "__dict__")
    assert copy.copy(pair) == pickle.loads(pickle.dumps(pair)) == pair


def test_a_class_that_inherits_has_all_fields() -> None:
    assert repr(Triple(1, third=4)) == "Triple(left=1, right=0, third=4)"
    assert Pair(1) != Triple(1, third=4)
    assert repr(Nothing()) == "Nothing()"


def test_only_what_was_written_documents_a_class() -> None:
    assert Pair.__doc__ == "Two numbers."
    assert Triple.__doc__ is None


def test_how_to_call_it_can_be_asked_before_and_after_the_first_call() -> None:
    cls = declared(lazy_dataclass.dataclass)
    for _ in range(2):
        assert str(inspect.signature(cls)) == str(inspect.signature(STANDARD))
        cls(1)


def test_what_has_its_default_needs_no_post_init() -> None:
    calls = []

    @lazy_dataclass.dataclass(frozen=True, slots=True)
    class Named:
        name: str
        tags: Sequence[str] = field(default=(), metadata={"post_init": True})

        def __post_init__(self) -> None:
            calls.append(self.tags)
            object.__setattr__(self, "tags", tuple(self.tags))

    assert Named("n").tags == ()
    assert calls == []
    assert Named("n", ["a"]).tags == ("a",)
    assert calls == [["a"]]


def test_a_standard_dataclass_may_inherit() -> None:
    @dataclasses.dataclass(frozen=True)
    class Wide(Pair):
        third: int = 0

    assert Wide(1, 2, 3) == Wide(1, 2, 3) != Wide(1, 2, 4)


def test_one_that_is_not_frozen_can_be_changed_and_has_no_hash() -> None:
    count = Count()
    count.count += 1
    count.names.append("a")
    assert count == Count(1, ["a"]) != Count()
    assert not hasattr(count, "__dict__")
    assert copy.copy(count) == pickle.loads(pickle.dumps(count)) == count
    with pytest.raises(TypeError):
        hash(count)
    with pytest.raises(AttributeError):
        count.more = 1  # type: ignore[attr-defined]


def test_without_eq_each_object_is_itself() -> None:
    one = Single()
    assert one in {one}
    assert one != Single()


def test_what_it_tells_of_itself_is_what_a_standard_one_tells() -> None:
    assert [each.name for each in dataclasses.fields(LAZY)] == [
        each.name for each in dataclasses.fields(STANDARD)
    ]
    assert LAZY.__match_args__ == STANDARD.__match_args__ == ("x", "y")
    assert Triple.__match_args__ == ("left", "right")
    assert LAZY.origin == STANDARD.origin
    assert dataclasses.is_dataclass(Count)


def test_one_that_is_not_frozen_may_be_inherited_from_by_a_standard_one() -> None:
    @dataclasses.dataclass
    class Named(Count):
        name: str = ""

    assert Named(1, [], "n").name == "n"
    with pytest.raises(TypeError, match="frozen"):
        dataclasses.dataclass(frozen=True)(type("Frozen", (Count,), {}))
