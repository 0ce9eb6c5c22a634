"""Names of a package that are imported when one is first asked for.

`rocketpipe serve` asks for none of them, and would else take twice as long to start.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def names_of_public(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package that has the names of the `public.py` in it."""
    module = f"{package}.public"

    def find(name: str) -> Any:
        # Python itself asks for names such as __path__, and for submodules before it imports them.
        if name == "__all__" or (not name.startswith("__") and name != "public"):
            public = import_module(module)
            if name == "__all__" or name in public.__all__:
                return getattr(public, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted(import_module(module).__all__)
