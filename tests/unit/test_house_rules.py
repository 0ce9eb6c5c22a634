"""Rules of this house that no linter knows; each failure names the better way."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketpipe

PACKAGE = Path(rocketpipe.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
every_module = pytest.mark.parametrize(
    "path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE))
)

# What each part may import of the others. Imports go one way:
# codes, errors, host, message, clock, lazy_dataclass, lazy_names, compiled <- wire <- remoting
# <- client | broker | nameserver <- sync <- spark; report has its facts from whoever calls it
BASE = {"codes", "errors", "host", "message", "clock", "lazy_dataclass", "lazy_names", "compiled"}
PROTOCOL = BASE | {"wire", "remoting"}
ALLOWED: dict[str, set[str]] = {
    **dict.fromkeys(BASE, BASE),
    "wire": BASE,
    "remoting": BASE | {"wire"},
    "client": PROTOCOL,
    "nameserver": PROTOCOL,
    "broker": PROTOCOL,
    "sync": PROTOCOL | {"client"},
    "testing": PROTOCOL | {"client", "nameserver", "broker", "sync"},
    "report": BASE,
    "spark": PROTOCOL | {"client", "sync", "report"},
    "lab": PROTOCOL | {"client", "sync", "spark"},
}
TOP = {"__init__", "__main__", "cli", "demo", "public"}  # may import everything


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: import by the full name"
            yield node.lineno, node.module or ""
            if node.module == "rocketpipe":
                yield from ((node.lineno, f"rocketpipe.{alias.name}") for alias in node.names)


@every_module
def test_imports_go_one_way(path: Path) -> None:
    part = part_of(path)
    if part in TOP:
        return
    assert part in ALLOWED, f"{part} is new: say in this test what it may import"
    for line, name in imports(path):
        if name.startswith("rocketpipe."):
            other = name.split(".")[1]
            assert other == part or other in ALLOWED[part], (
                f"{path}:{line}: {part} may not import {other}; "
                "what both need lives below them (style: the shape of the package)"
            )


@every_module
def test_the_wire_does_no_input_or_output(path: Path) -> None:
    if part_of(path) != "wire":
        return
    forbidden = {"asyncio", "socket", "ssl", "threading", "time", "selectors", "os"}
    for line, name in imports(path):
        assert name.split(".")[0] not in forbidden, (
            f"{path}:{line}: the wire imports no {name}: bytes go in, values come out"
        )


@every_module
def test_time_is_passed_in(path: Path) -> None:
    if part_of(path) == "clock":
        return
    for line, name in imports(path):
        assert name != "time", f"{path}:{line}: take a Clock, or the loop's time()"


@every_module
def test_every_module_says_in_its_first_line_what_it_is_for(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring, f"{path} has no docstring"
