"""Frozen dataclasses that are made nearly twice as fast: for those made with every message."""

import inspect
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def quick_init(cls: type[T]) -> type[T]:
    """The same class with the same `__init__`, faster; stands above a frozen, slotted @dataclass.

    A frozen dataclass sets each field by its name, through `object.__setattr__`. Here it is spelled
    out with the setters of the slots, which need not look for their place. `__post_init__` is
    for the fields with `"post_init": True` in their metadata, and spared when all have defaults.
    """
    slow = cls.__init__
    _, *parameters = inspect.signature(slow).parameters.values()
    scope: dict[str, Any] = {}
    head, body, given = ["self"], [], []
    for parameter, field in zip(parameters, fields(cls), strict=True):  # type: ignore[arg-type]
        name = field.name
        assert parameter.name == name, f"{cls.__name__} has keyword-only fields before others"
        scope[f"set_{name}"] = getattr(cls, name).__set__
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in head:
            head.append("*")
        if parameter.default is parameter.empty:
            head.append(name)
        else:
            scope[f"default_{name}"] = parameter.default
            head.append(f"{name}=default_{name}")
        body.append(f"set_{name}(self, {name})")
        if field.metadata.get("post_init"):
            given.append(f"{name} is not default_{name}")
    if given:
        body.append(f"if {' or '.join(given)}: self.__post_init__()")
    lines = (f"def __init__({', '.join(head)}):", *(f"    {line}" for line in body))
    exec("\n".join(lines), scope)
    quick = scope["__init__"]
    quick.__annotations__ = slow.__annotations__
    quick.__qualname__ = slow.__qualname__
    cls.__init__ = quick  # type: ignore[method-assign]
    return cls
