"""Every request class that the package declares, by its code."""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from rocketpipe.codes import RequestCode
from rocketpipe.wire import requests
from rocketpipe.wire.headers import Request

_MODULES = [
    import_module(f"{requests.__name__}.{each.name}") for each in iter_modules(requests.__path__)
]

REQUESTS: Mapping[RequestCode, type[Request[Any]]] = {
    declared.code: declared
    for module in _MODULES
    for declared in vars(module).values()
    if isinstance(declared, type) and issubclass(declared, Request) and declared is not Request
}
