import subprocess
import sys
from importlib import import_module

import pytest

from rocketpipe.cli.program import COMMANDS, parser

PACKAGES = ["rocketpipe", "rocketpipe.testing"]


@pytest.mark.parametrize("name", PACKAGES)
def test_the_package_gives_the_public_names_and_no_others(name: str) -> None:
    package, public = import_module(name), import_module(f"{name}.public")
    assert dir(package) == sorted(public.__all__)
    for each in public.__all__:
        assert getattr(package, each) is getattr(public, each)
    with pytest.raises(AttributeError, match="no attribute 'import_of_others'"):
        package.import_of_others  # noqa: B018


@pytest.mark.parametrize("name", PACKAGES)
def test_a_star_imports_them_all(name: str) -> None:
    found: dict[str, object] = {}
    exec(f"from {name} import *", found)
    assert found.keys() - {"__builtins__"} == set(import_module(f"{name}.public").__all__)


def test_serve_does_not_import_the_client() -> None:
    serve = "from rocketpipe.cli.program import parser; parser('serve')"
    loads = "import rocketpipe.testing.embedded_servers, sys"
    tells = "print(*(name for name in sys.modules if name.startswith('rocketpipe.client')))"
    command = [sys.executable, "-c", f"{serve}; {loads}; {tells}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "\n"


def test_each_command_is_found_in_its_module() -> None:
    for command, module in COMMANDS.items():
        import_module(f"rocketpipe.cli.{module}")
        with pytest.raises(SystemExit) as ended:
            parser(command).parse_args([command, "--help"])
        assert ended.value.code == 0
