"""RocketMQ for Python and Spark: the names of `public.py`.

They are imported when one is first asked for. `rocketpipe serve` asks for none, and would else take
twice as long to start.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketpipe.public import *  # noqa: F403

_PUBLIC = f"{__name__}.public"


def __getattr__(name: str) -> Any:
    # Python itself asks for names such as __path__, and for submodules before it imports them.
    if name == "__all__" or (not name.startswith("__") and name != "public"):
        public = import_module(_PUBLIC)
        if name == "__all__" or name in public.__all__:
            return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(import_module(_PUBLIC).__all__)
