"""Dataclasses that cost little to declare: a program that starts declares two hundred.

The standard library looks at each field and compiles six methods for each class, which takes a
millisecond, and most are never asked for. Here only the slots are made at once; the fields are
worked out when somebody asks for them, `__init__` is compiled when the first object is made, and
the other methods are the same few functions for all classes.

Objects are made nearly twice as fast, too: a frozen dataclass sets each field by its name, through
`object.__setattr__`; here it is spelled out with the setters of the slots, which need not look for
their place. And where fields have `"post_init": True` in their metadata, `__post_init__` is for
them alone, and is spared when all have their defaults.
"""

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, MISSING, Field, FrozenInstanceError, fields
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, cast, get_origin

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # what it looks like to who checks types
else:

    def dataclass(
        *, frozen: bool = False, slots: bool, kw_only: bool = False, eq: bool = True
    ) -> Callable[[T], T]:
        """As `dataclasses.dataclass`, for classes that have slots."""
        assert slots
        methods = _METHODS if frozen else _METHODS_UNFROZEN
        if not eq:
            methods = {name: methods[name] for name in methods.keys() - {"__eq__", "__hash__"}}

        def declare(cls: T) -> T:
            annotations = inspect.get_annotations(cls)
            names = [name for name, kind in annotations.items() if _is_field(kind)]
            members = {**methods, **cls.__dict__}
            for name in (*names, "__dict__", "__weakref__"):
                members.pop(name, None)
            slots_of_bases = (vars(base).get("__slots__", ()) for base in cls.__mro__)
            inherited = {name for slots in slots_of_bases for name in slots}
            members["__slots__"] = tuple(name for name in names if name not in inherited)
            members["__init__"] = first = _FirstInit()
            members["__dataclass_fields__"] = late = _LateFields(cls, annotations, kw_only=kw_only)
            members["__dataclass_params__"] = _PARAMS[frozen]
            members["__match_args__"] = _MATCH_ARGS
            # Slots are made with a class, and no later: so there has to be another.
            late.cls = first.cls = declared = type(cls)(cls.__name__, cls.__bases__, members)
            declared.__qualname__ = cls.__qualname__
            return declared

        return declare


def _is_field(kind: Any) -> bool:
    return kind is not KW_ONLY and kind is not ClassVar and get_origin(kind) is not ClassVar


class _LateFields:
    """Stands for the fields of a class until somebody asks for them."""

    cls: Any

    def __init__(self, written: Any, annotations: dict[str, Any], *, kw_only: bool) -> None:
        members = written.__dict__
        self._own = {name: members[name] for name in annotations if name in members}
        self._own |= {"__annotations__": annotations, "__module__": written.__module__}
        self._kw_only = kw_only

    def __get__(self, instance: Any, owner: Any) -> dict[str, Field[Any]]:
        # A standard dataclass of nothing but these fields; to be documented would take it long.
        alone = type(self.cls.__name__, (), {**self._own, "__doc__": "its fields"})
        declare = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=self._kw_only)
        found: dict[str, Field[Any]] = {}
        for each in (*reversed(self.cls.__mro__[1:]), declare(alone)):
            found |= getattr(each, "__dataclass_fields__", {})
        self.cls.__dataclass_fields__ = found
        return found


class _MatchArgs:
    """What `match` takes by place."""

    def __get__(self, instance: Any, owner: Any) -> tuple[str, ...]:
        return tuple(each.name for each in fields(owner) if each.init and not each.kw_only)


def _params(*, frozen: bool) -> Any:
    """Those of a standard dataclass, for who inherits from one of ours."""
    cls: Any = dataclasses.make_dataclass("cls", (), frozen=frozen)
    return cls.__dataclass_params__


_PARAMS = {frozen: _params(frozen=frozen) for frozen in (False, True)}
_MATCH_ARGS = _MatchArgs()


class _FirstInit:
    """Stands for `__init__` until it is called, or somebody asks how to."""

    cls: Any

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, instance: Any, *args: Any, **kwargs: Any) -> None:
        self._compile()(instance, *args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._compile())

    def _compile(self) -> Callable[..., None]:
        self.cls.__init__ = _compiled_init(self.cls)
        return cast("Callable[..., None]", self.cls.__init__)


class _ByFactory:
    def __repr__(self) -> str:
        return "<factory>"  # as in the library's signatures


_BY_FACTORY = _ByFactory()


def _compiled_init(cls: Any) -> Callable[..., None]:
    is_frozen = cls.__dataclass_params__.frozen
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
        body.append(f"set_{name}(self, {value})" if is_frozen else f"self.{name} = {value}")
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

    def __replace__(self: Any, **changes: Any) -> Any:  # of copy.replace, in Python 3.13
        return dataclasses.replace(self, **changes)

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, each.name) for each in fields(self)]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for each, value in zip(fields(self), state, strict=True):
            object.__setattr__(self, each.name, value)


_METHODS = {name: method for name, method in vars(_Shared).items() if callable(method)}
_METHODS_UNFROZEN = {
    "__hash__": None,
    **{name: _METHODS[name] for name in ("__repr__", "__eq__", "__replace__")},
}


def _is_hashed(field: Field[Any]) -> bool:
    return field.compare if field.hash is None else field.hash
