import subprocess
import sys
from importlib import import_module

import pytest

import rocketpipe
from rocketpipe import public
from rocketpipe.cli.program import COMMANDS, parser


def test_the_package_gives_the_public_names_and_no_others() -> None:
    assert dir(rocketpipe) == sorted(public.__all__)
    for name in public.__all__:
        assert getattr(rocketpipe, name) is getattr(public, name)
    with pytest.raises(AttributeError, match="no attribute 'import_of_others'"):
        rocketpipe.import_of_others  # noqa: B018


def test_a_star_imports_them_all() -> None:
    found: dict[str, object] = {}
    exec("from rocketpipe import *", found)
    assert found.keys() - {"__builtins__"} == set(public.__all__)


def test_serve_does_not_import_the_client() -> None:
    serve = "from rocketpipe.cli.program import parser; parser('serve')"
    loads = "import rocketpipe.testing.embedded_servers, sys"
    tells = "print(*(name for name in sys.modules if name.startswith('rocketpipe.client')))"
    command = [sys.executable, "-c", f"{serve}; {loads}; {tells}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "\n"


def test_each_command_is_found_in_its_module() -> None:
    for command, module in COMMANDS.items():
        assert import_module(f"rocketpipe.cli.{module}")
        with pytest.raises(SystemExit) as ended:
            parser(command).parse_args([command, "--help"])
        assert ended.value.code == 0
