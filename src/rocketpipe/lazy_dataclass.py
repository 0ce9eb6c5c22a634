"""Frozen dataclasses that cost little to declare: a program that starts declares two hundred.

The standard library compiles six methods for each class, which takes a millisecond, and most are
never called. Here `__init__` is compiled when the first object is made, and the others are the same
few functions for all classes.

Objects are made nearly twice as fast, too: a frozen dataclass sets each field by its name, through
`object.__setattr__`; here it is spelled out with the setters of the slots, which need not look for
their place. And where fields have `"post_init": True` in their metadata, `__post_init__` is for
them alone, and is spared when all have their defaults.
"""

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, fields, is_dataclass
from types import MethodType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # what it looks like to who checks types
else:

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool = False) -> Callable[[T], T]:
        """As `dataclasses.dataclass`, for classes that are frozen and have slots."""
        assert frozen
        assert slots

        def declare(cls: T) -> T:
            written = cls.__doc__
            cls.__doc__ = cls.__name__  # else one is made of the signature, which takes long
            # To the library it is not frozen, which would have it compile more; to those who
            # inherit from it, it is.
            bases = [each.__dataclass_params__ for each in cls.__mro__ if is_dataclass(each)]
            for base in bases:
                base.frozen = False
            declared = dataclasses.dataclass(
                init=False, repr=False, eq=False, slots=True, kw_only=kw_only
            )(cls)
            for each in (*bases, declared.__dataclass_params__):
                each.frozen = True
            declared.__doc__ = written
            declared.__init__ = _FirstInit(declared)
            for name, method in _METHODS.items():
                if name not in cls.__dict__:
                    setattr(declared, name, method)
            return declared

        return declare


class _FirstInit:
    """Stands for `__init__` until it is called, or somebody asks how to."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, instance: Any, *args: Any, **kwargs: Any) -> None:
        self._compile()(instance, *args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._compile())

    def _compile(self) -> Callable[..., None]:
        self._cls.__init__ = _compiled_init(self._cls)
        return cast("Callable[..., None]", self._cls.__init__)


class _ByFactory:
    def __repr__(self) -> str:
        return "<factory>"  # as in the library's signatures


_BY_FACTORY = _ByFactory()


def _compiled_init(cls: Any) -> Callable[..., None]:
    declared = sorted(fields(cls), key=lambda field: field.kw_only is True)
    scope: dict[str, Any] = {"by_factory": _BY_FACTORY}
    head, body, given = ["self"], [], []
    for field in declared:
        name = value = field.name
        scope[f"set_{name}"] = getattr(cls, name).__set__  # of the slot
        if field.kw_only and "*" not in head:
            head.append("*")
        if field.default is not MISSING:
            scope[f"default_{name}"] = field.default
            head.append(f"{name}=default_{name}")
        elif field.default_factory is not MISSING:
            scope[f"make_{name}"] = field.default_factory
            head.append(f"{name}=by_factory")
            value = f"make_{name}() if {name} is by_factory else {name}"
        else:
            head.append(name)
        body.append(f"set_{name}(self, {value})")
        if field.metadata.get("post_init"):
            given.append(f"{name} is not default_{name}")
    if hasattr(cls, "__post_init__"):
        body.append(f"if {' or '.join(given) or True}: self.__post_init__()")
    lines = (f"def __init__({', '.join(head)}):", *(f"    {line}" for line in body or ["pass"]))
    exec("\n".join(lines), scope)
    compiled: Callable[..., None] = scope["__init__"]
    compiled.__qualname__ = f"{cls.__qualname__}.__init__"
    compiled.__annotations__ = {each.name: each.type for each in declared} | {"return": None}
    return compiled


class _Shared:
    """The methods that all classes are given."""

    def __repr__(self: Any) -> str:
        shown = [f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr]
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __eq__(self: Any, other: Any) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        compared = [each.name for each in fields(self) if each.compare]
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    def __hash__(self: Any) -> int:
        return hash(tuple(getattr(self, each.name) for each in fields(self) if _is_hashed(each)))

    def __setattr__(self: Any, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self: Any, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, each.name) for each in fields(self)]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for each, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, each.name, value)


_METHODS = {name: method for name, method in vars(_Shared).items() if callable(method)}


def _is_hashed(field: Field[Any]) -> bool:
    return field.compare if field.hash is None else field.hash
