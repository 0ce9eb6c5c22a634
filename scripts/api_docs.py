"""Writes docs/api.md from the code: the public names, their signatures, and what they give."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import rocketpipe.public
import rocketpipe.testing

PAGE = Path(__file__).parents[1] / "docs" / "api.md"

HEAD = """\
# The public names

<!-- Made by scripts/api_docs.py from the code; a test fails when it is out of date. -->

`from rocketpipe import ...` finds the first part, `from rocketpipe.testing import ...` the second,
`from rocketpipe.spark.jobs.archive import ...` and so on the [jobs](jobs.md); errors are in
`rocketpipe.errors` and have [a page of their own](errors.md). Whatever else the package holds may
change without notice. Each class with `Async` in its name has the methods of the
one without, to be awaited: only the latter is told here. Settings are told in
[settings.md](settings.md).
"""

# What has no docstring of its own.
PLAIN = {
    "LATEST_MS": "for `Admin.reset_offsets`: the end of a topic.",
    "Listener": "what a push consumer is given. None means consumed; see `Retry`.",
}

PARTS: list[tuple[str, ModuleType]] = [
    ("rocketpipe", rocketpipe.public),
    ("rocketpipe.testing", rocketpipe.testing),
    *(
        (f"rocketpipe.spark.jobs.{name}", import_module(f"rocketpipe.spark.jobs.{name}"))
        for name in ("session", "archive", "publish", "replay", "audit", "row_sending", "progress")
    ),
]


def page() -> str:
    """The whole document."""
    return HEAD + "".join(f"\n## `{title}`\n" + "".join(_names(part)) for title, part in PARTS)


def _names(part: ModuleType) -> Iterator[str]:
    names = list(part.__all__)
    for name in names:
        pair = name.removeprefix("Async")
        if pair != name and pair in names:
            continue  # told with the blocking one
        async_name = f" and `Async{name}`" if f"Async{name}" in names else ""
        yield f"\n### `{name}`{async_name}\n\n" + _told(name, getattr(part, name))


def _told(name: str, thing: Any) -> str:
    if isinstance(thing, type):
        return _class(name, thing)
    if inspect.isfunction(thing):
        return f"`{name}{_signature(thing)}`\n\n{_text(thing)}\n"
    return f"`{_short(str(thing))}`: {PLAIN[name]}\n"


def _class(name: str, kind: type) -> str:
    lines = [_text(kind), ""]
    if issubclass(kind, Enum):
        return "\n".join([*lines, ", ".join(f"`{each}`" for each in kind.__members__), ""])
    if name.endswith("Settings") and not kind.__module__.startswith("rocketpipe.spark"):
        return "\n".join([*lines, "[All of them](settings.md).", ""])
    if not getattr(kind, "_is_protocol", False) and "__init__" in vars(kind) | _made(kind):
        lines += [f"`{name}{_signature(kind)}`", ""]
    members = list(_members(kind))
    return "\n".join([*lines, *members, ""] if members else lines)


def _made(kind: type) -> dict[str, Any]:
    """What has an `__init__` that a decorator or a base class made."""
    is_value = dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")
    inherited = any("__init__" in vars(base) for base in kind.__mro__[1:-1])
    return {"__init__": None} if is_value or inherited else {}


def _members(kind: type) -> Iterator[str]:
    fields = _fields(kind)
    for name, remark in _remarks(kind).items():
        if name in fields:
            yield f"- `{name}`: {remark}"
    for base in kind.__mro__[1:]:
        if _is_told(base):
            yield f"- and what `{base.__name__}` has"
    for name in dir(kind):
        home = next(each for each in kind.__mro__ if name in vars(each))
        if name.startswith("_") or name in fields or (home is not kind and not _is_ours(home)):
            continue
        member = inspect.getattr_static(kind, name)
        if isinstance(member, property | cached_property):
            yield f"- `{name}`: {_text(member)}"
        elif _is_method(member) and not hasattr(tuple, name):
            yield f"- `{name}{_signature(getattr(kind, name))}`: {_text(member)}"


def _is_method(member: object) -> bool:
    return isinstance(member, classmethod | staticmethod) or inspect.isfunction(member)


def _is_told(kind: type) -> bool:
    """Whether it has a section of its own."""
    return any(kind.__name__ in part.__all__ for _, part in PARTS)


def _is_ours(base: type) -> bool:
    """Whether what it inherits from this one is to be told with it."""
    is_wire = base.__module__.startswith("rocketpipe.wire")
    return base.__module__.startswith("rocketpipe.") and not is_wire and not _is_told(base)


def _remarks(kind: type) -> dict[str, str]:
    """What stands as a comment behind its fields."""
    if not _fields(kind):
        return {}
    source = inspect.getsource(kind)
    found = re.findall(r"^    (\w+): [^#\n]+  # (.+)$", source, re.MULTILINE)
    return {name: remark for name, remark in found if not remark.startswith("noqa")}


def _fields(kind: type) -> set[str]:
    if dataclasses.is_dataclass(kind):
        return {each.name for each in dataclasses.fields(kind)}
    return set(getattr(kind, "_fields", ()))


def _signature(thing: Any) -> str:
    signature = inspect.signature(thing)
    kept = [each for each in signature.parameters.values() if each.name != "self"]
    text = str(signature.replace(parameters=kept))
    return _short(text.removesuffix(" -> None") if isinstance(thing, type) else text)


def _short(text: str) -> str:
    """Without the modules that names live in, and with members of enums by their names."""
    text = re.sub(r"<(\w+(?:\.\w+)?(?:\|\w+)*): [^>]+>", r"\1", text)
    text = re.sub(r"<class '([\w.]+)'>", r"\1", text)
    text = re.sub(r"<factory>|<object object at \w+>", "...", text)
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z_])", "", text)
    return text.replace("typing.", "").replace("NoneType", "None")


def _text(thing: Any) -> str:
    """Its docstring as one paragraph, without the examples in it."""
    doc = inspect.getdoc(thing) or ""
    paragraphs = [each for each in doc.split("\n\n") if not _is_example(each)]
    return " ".join(" ".join(paragraphs).split())


def _is_example(paragraph: str) -> bool:
    return re.match(r"\s*(?:async )?(?:with|def) ", paragraph) is not None


def main() -> None:
    PAGE.write_text(page())
    print(PAGE)


if __name__ == "__main__":
    main()
